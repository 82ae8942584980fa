//! How an object is requested, and what the answer changes.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use api_client::{ApiError, ByValue, ObjectEvent, ObjectSelector, watch};
use futures_util::StreamExt;
use k8s_openapi::api::core::v1::Service;
use kernel::Context;
use kube::{Api, Resource};
use logic_api::objects::{
    ApiObject, ChangeDetection, FetchOutcome, ObjectRequest, slim, slim_service,
};
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;

use super::entry::{ObjectEntry, ResponseState};
use super::fetch_request::{FetchRequest, FetchStream, ResponseContent, fetched, spread};
use super::tokens::TokenFreshness;
use super::{Msg, ObjectManager, tokens, trust_bundles};

/// The deadline of every request.
const DEADLINE: Duration = Duration::from_secs(30);

/// The server's answer about one object, and the stream or task that goes on.
pub struct ObjectResponse {
    wanted: ObjectRequest,
    generation: u64,
    said: Result<ResponseContent, ApiError>,
    rest: Option<FetchStream>,
}

// Some of it is secret.
impl std::fmt::Debug for ObjectResponse {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Heard({})", self.wanted)
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum FetchMode {
    Followed,
    #[default]
    Fetched,
}

/// A kind of objects that upstream's node authorizer lets a node get and not watch; other authorizers may permit both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum UnwatchableKind {
    Claims,
    PersistentVolumes,
}

impl UnwatchableKind {
    fn of(wanted: &ObjectRequest) -> Option<UnwatchableKind> {
        match wanted {
            ObjectRequest::Claim(_) => Some(UnwatchableKind::Claims),
            ObjectRequest::PersistentVolume(_) => Some(UnwatchableKind::PersistentVolumes),
            ObjectRequest::ConfigMap(_)
            | ObjectRequest::Secret(_)
            | ObjectRequest::RuntimeClass(_)
            | ObjectRequest::Service(_)
            | ObjectRequest::Services(_)
            | ObjectRequest::CsiDrivers
            | ObjectRequest::TrustBundles
            | ObjectRequest::VolumeAttachment(_)
            | ObjectRequest::Token(_)
            | ObjectRequest::Certificate(_) => None,
        }
    }
}

pub(super) trait WatchableResource:
    Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static
{
}

impl<K> WatchableResource for K where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static
{
}

impl ObjectManager {
    /// Whether what is held lasts a while; then the object is requested again when that is over.
    fn rests(&mut self, wanted: &ObjectRequest, ctx: &mut Context<Msg>) -> bool {
        if let ObjectRequest::Certificate(own) = wanted {
            return self.certificate_rests(wanted, own, ctx);
        }
        let Some(entry) = self.entries.get_mut(wanted) else {
            return false;
        };
        let Some(token) = &entry.token else {
            return false;
        };
        let wait = tokens::wait(wanted, token, TokenFreshness::Old, ctx);
        if wait.is_zero() {
            return false;
        }
        self.rest(wanted, Some(wait), ctx);
        true
    }

    /// Requests nothing for so long, or for good.
    pub(super) fn rest(
        &mut self,
        wanted: &ObjectRequest,
        wait: Option<Duration>,
        ctx: &mut Context<Msg>,
    ) {
        let Some(entry) = self.entries.get_mut(wanted) else {
            return;
        };
        self.generation += 1;
        entry.generation = self.generation;
        entry.answer = ResponseState::Given;
        if let Some(wait) = wait {
            self.ask_after(wanted, wait, ctx);
        }
    }

    /// Requests it again after this time.
    pub(super) fn ask_after(
        &mut self,
        wanted: &ObjectRequest,
        wait: Duration,
        ctx: &mut Context<Msg>,
    ) {
        let Some(entry) = self.entries.get_mut(wanted) else {
            return;
        };
        if let Some(timer) = entry.timer.take() {
            ctx.cancel(timer);
        }
        let generation = entry.generation;
        let wanted = Box::new(wanted.clone());
        entry.timer = Some(ctx.after(wait, Msg::Due { wanted, generation }));
    }

    pub(super) fn listen(
        &mut self,
        wanted: &ObjectRequest,
        rest: FetchStream,
        ctx: &mut Context<Msg>,
    ) {
        if let Some(entry) = self.entries.get_mut(wanted) {
            let asking = next(wanted.clone(), entry.generation, rest);
            entry.asking = Some(ctx.run(asking));
        }
    }

