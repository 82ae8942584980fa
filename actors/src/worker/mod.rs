//! One pod's worker: makes the runtime match what is desired of the pod, serially, until it is gone.
//!
//! - **Owns** everything that is known of one pod: what was seen of it, its back-offs, its stage.
//! - **Hears** that its desire changed, what PLEG observed, and the reports of its own work.
//! - **Tells** the status keeper its pod's status, the record keeper what must outlive the agent, the
//!   directory when the pod is gone.
//! - **Never** has two pieces of work under way, waits in a handler, or acts on a guess: before it acts
//!   for the first time, and after every interrupted call, it looks at what exists.
//!
//! A state machine: [`Stage::Syncing`] -> [`Stage::Terminating`] -> [`Stage::Terminated`]. The newest
//! desire wins, because it lies in a watch and not in the mailbox.
//!
//! Upstream: pkg/kubelet/pod_workers.go and kubelet.go (SyncPod, SyncTerminatingPod, SyncTerminatedPod),
//! pkg/kubelet/kuberuntime/kuberuntime_manager.go, 1.36. Decisions: `logic::worker`, `logic::status`.

mod advance;
mod again;
mod carry;
mod counted;
mod files;
mod kill;
mod memory;
mod publish;
mod remove;
mod resize;
mod sandbox;
mod start;
mod tell;
#[cfg(test)]
mod tests;
mod volumes;
mod why;
mod words;

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cluster::events::Recorder;
use cluster::status as keeper;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kernel::{Actor, Addr, AskError, Context, Exit, Recipient, Reply, TimerId};
use logic::objects::Objects;
use logic::resize::ResizeState;
use logic::runtime_class::HandlerFeatures;
use logic::seen::Seen;
use logic::types::{ContainerId, Failure, PodUid, RuntimePod, Waiting, Weight, Why};
use serde::Serialize;
use tokio::sync::watch;

use self::again::Begun;
use self::carry::Report;
use self::counted::Counted;
pub(crate) use self::counted::probe as counted_probe;
use self::kill::Endings;
use self::memory::Memory;
use self::resize::resize_key;
use self::tell::Told;
use self::why::Whys;
pub use self::why::{Explanation, Line};
pub(crate) use self::why::{event_type, object};
use crate::directory::{Course, Desired};
use crate::pod_cgroups::PodCgroups;
use crate::runtime::{Runtime, RuntimeError};
use crate::volumes::{self as keeper_of_volumes, NotReleased};
use crate::{directory, images, logs, pleg, prober, records, user_namespaces};

/// Between attempts at what failed for a passing reason: a plugin that restarts, a runtime that is busy.
const SOON: Duration = Duration::from_secs(1);
/// Between attempts at what failed otherwise; upstream's `backOffPeriod`.
const LATER: Duration = Duration::from_secs(10);

/// What a worker is told.
#[derive(Debug, strum::IntoStaticStr)]
pub enum Msg {
    /// Looks at what is desired now.
    Wake,
    /// Joins what the runtime reported, and acts on what is new.
    Observed(Box<pleg::Observed>),
    /// Looks at the runtime again: a relist saw a difference.
    Recheck,
    /// Takes in everything that exists of the pod.
    Fetched(Box<Result<Fetched, RuntimeError>>),
    /// Takes in what came of a plan.
    Carried(Box<Report>),
    /// Takes note of what a probe says of a container instance.
    Probed(Box<prober::Probed>),
    /// Takes in the last words of containers that ended.
    Heard(BTreeMap<ContainerId, String>),
    /// Takes in what came of a wish for the pod's volumes.
    Mounted(Arc<Pod>, Box<volumes::Answer>),
    /// Takes in whether the pod's volumes are gone.
    Released(Result<Result<(), NotReleased>, AskError>),
    /// Takes in what came of removing everything.
    Removed(Result<(), RuntimeError>),
    /// Computes again: a back-off or deadline has passed.
    Retry,
    /// Tells everything again to keepers that lost it.
    Publish,
    /// Answers with the causal line of the pod.
    Why { reply: Reply<Explanation> },
}

