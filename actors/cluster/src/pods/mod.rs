//! The pods that the API server gives this node, and the mirrors of static ones.
//!
//! - **Owns** the pods of this node as the API has them, and which of them wait for what they refer to.
//! - **Hears** the API's watch, the object manager (`Supplied`), which static pods there are, and the UID of the node
//!   in the API.
//! - **Tells** the pod manager which pods shall run, the object manager and the checkpoint which there are, and the
//!   status manager what the API shows of each; always the whole set, and an equal pod as the same `Arc`.
//! - **Never** lets a pod go without a positive answer of the API; never sends a set that is not complete.
//!
//! A new pod waits until everything that it refers to has been requested, at most [`HELD`]. A change that only the
//! node's own status made is sent to the status manager alone. While the API has not answered since the start, the
//! pods are those of the checkpoint.
//!
//! Upstream: pkg/kubelet/config/{apiserver,config}.go, pkg/kubelet/pod/mirror_client.go (1.36).

mod mirror_pods;
mod store;
mod subscribers;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use api_client::{ApiClient, ApiError, ObjectEvent, ObjectSelector, RequestLane, watch};
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use k8s_openapi::api::core::v1::Pod;
use kernel::{Actor, Context, Exit, Full, Recipient, Reply};
use kube::Api;
use logic_api::types::PodUid;
use logic_pods::api::mirrors::StaticPodSet;
use serde::Serialize;

pub use self::mirror_pods::KnownStaticPods;
use self::mirror_pods::{MirrorOutcome, MirrorPods};
use self::store::PodStore;
use self::subscribers::Subscribers;

/// Static sets, supplied pods and its own tasks: a handful at a time, and a mirror's end for each of 100 static pods.
pub const MAILBOX: usize = 256;
/// The longest that a new pod waits for what it refers to.
pub const HELD: Duration = Duration::from_secs(10);
/// How long the API may take for its first answer before the checkpoint's pods are started.
pub const FIRST_TIMEOUT: Duration = Duration::from_secs(5);
/// The time between two notifications: the first change is sent at once, those that follow closely are sent as one.
const TOGETHER: Duration = Duration::from_millis(1);
/// The wait before a subscriber with a full mailbox is notified again.
const TOLD_AGAIN: Duration = Duration::from_millis(50);
/// Events that are taken as one change, if they are there.
const AT_ONCE: usize = 128;

/// Messages of the source of API pods.
#[derive(Debug, strum::IntoStaticStr)]
pub enum Msg {
    /// Takes note for which pods every object that they refer to has been requested: the others wait.
    Supplied { uids: BTreeSet<PodUid> },
    /// Sees to it that exactly these static pods have mirrors; those that end keep theirs until they are over.
    Static(StaticPodSet),
    /// Takes note of the node's UID in the API, to which mirrors belong; none: the node is no longer in the API, and no
    /// more mirrors are made.
    Node { uid: Option<String> },
    /// Answers with every pod that the API gives this node, mirrors included.
    All { reply: Reply<Vec<Arc<Pod>>> },
    /// Takes in events of the watch.
    Watched(WatchBatch),
    /// Sends the status manager everything again: it has restarted.
    Resync,
    /// Takes note of how the making or deleting of a mirror ended.
    Mirrored(Box<MirrorOutcome>),
    /// Does what a timer is for.
    Due(PodWatchTimer),
}

/// What a timer of this actor is for.
#[derive(Debug)]
pub enum PodWatchTimer {
    /// Goes by the checkpoint: the API did not give its first answer in time.
    FirstAnswerLate,
    /// Notifies subscribers of what has changed.
    Notify,
    /// Lets pods go on that have waited long enough.
    Release,
    /// Looks again at mirrors that could not be made or deleted.
    RetryMirrors,
}

type PodEventStream = BoxStream<'static, Vec<Result<ObjectEvent<Pod>, ApiError>>>;

/// Events of the watch, and the stream for more.
pub struct WatchBatch {
    events: Vec<Result<ObjectEvent<Pod>, ApiError>>,
    stream: Option<PodEventStream>,
}

impl fmt::Debug for WatchBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "News({})", self.events.len())
    }
}

/// The subscribers: each gets the whole set of pods, mirrors excluded but for `statuses`.
#[derive(Debug, Clone)]
pub struct PodSubscribers {
    /// Gets the pods that shall run, by the API.
    pub directory: Recipient<Vec<Arc<Pod>>>,
    /// Gets the pods of the checkpoint, while the API has not answered.
    pub remembered: Recipient<Vec<Arc<Pod>>>,
    /// Gets all pods, also those that wait: what they refer to is requested.
    pub objects: Recipient<Vec<Arc<Pod>>>,
    /// Gets all pods, for the offline checkpoint.
    pub alone: Recipient<Vec<Arc<Pod>>>,
    /// Gets what the API shows of each pod, mirrors included: metadata and status; the spec only where it is new.
    pub statuses: Recipient<Vec<Arc<Pod>>>,
    /// The static pods; a successor finds them here.
    pub kept: KnownStaticPods,
}