    /// Whether a watch reports its changes.
    pub(super) fn is_followed(&self, wanted: &ObjectRequest) -> bool {
        match wanted {
            ObjectRequest::ConfigMap(_) | ObjectRequest::Secret(_) => {
                self.cadence.detection == ChangeDetection::Watch
            }
            ObjectRequest::RuntimeClass(_)
            | ObjectRequest::Service(_)
            | ObjectRequest::Services(_)
            | ObjectRequest::CsiDrivers
            | ObjectRequest::TrustBundles => true,
            ObjectRequest::Claim(_) => !self.unwatchable.contains(&UnwatchableKind::Claims),
            ObjectRequest::PersistentVolume(_) => {
                let kind = UnwatchableKind::PersistentVolumes;
                !self.unwatchable.contains(&kind)
            }
            ObjectRequest::VolumeAttachment(_)
            | ObjectRequest::Token(_)
            | ObjectRequest::Certificate(_) => false,
        }
    }

    /// Whether a watch was refused: objects of this kind are fetched from now on.
    fn is_watch_refused(
        &mut self,
        wanted: &ObjectRequest,
        said: &Result<ResponseContent, ApiError>,
    ) -> bool {
        let entry = self.entries.get(wanted);
        let is_followed = entry.is_some_and(|entry| entry.mode == FetchMode::Followed);
        let (true, Err(ApiError::Forbidden { .. })) = (is_followed, said) else {
            return false;
        };
        let Some(kind) = UnwatchableKind::of(wanted) else {
            return false;
        };
        if self.unwatchable.insert(kind) {
            tracing::info!("{kind:?} may not be watched by this node and are fetched instead");
        }
        true
    }

    /// Requests the volume of a claim that grows: it is larger before the claim says so.
    fn look_at_volume(&mut self, claim: &ObjectRequest, ctx: &mut Context<Msg>) {
        let objects = self.entries.get(claim).map(|entry| entry.objects.values());
        let volume = objects.into_iter().flatten().find_map(|object| {
            let ApiObject::Claim(claim) = object else {
                return None;
            };
            claim.spec.as_ref()?.volume_name.clone()
        });
        let Some(volume) = volume.map(ObjectRequest::PersistentVolume) else {
            return;
        };
        let is_idle = |entry: &ObjectEntry| entry.asking.is_none();
        if !self.is_followed(&volume) && self.entries.get(&volume).is_some_and(is_idle) {
            self.ask(&volume, ctx);
        }
    }

    /// Requests it now; a request under way for it is dropped.
    pub(super) fn ask(&mut self, wanted: &ObjectRequest, ctx: &mut Context<Msg>) {
        if self.rests(wanted, ctx) {
            return;
        }
        let way = self.fetch_request(wanted);
        let mode = self.fetch_mode(wanted);
        let Some(entry) = self.entries.get_mut(wanted) else {
            return;
        };
        self.generation += 1;
        self.requests += 1;
        entry.generation = self.generation;
        entry.mode = mode;
        entry.again = false;
        if let Some(task) = entry.asking.take() {
            ctx.abort(task);
        }
        if let Some(timer) = entry.timer.take() {
            ctx.cancel(timer);
        }
        let (wanted, generation) = (wanted.clone(), self.generation);
        let slots = self.slots.clone();
        let task = ctx.run(async move {
            let (said, rest) = first(way, &slots).await;
            Msg::Heard(Box::new(ObjectResponse {
                wanted,
                generation,
                said,
                rest,
            }))
        });
        entry.asking = Some(task);
    }

    fn fetch_mode(&self, wanted: &ObjectRequest) -> FetchMode {
        match self.is_followed(wanted) {
            true => FetchMode::Followed,
            false => FetchMode::Fetched,
        }
    }

