//! Keeps one mirror for every static pod, with one request a name at a time.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use api_client::{ApiError, ByValue};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, PostParams, Preconditions};
use logic_api::pod::PodView;
use logic_pods::api::mirrors::{MirrorAction, StaticPodSet, mirror, plan};

/// The wait between two requests for one name; doubles as long as they fail.
const APART: Duration = Duration::from_secs(1);
/// The longest such wait: upstream tries at each sync of the pod.
const AT_MOST: Duration = Duration::from_secs(60);

/// The newest static pods and node UID. It outlives the actor: a successor need not be sent them again.
#[derive(Debug, Clone, Default)]
pub struct KnownStaticPods(Rc<RefCell<StaticPodFacts>>);

#[derive(Debug, Default)]
struct StaticPodFacts {
    node_uid: Option<String>,
    /// None until the sources have reported: before that no mirror is an orphan.
    statics: Option<StaticPodSet>,
}

/// The static pods and their mirrors, and the requests under way.
pub(super) struct MirrorPods {
    node: Arc<str>,
    kept: KnownStaticPods,
    under_way: BTreeSet<String>,
    pauses: BTreeMap<String, MirrorBackoff>,
}

/// When a name is tried again, and its last error.
struct MirrorBackoff {
    until: Instant,
    length: Duration,
    trouble: Option<String>,
}

/// One request about one name.
pub(super) struct MirrorRequest {
    step: MirrorAction,
    node: Arc<str>,
    node_uid: String,
}

/// The result of a request.
#[derive(Debug)]
pub struct MirrorOutcome {
    name: String,
    pub(super) deleted: Option<Arc<Pod>>,
    pub(super) made: Option<Pod>,
    trouble: Option<ApiError>,
}

impl MirrorPods {
    pub(super) fn new(node: Arc<str>, kept: KnownStaticPods) -> MirrorPods {
        MirrorPods {
            node,
            kept,
            under_way: BTreeSet::new(),
            pauses: BTreeMap::new(),
        }
    }

    pub(super) fn desire(&mut self, statics: StaticPodSet) {
        self.kept.0.borrow_mut().statics = Some(statics);
    }

    pub(super) fn owned_by(&mut self, node_uid: Option<String>) {
        self.kept.0.borrow_mut().node_uid = node_uid;
    }

    /// The requests to begin now. A mirror is made only for a node that is in the API.
    pub(super) fn begin(&mut self, mirrors: &[Arc<Pod>], now: Instant) -> Vec<MirrorRequest> {
        let facts = self.kept.0.borrow();
        let Some(statics) = &facts.statics else {
            return Vec::new();
        };
        let mut errands = Vec::new();
        for step in plan(&statics.pods, mirrors, &statics.ending) {
            let name = step.full_name();
            let node_uid = match (&facts.node_uid, &step) {
                (Some(uid), _) => uid.clone(),
                (None, MirrorAction::Delete(_) | MirrorAction::Replace { .. }) => String::new(),
                (None, MirrorAction::Make(_)) => continue,
            };
            let pauses = self.pauses.get(&name);
            if pauses.is_some_and(|pause| pause.until > now) || !self.under_way.insert(name) {
                continue;
            }
            errands.push(MirrorRequest {
                step,
                node: Arc::clone(&self.node),
                node_uid,
            });
        }
        errands
    }

    /// Takes in a result; returns when to look again.
    pub(super) fn ended(&mut self, end: &MirrorOutcome, now: Instant) -> Duration {
        self.under_way.remove(&end.name);
        self.pauses
            .retain(|_, pause| pause.until > now || pause.trouble.is_some());
        let before = self.pauses.remove(&end.name);
        let before = before.filter(|pause| pause.trouble.is_some());
        let trouble = end.trouble.as_ref().map(ApiError::to_string);
        let length = match (&trouble, &before) {
            (Some(_), Some(before)) => (before.length * 2).min(AT_MOST),
            (Some(_) | None, _) => APART,
        };
        if let Some(trouble) = &trouble
            && before.is_none_or(|before| before.trouble.as_ref() != Some(trouble))
        {
            tracing::warn!("mirror of static pod {}: {trouble}", end.name);
        }
        self.pauses.insert(
            end.name.clone(),
            MirrorBackoff {
                until: now + length,
                length,
                trouble,
            },
        );
        length
    }

    pub(super) fn troubles(&self) -> Vec<String> {
        let pauses = self.pauses.iter();
        pauses
            .filter_map(|(name, pause)| Some(format!("{name}: {}", pause.trouble.as_ref()?)))
            .collect()
    }
}

impl MirrorRequest {
    pub(super) async fn run(self, client: kube::Client) -> MirrorOutcome {
        let mut end = MirrorOutcome {
            name: self.step.full_name(),
            deleted: None,
            made: None,
            trouble: None,
        };
        end.trouble = self.carry_out(client, &mut end).await.err();
        end
    }

    async fn carry_out(
        &self,
        client: kube::Client,
        end: &mut MirrorOutcome,
    ) -> Result<(), ApiError> {
        let (old, new) = match &self.step {
            MirrorAction::Make(pod) => (None, Some(pod)),
            MirrorAction::Replace { mirror, with } => (Some(mirror), Some(with)),
            MirrorAction::Delete(mirror) => (Some(mirror), None),
        };
        if let Some(old) = old {
            delete(&client, old).await?;
            tracing::info!(pod = %self.step.full_name(), "mirror pod deleted");
            end.deleted = Some(Arc::clone(old));
        }
        if let Some(new) = new.filter(|_| !self.node_uid.is_empty()) {
            let api = Api::<ByValue<Pod>>::namespaced(client, new.namespace());
            let mirror = mirror(new, &self.node, &self.node_uid);
            let made = api.create(&PostParams::default(), &ByValue(mirror)).await;
            let ByValue(mut made) = made?;
            made.metadata.managed_fields = None;
            tracing::info!(pod = %self.step.full_name(), "mirror pod made");
            end.made = Some(made);
        }
        Ok(())
    }
}

/// Deletes this mirror and no other of its name, at once. One that is gone already is as good.
async fn delete(client: &kube::Client, mirror: &Pod) -> Result<(), ApiError> {
    let api = Api::<ByValue<Pod>>::namespaced(client.clone(), mirror.namespace());
    let now = DeleteParams {
        grace_period_seconds: Some(0),
        preconditions: Some(Preconditions {
            uid: mirror.metadata.uid.clone(),
            resource_version: None,
        }),
        ..DeleteParams::default()
    };
    match api
        .delete(mirror.name(), &now)
        .await
        .map_err(ApiError::from)
    {
        Ok(_) | Err(ApiError::NotFound { .. }) => Ok(()),
        Err(trouble) => Err(trouble),
    }
}