/// Snapshot: numbers of pods, and errors.
#[derive(Debug, Serialize)]
pub struct Snapshot {
    /// The source of the pods: `nobody` (none yet), `checkpoint` or `api`.
    pub from: &'static str,
    pub pods: usize,
    pub mirrors: usize,
    /// New ones that wait for what they refer to, by namespace/name.
    #[serde(rename = "held")]
    pub waiting: Vec<String>,
    /// Pods of the API that this node cannot take, and why.
    pub refused: Vec<String>,
    /// The API's last error; none while it answers.
    pub trouble: Option<String>,
    pub mirror_troubles: Vec<String>,
}

/// The source of the pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PodOrigin {
    Nobody,
    Checkpoint,
    Api,
}

/// Follows the API's pods of this node, and keeps the mirrors of static ones.
pub struct ApiPods {
    client: ApiClient,
    notified: Subscribers,

    from: PodOrigin,
    store: PodStore,
    mirroring: MirrorPods,
    trouble: Option<String>,
    telling: TimerState,
    told_at: Option<Instant>,
    releasing: TimerState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TimerState {
    Off,
    On,
}

impl Actor for ApiPods {
    type Msg = Msg;
    type Snapshot = Snapshot;

    async fn start(&mut self, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        let api = Api::all(self.client.kube(RequestLane::Work));
        let ours = ObjectSelector::fields(format!("spec.nodeName={}", self.store.node()));
        let stream = watch::<Pod>(api, ours).ready_chunks(AT_ONCE).boxed();
        ask(stream, ctx);
        ctx.after(FIRST_TIMEOUT, Msg::Due(PodWatchTimer::FirstAnswerLate));
        Ok(())
    }

    async fn handle(&mut self, msg: Msg, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        match msg {
            Msg::Supplied { uids } => self.supplied(&uids, ctx),
            Msg::Static(statics) => self.fixed(statics, ctx),
            Msg::Node { uid } => self.node(uid, ctx),
            Msg::All { reply } => reply.send(self.store.everything()),
            Msg::Watched(batch) => self.watched(batch, ctx),
            Msg::Resync => self.resync(ctx),
            Msg::Due(PodWatchTimer::FirstAnswerLate) => self.late(ctx),
            Msg::Due(PodWatchTimer::Notify) => {
                self.telling = TimerState::Off;
                self.tell(ctx);
            }
            Msg::Due(PodWatchTimer::Release) => self.release(ctx),
            Msg::Mirrored(end) => self.mirrored(*end, ctx),
            Msg::Due(PodWatchTimer::RetryMirrors) => self.mirror(ctx),
        }
        Ok(())
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot {
            from: match self.from {
                PodOrigin::Nobody => "nobody",
                PodOrigin::Checkpoint => "checkpoint",
                PodOrigin::Api => "api",
            },
            pods: self.store.all().len(),
            mirrors: self.store.mirrors().len(),
            waiting: self.store.waiting(),
            refused: self.store.refused(),
            trouble: self.trouble.clone(),
            mirror_troubles: self.mirroring.troubles(),
        }
    }
}

impl ApiPods {
    /// `remembered` is what the checkpoint holds of the API's pods.
    pub fn new(
        client: ApiClient,
        node: Arc<str>,
        remembered: Vec<Arc<Pod>>,
        notified: PodSubscribers,
    ) -> ApiPods {
        ApiPods {
            client,
            mirroring: MirrorPods::new(Arc::clone(&node), notified.kept.clone()),
            notified: Subscribers::new(notified),
            from: PodOrigin::Nobody,
            store: PodStore::new(node, remembered),
            trouble: None,
            telling: TimerState::Off,
            told_at: None,
            releasing: TimerState::Off,
        }
    }

    fn supplied(&mut self, uids: &BTreeSet<PodUid>, ctx: &mut Context<Msg>) {
        if self.store.supplied(uids) {
            self.tell_now(ctx);
        }
    }

    fn fixed(&mut self, statics: StaticPodSet, ctx: &mut Context<Msg>) {
        self.mirroring.desire(statics);
        self.mirror(ctx);
    }

    fn node(&mut self, uid: Option<String>, ctx: &mut Context<Msg>) {
        self.mirroring.owned_by(uid);
        self.mirror(ctx);
    }

    fn watched(&mut self, batch: WatchBatch, ctx: &mut Context<Msg>) {
        for event in batch.events {
            match event {
                Ok(event) => self.apply(event, ctx),
                Err(trouble) => self.troubled(&trouble, ctx),
            }
        }
        if let Some(stream) = batch.stream {
            ask(stream, ctx);
        }
        self.mirror(ctx);
        self.tell_now(ctx);
    }