    fn fetch_request(&self, wanted: &ObjectRequest) -> FetchRequest {
        let api = self.peers.api.clone();
        let manner = self.fetch_mode(wanted);
        match wanted {
            ObjectRequest::ConfigMap((namespace, name)) => {
                let api = Api::namespaced(api, namespace);
                one(api, name, whole(ApiObject::ConfigMap), manner)
            }
            ObjectRequest::Secret((namespace, name)) => {
                let api = Api::namespaced(api, namespace);
                one(api, name, whole(ApiObject::Secret), manner)
            }
            ObjectRequest::Claim((namespace, name)) => {
                let api = Api::namespaced(api, namespace);
                one(api, name, whole(ApiObject::Claim), manner)
            }
            ObjectRequest::PersistentVolume(name) => one(
                Api::all(api),
                name,
                whole(ApiObject::PersistentVolume),
                manner,
            ),
            ObjectRequest::VolumeAttachment(name) => one(
                Api::all(api),
                name,
                whole(ApiObject::VolumeAttachment),
                manner,
            ),
            ObjectRequest::RuntimeClass(name) => {
                one(Api::all(api), name, whole(ApiObject::RuntimeClass), manner)
            }
            ObjectRequest::Service((namespace, name)) => {
                one(Api::namespaced(api, namespace), name, service, manner)
            }
            ObjectRequest::Services(namespace) => many(Api::namespaced(api, namespace), service),
            ObjectRequest::CsiDrivers => many(Api::all(api), whole(ApiObject::CsiDriver)),
            ObjectRequest::TrustBundles => FetchRequest::Follow(trust_bundles::watch(api)),
            ObjectRequest::Token(wanted) => {
                let request = tokens::request(api, wanted.clone());
                fetched(async { request.await.map(ResponseContent::Token) })
            }
            ObjectRequest::Certificate(own) => self.certificate_way(wanted, own),
        }
    }

    pub(super) fn on_response(&mut self, heard: ObjectResponse, ctx: &mut Context<Msg>) {
        let ObjectResponse {
            wanted,
            generation,
            said,
            rest,
        } = heard;
        let Some(entry) = self.entries.get_mut(&wanted) else {
            return;
        };
        if entry.generation != generation {
            return;
        }
        entry.asking = None;
        if self.is_watch_refused(&wanted, &said) {
            return self.ask(&wanted, ctx);
        }
        let Some(entry) = self.entries.get_mut(&wanted) else {
            return;
        };
        let before = entry.trouble.take();
        let (outcome, differs) = match said {
            Ok(ResponseContent::Objects(event)) => {
                let differs = entry.take(event);
                (entry.outcome(), differs)
            }
            Ok(ResponseContent::Token(token)) => {
                entry.token = Some(token);
                (FetchOutcome::Found, true)
            }
            Ok(ResponseContent::Request(seen)) => entry.hear_request(seen.as_deref()),
            Err(trouble) => {
                entry.course.mind(&trouble);
                (entry.troubled(&trouble, ctx.now()), false)
            }
        };
        let is_told = entry.trouble == before;
        if let Some(trouble) = entry.trouble.as_ref().filter(|_| !is_told) {
            tracing::warn!("{wanted}: {trouble}");
        }
        let differs = differs || !is_told;
        let is_answer = is_answer(&wanted, outcome);
        let is_news = is_answer && entry.answer == ResponseState::Never;
        let times = entry.went(outcome);
        let too_old = std::mem::take(&mut entry.again);
        if too_old && is_answer && !(rest.is_some() && outcome == FetchOutcome::Found) {
            self.ask(&wanted, ctx);
        } else {
            if is_answer {
                entry.answer = ResponseState::Given;
            }
            self.go_on(&wanted, (outcome, times), rest, ctx);
        }
        if differs || is_news {
            self.publish_soon(ctx);
        }
        if outcome == FetchOutcome::Growing {
            self.look_at_volume(&wanted, ctx);
        }
    }

    /// Goes on with the watch, or schedules the next request.
    fn go_on(
        &mut self,
        wanted: &ObjectRequest,
        (outcome, times): (FetchOutcome, u32),
        rest: Option<FetchStream>,
        ctx: &mut Context<Msg>,
    ) {
        if matches!(wanted, ObjectRequest::Certificate(_)) {
            return self.certificate_goes_on(wanted, (outcome, times), rest, ctx);
        }
        let Some(entry) = self.entries.get_mut(wanted) else {
            return;
        };
        if entry.is_immutable() && outcome == FetchOutcome::Found {
            return;
        }
        if let Some(rest) = rest {
            return self.listen(wanted, rest, ctx);
        }
        let wait = match (&entry.token, outcome) {
            (Some(token), FetchOutcome::Found) => {
                Some(tokens::wait(wanted, token, TokenFreshness::New, ctx))
            }
            _ => {
                let wait = self.cadence.wait(wanted, outcome, times);
                wait.map(|wait| wait + spread(wait))
            }
        };
        if let Some(wait) = wait {
            self.ask_after(wanted, wait, ctx);
        }
    }