/// Whom a worker works with, and by which rules.
#[derive(Debug, Clone)]
pub struct Peers {
    pub runtime: Runtime,
    pub images: Addr<images::Msg>,
    pub statuses: Addr<keeper::Msg>,
    pub records: Addr<records::Msg>,
    pub directory: Addr<directory::Msg>,
    pub prober: Addr<prober::Msg>,
    pub logs: Addr<logs::Msg>,
    pub users: Addr<user_namespaces::Msg>,
    pub volumes: Addr<keeper_of_volumes::Msg>,
    pub cgroups: PodCgroups,
    pub recorder: Recorder,
    pub objects: Arc<dyn Objects>,
    /// Who keeps objects for pods, and may let go what a pod that is over has needed; none where nobody does.
    pub over: Option<Recipient<PodUid>>,
    pub rules: Arc<Rules>,
}

/// The worker's section of the configuration.
#[derive(Debug, Clone)]
pub struct Rules {
    pub policy: logic::worker::Policy,
    pub node: logic::node_policy::NodePolicy,
    /// What the node is and has.
    pub facts: Arc<logic::node::NodeFacts>,
}

/// A first or renewed look at everything that exists of the pod.
#[derive(Debug)]
pub struct Fetched {
    runtime: RuntimePod,
    log_counts: BTreeMap<String, u32>,
    features: HandlerFeatures,
}

/// Where in its life the pod is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Stage {
    /// Made to match its spec.
    Syncing,
    /// Being stopped.
    Terminating,
    /// Nothing runs any more; kept for its status until nobody desires it.
    Terminated,
}

/// Where the worker is.
#[derive(Debug, Serialize)]
pub struct Snapshot {
    pub pod: String,
    pub stage: Stage,
    pub working: Option<&'static str>,
    pub phase: Option<String>,
    pub sandboxes: usize,
    pub containers: usize,
    pub held: Vec<String>,
    #[serde(flatten)]
    pub counts: counted::Shown,
}

/// What the directory wants of the worker, newest first and whatever the mailbox has room for.
#[derive(Debug, Clone)]
pub struct Wish {
    pub desired: watch::Receiver<Desired>,
    /// A message did not fit into the mailbox: what it said is to be looked up.
    pub missed: Rc<Cell<bool>>,
    /// The rules as they are now: the node may get other addresses.
    pub rules: watch::Receiver<Arc<Rules>>,
}

/// One pod's worker.
#[derive(Debug)]
pub struct Worker {
    uid: PodUid,
    wish: Wish,
    peers: Peers,

    stage: Stage,
    /// What is under way; one thing at a time.
    working: Option<&'static str>,
    begun: Begun,
    /// The picture is missing or doubted: look before acting.
    stale: bool,
    seen: Option<Seen>,
    memory: Memory,
    log_counts: BTreeMap<String, u32>,
    /// Why containers stay down by the last plan; the status shows it.
    waiting: BTreeMap<String, Waiting>,
    /// Why a container could not be started, until it is.
    problems: BTreeMap<String, Waiting>,
    /// What is not tried again before its time: a container's name, or [`SANDBOX`].
    held: BTreeMap<String, Instant>,
    failure: Option<Failure>,
    /// The grace of a pod that is failed by decree.
    grace: Option<Duration>,
    status: Option<Arc<PodStatus>>,
    /// What was said of the pod before this worker, until the first status has gone on from it.
    earlier: Option<Box<PodStatus>>,
    resize: ResizeState,
    volumes: volumes::Volumes,
    /// What the runtime can do with the pod, where that shows in its status.
    features: HandlerFeatures,
    /// Containers that are being started and whose postStart hook must end before they show as running.
    hooked: BTreeSet<String>,
    /// Endings of containers under way.
    endings: Endings,
    /// Ended containers whose last words are being read: the status waits for them.
    hearing: BTreeSet<ContainerId>,
    told: Told,
    whys: Whys,
    retry: Option<TimerId>,
    counted: Counted,
}

/// The key of the sandbox among the held.
const SANDBOX: &str = "";
/// The key of kills, stops and removals among the held.
const ENDING: &str = "\u{0}ending";

impl Actor for Worker {
    type Msg = Msg;
    type Snapshot = Snapshot;

    async fn start(&mut self, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        self.memory.load(&self.uid, &self.peers.records).await;
        self.advance(ctx)
    }

    async fn handle(&mut self, msg: Msg, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        match msg {
            Msg::Wake => self.advance(ctx),
            Msg::Observed(observed) => self.observed(*observed, ctx),
            Msg::Recheck => self.recheck(ctx),
            Msg::Fetched(answer) => self.fetched(*answer, ctx),
            Msg::Carried(report) => self.carried(*report, ctx),
            Msg::Heard(words) => self.heard(words, ctx),
            Msg::Probed(probed) => self.probed(*probed, ctx),
            Msg::Mounted(pod, answer) => {
                self.take_volumes(&pod, *answer, ctx);
                self.advance(ctx)
            }
            Msg::Released(answer) => {
                self.take_release(answer, ctx);
                self.advance(ctx)
            }
            Msg::Removed(result) => self.removed(result, ctx),
            Msg::Retry => self.advance(ctx),
            Msg::Publish => self.publish_again(ctx),
            Msg::Why { reply } => self.explain(reply).await,
        }
    }