    fn apply(&mut self, event: ObjectEvent<Pod>, ctx: &mut Context<Msg>) {
        if let Some(trouble) = self.trouble.take() {
            tracing::info!("pods come from the API server again, after: {trouble}");
        }
        let (now, seen) = (ctx.now(), ctx.timestamp());
        match event {
            ObjectEvent::Listed(pods) => {
                self.from = PodOrigin::Api;
                self.store.list(pods, now, seen);
            }
            ObjectEvent::Applied(pod) => self.store.apply(pod, now, seen),
            ObjectEvent::Deleted(pod) => self.store.delete(&pod),
        }
    }

    fn troubled(&mut self, trouble: &ApiError, ctx: &mut Context<Msg>) {
        let text = trouble.to_string();
        if self.trouble.as_ref() != Some(&text) {
            tracing::warn!("no pods from the API server: {text}");
        }
        self.trouble = Some(text);
        self.late(ctx);
    }

    fn resync(&mut self, ctx: &mut Context<Msg>) {
        self.notified.statuses.forget();
        self.tell(ctx);
    }

    /// Before the first answer of the API the checkpoint is the only source. An empty one proves nothing.
    fn late(&mut self, ctx: &mut Context<Msg>) {
        let remembered = self.store.all();
        if self.from != PodOrigin::Nobody || remembered.is_empty() {
            return;
        }
        self.from = PodOrigin::Checkpoint;
        tracing::warn!(
            "no answer of the API server yet: {} pods of the checkpoint are brought up",
            remembered.len()
        );
        self.tell_now(ctx);
    }

    /// Notifies subscribers of what has changed: at once, unless a notification was sent a moment ago.
    fn tell_now(&mut self, ctx: &mut Context<Msg>) {
        let next = self.told_at.map(|at| at + TOGETHER);
        match next.filter(|next| ctx.now() < *next) {
            None => self.tell(ctx),
            Some(next) => self.tell_soon(next.saturating_duration_since(ctx.now()), ctx),
        }
    }

    fn tell_soon(&mut self, wait: Duration, ctx: &mut Context<Msg>) {
        if self.telling == TimerState::Off {
            self.telling = TimerState::On;
            ctx.after(wait, Msg::Due(PodWatchTimer::Notify));
        }
    }

    /// Sends each set that has changed. A subscriber with a full mailbox gets it later.
    fn tell(&mut self, ctx: &mut Context<Msg>) {
        self.told_at = Some(ctx.now());
        let sent = match self.from {
            PodOrigin::Nobody => return,
            PodOrigin::Checkpoint => self.notified.remembered.tell(&self.store.all()),
            PodOrigin::Api => self.tell_all(),
        };
        if sent.is_err() {
            self.tell_soon(TOLD_AGAIN, ctx);
        }
        if let Some(at) = self.store.next_release()
            && self.releasing == TimerState::Off
        {
            self.releasing = TimerState::On;
            ctx.after(
                at.saturating_duration_since(ctx.now()),
                Msg::Due(PodWatchTimer::Release),
            );
        }
    }

    /// The object manager first: the other subscribers wait for what it supplies.
    fn tell_all(&mut self) -> Result<(), Full> {
        let all = self.store.all();
        let objects = self.notified.objects.tell(&all);
        let desired_pods = self.store.desired_pods();
        let directory = desired_pods.map_or(Ok(()), |desired_pods| {
            self.notified.directory.tell(&desired_pods)
        });
        let statuses = self.notified.statuses.tell(&self.store.shown());
        let alone = self.notified.alone.tell(&all);
        objects.and(directory).and(statuses).and(alone)
    }

    fn release(&mut self, ctx: &mut Context<Msg>) {
        self.releasing = TimerState::Off;
        self.store.release(ctx.now());
        self.tell(ctx);
    }

    /// Begins the due requests about mirrors.
    fn mirror(&mut self, ctx: &mut Context<Msg>) {
        if self.from != PodOrigin::Api {
            return;
        }
        let mirrors = self.store.mirrors();
        for sync_request in self.mirroring.begin(&mirrors, ctx.now()) {
            let client = self.client.kube(RequestLane::Work);
            ctx.run(async move { Msg::Mirrored(Box::new(sync_request.run(client).await)) });
        }
    }

    fn mirrored(&mut self, end: MirrorOutcome, ctx: &mut Context<Msg>) {
        if let Some(gone) = &end.deleted {
            self.store.delete(gone);
        }
        if let Some(made) = end.made.clone() {
            self.store.apply(made, ctx.now(), ctx.timestamp());
        }
        let wait = self.mirroring.ended(&end, ctx.now());
        ctx.after(wait, Msg::Due(PodWatchTimer::RetryMirrors));
        self.tell_now(ctx);
    }
}

/// Waits for the next event of the watch; events that are ready come along.
fn ask(mut stream: PodEventStream, ctx: &mut Context<Msg>) {
    ctx.run(async move {
        let events = stream.next().await;
        let stream = events.is_some().then_some(stream);
        let events = events.unwrap_or_default();
        Msg::Watched(WatchBatch { events, stream })
    });
}

impl fmt::Debug for ApiPods {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pods")
            .field("from", &self.from)
            .finish_non_exhaustive()
    }
}