    pub(super) fn due(&mut self, wanted: &ObjectRequest, generation: u64, ctx: &mut Context<Msg>) {
        let Some(entry) = self.entries.get_mut(wanted) else {
            return;
        };
        if entry.generation != generation {
            return;
        }
        entry.timer = None;
        if entry.asking.is_some() {
            return self.look_at_certificate(wanted, ctx);
        }
        self.ask(wanted, ctx);
    }
}

fn one<K: WatchableResource>(
    api: Api<ByValue<K>>,
    name: &str,
    make: impl Fn(K) -> ApiObject + Send + Copy + 'static,
    manner: FetchMode,
) -> FetchRequest {
    match manner {
        FetchMode::Followed => {
            FetchRequest::Follow(followed(api, ObjectSelector::named(name), make))
        }
        FetchMode::Fetched => {
            let name = name.to_owned();
            fetched(async move {
                let found = api.get_opt(&name).await?;
                let found = found.map(|ByValue(object)| make(object));
                let found = found.into_iter().collect();
                Ok(ResponseContent::Objects(ObjectEvent::Listed(found)))
            })
        }
    }
}

fn many<K: WatchableResource>(
    api: Api<ByValue<K>>,
    make: impl Fn(K) -> ApiObject + Send + Copy + 'static,
) -> FetchRequest {
    FetchRequest::Follow(followed(api, ObjectSelector::default(), make))
}

pub(super) fn followed<K: WatchableResource>(
    api: Api<ByValue<K>>,
    selection: ObjectSelector,
    make: impl Fn(K) -> ApiObject + Send + Copy + 'static,
) -> FetchStream {
    let made = move |event| match event {
        ObjectEvent::Listed(all) => ObjectEvent::Listed(all.into_iter().map(make).collect()),
        ObjectEvent::Applied(object) => ObjectEvent::Applied(make(object)),
        ObjectEvent::Deleted(object) => ObjectEvent::Deleted(make(object)),
    };
    let said =
        move |step: Result<ObjectEvent<K>, ApiError>| step.map(made).map(ResponseContent::Objects);
    watch(api, selection).map(said).boxed()
}

/// Whether a pod that waits for the object need not wait longer.
fn is_answer(wanted: &ObjectRequest, outcome: FetchOutcome) -> bool {
    match (wanted, outcome) {
        (_, FetchOutcome::Failed | FetchOutcome::Lagging) => false,
        // The signer has not answered.
        (ObjectRequest::Certificate(_), FetchOutcome::Pending | FetchOutcome::Absent) => false,
        (
            _,
            FetchOutcome::Found
            | FetchOutcome::Pending
            | FetchOutcome::Growing
            | FetchOutcome::Absent
            | FetchOutcome::Refused,
        ) => true,
    }
}

/// The object as it is kept.
pub(super) fn whole<K: Resource + 'static>(
    kind: fn(Arc<K>) -> ApiObject,
) -> impl Fn(K) -> ApiObject + Send + Copy + 'static {
    move |mut object| {
        slim(object.meta_mut());
        kind(Arc::new(object))
    }
}

fn service(service: Service) -> ApiObject {
    ApiObject::Service(Arc::new(slim_service(service)))
}

/// The first answer. At most `AT_ONCE` requests run at a time: a thousand pods do not make ten thousand at once.
async fn first(
    way: FetchRequest,
    slots: &Semaphore,
) -> (Result<ResponseContent, ApiError>, Option<FetchStream>) {
    let slot = slots.acquire().await;
    let late = || ApiError::Unreachable {
        message: format!("no answer within {} s", DEADLINE.as_secs()),
    };
    let came = match way {
        FetchRequest::Fetch(request) => {
            let said = tokio::time::timeout(DEADLINE, request).await;
            (said.unwrap_or_else(|_| Err(late())), None)
        }
        FetchRequest::Follow(mut steps) => match tokio::time::timeout(DEADLINE, steps.next()).await
        {
            Ok(Some(step)) => (step, Some(steps)),
            Ok(None) | Err(_) => (Err(late()), None),
        },
    };
    drop(slot);
    came
}

async fn next(wanted: ObjectRequest, generation: u64, mut rest: FetchStream) -> Msg {
    let said = rest.next().await;
    let (said, rest) = match said {
        Some(step) => (step, Some(rest)),
        None => {
            let message = "the watch has ended".to_owned();
            (Err(ApiError::Unreachable { message }), None)
        }
    };
    Msg::Heard(Box::new(ObjectResponse {
        wanted,
        generation,
        said,
        rest,
    }))
}