    fn snapshot(&self) -> Snapshot {
        let runtime = self.seen.as_ref().map(Seen::pod);
        Snapshot {
            pod: self.pod_name(),
            stage: self.stage,
            working: self.working,
            phase: self.status.as_ref().and_then(|status| status.phase.clone()),
            sandboxes: runtime.map_or(0, |pod| pod.sandboxes.len()),
            containers: runtime.map_or(0, |pod| pod.containers.len()),
            held: self.held.keys().cloned().collect(),
            counts: self.shown_counts(),
        }
    }
}

impl Worker {
    pub fn new(uid: PodUid, wish: Wish, peers: Peers) -> Self {
        Worker {
            uid,
            wish,
            peers,
            stage: Stage::Syncing,
            working: None,
            begun: Begun::default(),
            stale: true,
            seen: None,
            memory: Memory::default(),
            log_counts: BTreeMap::new(),
            waiting: BTreeMap::new(),
            problems: BTreeMap::new(),
            held: BTreeMap::new(),
            failure: None,
            grace: None,
            status: None,
            earlier: None,
            resize: ResizeState::default(),
            volumes: volumes::Volumes::default(),
            features: HandlerFeatures::default(),
            hooked: BTreeSet::new(),
            endings: Endings::new(),
            hearing: BTreeSet::new(),
            told: Told::default(),
            whys: Whys::default(),
            retry: None,
            counted: Counted::default(),
        }
    }

    fn observed(&mut self, observed: pleg::Observed, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        // Before the first look is back this is a part of the picture; nothing is planned on it yet.
        let seen = self.seen.get_or_insert_default();
        let removed = observed.removed.is_some_and(|id| seen.remove(&id));
        let joined = seen.join(observed.pod);
        if removed || joined {
            let pod = self.wish.desired.borrow().pod.clone();
            counted::ends(&pod, seen.pod(), &self.memory.record.exits);
            self.memory.note_exits(seen.pod(), timestamp(ctx));
            self.hear(ctx);
            self.advance(ctx)?;
        }
        Ok(())
    }

    fn recheck(&mut self, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        self.stale = true;
        self.advance(ctx)
    }

    /// The pod is to end: by whom it was decreed shows in its status.
    fn decree(&mut self, desired: &Desired, ctx: &mut Context<Msg>) {
        self.stage = Stage::Terminating;
        let Course::Fail { failure, grace } = &desired.course else {
            return;
        };
        let why = Why {
            object: None,
            weight: Weight::Warning,
            reason: failure.reason.clone(),
            message: logic::admission::event_message(failure).to_owned(),
        };
        let pod = desired.pod.clone();
        self.whys
            .tell(&pod, &[why], timestamp(ctx), &self.peers.recorder);
        (self.failure, self.grace) = (Some(failure.clone()), *grace);
    }

    fn fetched(
        &mut self,
        answer: Result<Fetched, RuntimeError>,
        ctx: &mut Context<Msg>,
    ) -> Result<(), Exit> {
        self.working = None;
        match answer {
            Ok(fetched) => {
                self.log_counts = fetched.log_counts;
                self.features = fetched.features;
                self.take_in(fetched.runtime, ctx);
                self.advance(ctx)
            }
            Err(error) => {
                tracing::warn!(pod = %self.pod_name(), "cannot look at the pod: {}", error.told());
                self.stale = true;
                self.retry_after(SOON, ctx);
                Ok(())
            }
        }
    }

    fn carried(&mut self, report: Report, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        self.working = None;
        let now = ctx.now();
        self.counted.end(now);
        for (name, problem) in report.problems {
            self.held.insert(name.clone(), now + problem.again_after);
            if let Some(waiting) = problem.waiting {
                self.problems.insert(name, waiting);
            }
        }
        for (name, resources) in report.started {
            self.problems.remove(&name);
            self.problems.remove(&resize_key(&name));
            self.memory.actuate(name, resources);
        }
        self.endings = report.endings;
        self.hooked.clear();
        match report.runtime {
            Ok(runtime) => self.take_in(runtime, ctx),
            Err(error) => {
                tracing::warn!(pod = %self.pod_name(), "cannot look at the pod: {}", error.told());
                self.stale = true;
                self.retry_after(SOON, ctx);
                return Ok(());
            }
        }
        self.advance(ctx)
    }

    fn probed(&mut self, probed: prober::Probed, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        let exists = |seen: &Seen| seen.pod().containers.iter().any(|c| c.id == probed.id);
        if !self.seen.as_ref().is_some_and(exists) {
            return Ok(());
        }
        let why = words::of_probe(&probed);
        self.whys.note(&why, timestamp(ctx));
        self.memory.record.health.insert(probed.id, probed.health);
        self.advance(ctx)
    }

    fn heard(
        &mut self,
        words: BTreeMap<ContainerId, String>,
        ctx: &mut Context<Msg>,
    ) -> Result<(), Exit> {
        for (id, words) in words {
            self.hearing.remove(&id);
            self.memory.record.last_words.insert(id, words);
        }
        self.advance(ctx)
    }

    fn removed(
        &mut self,
        result: Result<(), RuntimeError>,
        ctx: &mut Context<Msg>,
    ) -> Result<(), Exit> {
        self.working = None;
        if let Err(error) = result {
            tracing::warn!(pod = %self.pod_name(), "cannot remove what is left of the pod: {}", error.told());
            self.stale = true;
            self.retry_after(SOON, ctx);
            return Ok(());
        }
        self.counted.end(ctx.now());
        counted::forget_probes(&self.wish.desired.borrow().pod);
        // Each of these keepers has room for every pod; what is told here is only tidying up.
        let uid = &self.uid;
        let told = [
            self.peers
                .records
                .tell(records::Msg::Forget { uid: uid.clone() })
                .is_ok(),
            self.peers
                .statuses
                .tell(keeper::Msg::Forget { uid: uid.clone() })
                .is_ok(),
            self.peers
                .directory
                .tell(directory::Msg::Finished { uid: uid.clone() })
                .is_ok(),
        ];
        if told.contains(&false) {
            self.retry_after(SOON, ctx);
            return Ok(());
        }
        Err(Exit::Done)
    }

    fn take_in(&mut self, runtime: RuntimePod, ctx: &mut Context<Msg>) {
        let seen = match &mut self.seen {
            Some(seen) => {
                seen.replace(runtime);
                seen
            }
            None => self.seen.insert(Seen::new(runtime)),
        };
        let pod = self.wish.desired.borrow().pod.clone();
        counted::ends(&pod, seen.pod(), &self.memory.record.exits);
        self.memory.note_exits(seen.pod(), timestamp(ctx));
        self.memory.forget_gone(seen.pod());
        let may_run = |id: &ContainerId| {
            let mut all = seen.pod().containers.iter();
            all.any(|container| container.id == *id && container.may_run())
        };
        self.endings.retain(|id, _| may_run(id));
        self.hear(ctx);
        if self.status.is_none() {
            self.begin(ctx);
        }
    }

    fn publish_again(&mut self, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        self.publish_now();
        self.forget_told();
        self.volumes.doubt();
        self.advance(ctx)
    }

    async fn explain(&self, reply: Reply<Explanation>) -> Result<(), Exit> {
        let events = self.peers.recorder.about(self.uid.as_str()).await;
        reply.send(Explanation {
            pod: self.pod_name(),
            stage: format!("{:?}", self.stage),
            phase: self
                .status
                .as_ref()
                .and_then(|status| status.phase.clone())
                .unwrap_or_default(),
            containers: self
                .status
                .as_deref()
                .map(why::containers)
                .unwrap_or_default(),
            lines: self.whys.lines_with(events),
        });
        Ok(())
    }

    fn pod_name(&self) -> String {
        let desired = self.wish.desired.borrow();
        let metadata = &desired.pod.metadata;
        let namespace = metadata.namespace.as_deref().unwrap_or("default");
        format!(
            "{namespace}/{}",
            metadata.name.as_deref().unwrap_or_default()
        )
    }
}

/// The context's wall clock, as the API writes time.
fn timestamp(ctx: &Context<Msg>) -> Timestamp {
    Timestamp::try_from(ctx.wall()).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// The wall clock, for what is told between messages.
fn timestamp_now() -> Timestamp {
    Timestamp::try_from(kernel::wall()).unwrap_or(Timestamp::UNIX_EPOCH)
}
