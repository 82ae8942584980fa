//! One pod's worker: makes the runtime match the pod's goal, serially, until the pod is gone.
//!
//! - **Owns** the state of one pod: its last runtime state, its back-offs, its stage.
//! - **Hears** that its goal changed, what PLEG observed, and the results of its own tasks.
//! - **Tells** the status manager its pod's status, the checkpoint manager what must outlive the agent, the
//!   pod manager when the pod is gone.
//! - **Never** has two operations running, waits in a handler, or acts on a guess: before its first
//!   action, and after every interrupted call, it fetches the pod from the runtime.
//!
//! A state machine ([`PodWorkerState`]): `Syncing` -> `Terminating` -> `Terminated`. The newest
//! goal wins, because it is in a watch and not in the mailbox.
//!
//! Upstream: pkg/kubelet/pod_workers.go and kubelet.go (SyncPod, SyncTerminatingPod, SyncTerminatedPod),
//! pkg/kubelet/kuberuntime/kuberuntime_manager.go, 1.36. Decisions: `logic_pods::pod_actions`, `logic_pods::status`.

mod checkpoint;
mod context;
mod executor;
mod goal;
mod history;
mod metrics;
mod mounts;
mod notify;
mod operation;
mod resize;
mod retries;
mod status;
mod termination_message;
#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clients::runtime::RuntimeClient;
use kernel::watch;
use kernel::{Actor, Addr, Context, Exit, Recipient, Reply};
use logic_api::objects::Objects;
use logic_api::types::{ContainerId, EventLevel, HistoryEvent, PodFailure, PodUid, RuntimePod};
use logic_pods::PodWorkerConfig;
use logic_pods::runtime::runtime_class::HandlerFeatures;
use logic_pods::runtime::runtime_state::PodRuntimeState;
use serde::Serialize;
use state::area::StateAddrs;
use state::assignments::Assignments;
use state::events::Recorder;

use self::checkpoint::PodCheckpoint;
pub(crate) use self::executor::files::remove_log;
pub use self::goal::{Lifecycle, PodGoal};
use self::history::PodHistory;
pub use self::history::{Explanation, HistoryLine};
use self::metrics::WorkerMetrics;
pub use self::notify::WorkerReport;
pub use self::operation::Activity;
use self::operation::CurrentOperation;
pub use self::operation::completion::WorkerCompletion;
use self::operation::pins::ContainerPins;
pub use self::operation::pins::Pinned;
use self::retries::Retries;
use self::status::PublishedStatus;
use crate::cgroups::pod_cgroups::PodCgroups;
use crate::pod_manager::claims::PodClaims;
use crate::pod_manager::devices::DevicePlugins;
use crate::runtime::handover::RuntimeGate;
use crate::{images, logs, prober};

/// Before retrying after a transient failure: a plugin that restarts, a runtime that is busy.
const RETRY_PERIOD: Duration = Duration::from_secs(1);
/// Before retrying after any other failure; upstream's `backOffPeriod`.
const RETRY_BACKOFF: Duration = Duration::from_secs(10);

/// Messages of the pod worker.
#[derive(Debug, strum::IntoStaticStr)]
pub enum Msg {
    /// Reads the goal.
    Wake,
    /// Merges what the runtime reported, and acts on changes.
    Observed(Box<clients::runtime::RuntimePodUpdate>),
    /// Fetches the pod again: a relist found a difference.
    Recheck,
    /// Takes the result of a task of the worker's own.
    Completed(Box<WorkerCompletion>),
    /// Takes a changed probe result of a container instance.
    Probed(Box<prober::ProbeUpdate>),
    /// Syncs again: a back-off or deadline has passed.
    Retry,
    /// Has a container moved again that the runtime would not move to its CPUs.
    RetryPin { id: ContainerId },
    /// Sends everything again to managers that restarted.
    Resync,
    /// Answers with the history of the pod.
    Why { reply: Reply<Explanation> },
}

/// The actors and clients that a worker works with, and its rules.
#[derive(Debug, Clone)]
pub struct Peers {
    pub runtime: RuntimeClient,
    pub images: Addr<images::Msg>,
    /// The status manager, the checkpoint manager and the user namespace manager.
    pub state: StateAddrs,
    pub pod_manager: Recipient<WorkerReport>,
    pub prober: Addr<prober::Msg>,
    pub logs: Addr<logs::Msg>,
    pub volumes: Addr<volumes::Msg>,
    pub cgroups: PodCgroups,
    /// Shared by all workers of the node: which runtime it is, and how many starts it bears.
    pub gate: RuntimeGate,
    pub recorder: Recorder,
    pub objects: Arc<dyn Objects>,
    /// The object manager, which may drop the objects of a pod that is over; none on a node without one.
    pub over: Option<Recipient<PodUid>>,
    pub rules: Arc<PodWorkerConfig>,
    pub assignments: Assignments,
    pub devices: DevicePlugins,
    pub claims: PodClaims,
}

/// The state of the pod's worker, as upstream's `PodWorkerState`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum PodWorkerState {
    /// The pod is made to match its spec.
    Syncing,
    /// The pod's containers are being stopped.
    Terminating,
    /// Nothing runs any more; the worker stays for the status until no source desires the pod.
    Terminated,
}

/// The worker's state, and its current operation.
#[derive(Debug, Serialize)]
pub struct Snapshot {
    pub pod: String,
    pub stage: PodWorkerState,
    pub working: Option<Activity>,
    pub phase: Option<String>,
    pub sandboxes: usize,
    pub containers: usize,
    pub held: Vec<String>,
    #[serde(flatten)]
    pub counts: metrics::WorkerCounts,
}

/// What the pod manager changes for the worker: always the newest, whether or not the mailbox has room.
#[derive(Debug, Clone)]
pub struct PodUpdates {
    pub goal: watch::Receiver<PodGoal>,
    /// Set when a message did not fit into the mailbox: the worker must fetch the state itself.
    pub missed: Rc<Cell<bool>>,
    /// The current rules: the node's addresses may change.
    pub rules: watch::Receiver<Arc<PodWorkerConfig>>,
}

/// One pod's worker.
#[derive(Debug)]
pub struct PodWorker {
    uid: PodUid,
    updates: PodUpdates,
    peers: Peers,
    sync_status: PodSyncStatus,
    observed: ObservedState,
    checkpoint: PodCheckpoint,
    operation: CurrentOperation,
    retries: Retries,
    pins: ContainerPins,
    volumes: mounts::WorkerVolumes,
    published: PublishedStatus,
    history: PodHistory,
    metrics: WorkerMetrics,
}

/// How far the pod's life has come, and why it ends; upstream's `podSyncStatus`.
#[derive(Debug)]
struct PodSyncStatus {
    state: PodWorkerState,
    /// When this worker began; none before.
    since: Option<Instant>,
    failure: Option<PodFailure>,
    /// The grace period of a failed pod; none for the pod's own.
    grace: Option<Duration>,
}

/// The observed state of the pod.
#[derive(Debug)]
struct ObservedState {
    /// Whether the runtime state is missing or doubtful, and must be fetched before acting.
    stale: bool,
    runtime_state: Option<PodRuntimeState>,
    /// Whether the runtime itself had something of the pod at the last whole look: the state has what an earlier runtime had
    /// as well.
    is_in_runtime: bool,
    log_counts: BTreeMap<String, u32>,
    /// The features of the pod's runtime handler, as far as its status depends on them.
    features: HandlerFeatures,
    /// Ended containers whose termination messages are being read: the status waits for them.
    pending_messages: BTreeSet<ContainerId>,
}

impl ObservedState {
    fn pod(&self) -> Option<&RuntimePod> {
        self.runtime_state.as_ref().map(PodRuntimeState::pod)
    }

    /// The names of the containers that have an instance.
    fn container_names(&self) -> BTreeSet<String> {
        let containers = self.pod().into_iter().flat_map(|pod| &pod.containers);
        containers.map(|container| container.name.clone()).collect()
    }

    /// Has the pod of a worker in this state fetched before the next plan if one of these containers has no instance any
    /// more: its restart count follows from the names of its logs then, which are read with a fetch.
    fn note_lost(&mut self, before: &BTreeSet<String>, state: PodWorkerState) {
        let is_lost = || !before.is_subset(&self.container_names());
        self.stale |= state == PodWorkerState::Syncing && is_lost();
    }
}

impl Actor for PodWorker {
    type Msg = Msg;
    type Snapshot = Snapshot;

    async fn start(&mut self, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        self.checkpoint
            .load(&self.uid, &self.peers.state.checkpoints)
            .await;
        self.sync_status.since = Some(ctx.now());
        self.reconcile(ctx)
    }

    async fn handle(&mut self, msg: Msg, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        match msg {
            Msg::Wake => self.reconcile(ctx),
            Msg::Observed(observed) => self.observed(*observed, ctx),
            Msg::Recheck => self.recheck(ctx),
            Msg::Completed(completion) => self.completed(*completion, ctx),
            Msg::Probed(probed) => self.probed(*probed, ctx),
            Msg::Retry => self.reconcile(ctx),
            Msg::RetryPin { id } => {
                self.retry_pin(&id);
                self.reconcile(ctx)
            }
            Msg::Resync => self.resync(ctx),
            Msg::Why { reply } => self.explain(reply).await,
        }
    }

    fn snapshot(&self) -> Snapshot {
        let runtime = self.observed.pod();
        Snapshot {
            pod: self.pod_name(),
            stage: self.sync_status.state,
            working: self.operation.activity,
            phase: self
                .published
                .status
                .as_ref()
                .and_then(|status| status.phase.clone()),
            sandboxes: runtime.map_or(0, |pod| pod.sandboxes.len()),
            containers: runtime.map_or(0, |pod| pod.containers.len()),
            held: self.retries.keys(),
            counts: self.worker_counts(),
        }
    }
}

impl PodWorker {
    pub fn new(uid: PodUid, updates: PodUpdates, peers: Peers) -> Self {
        PodWorker {
            uid,
            updates,
            peers,
            sync_status: PodSyncStatus {
                state: PodWorkerState::Syncing,
                since: None,
                failure: None,
                grace: None,
            },
            observed: ObservedState {
                stale: true,
                runtime_state: None,
                log_counts: BTreeMap::new(),
                features: HandlerFeatures::default(),
                is_in_runtime: false,
                pending_messages: BTreeSet::new(),
            },
            checkpoint: PodCheckpoint::default(),
            operation: CurrentOperation::default(),
            retries: Retries::default(),
            pins: ContainerPins::default(),
            volumes: mounts::WorkerVolumes::default(),
            published: PublishedStatus::default(),
            history: PodHistory::default(),
            metrics: WorkerMetrics::default(),
        }
    }

    fn observed(
        &mut self,
        observed: clients::runtime::RuntimePodUpdate,
        ctx: &mut Context<Msg>,
    ) -> Result<(), Exit> {
        let before = self.observed.container_names();
        // Before the first fetch this is a part of the state, on which no plan is based yet.
        let seen = self.observed.runtime_state.get_or_insert_default();
        let removed = observed.removed.is_some_and(|id| seen.remove(&id));
        let joined = seen.merge(observed.pod);
        if removed || joined {
            let pod = self.updates.goal.borrow().allocated.clone();
            metrics::ends(&pod, seen.pod(), &self.checkpoint.record.exits);
            self.checkpoint.note_made(seen.pod());
            self.checkpoint.note_exits(seen.pod(), ctx.timestamp());
            self.observed.note_lost(&before, self.sync_status.state);
            self.read_termination_messages(ctx);
            self.reconcile(ctx)?;
        }
        Ok(())
    }

    fn recheck(&mut self, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        self.observed.stale = true;
        self.reconcile(ctx)
    }

    /// Ends a pod as failed; the failure's reason shows in its status.
    fn fail_by_decree(&mut self, desired: &PodGoal, ctx: &mut Context<Msg>) {
        self.sync_status.state = PodWorkerState::Terminating;
        let Lifecycle::Fail { failure, grace } = &desired.lifecycle else {
            return;
        };
        let why = HistoryEvent {
            object: None,
            weight: EventLevel::Warning,
            reason: failure.reason.clone(),
            message: logic_pods::admission::event_message(failure).to_owned(),
        };
        let detail = failure.detail.as_ref().map(|detail| HistoryEvent {
            weight: EventLevel::Note,
            message: detail.clone(),
            ..why.clone()
        });
        let whys: Vec<HistoryEvent> = [why].into_iter().chain(detail).collect();
        let recorder = self.peers.recorder.annotated(&failure.annotations);
        self.history
            .tell(&desired.allocated, &whys, ctx.timestamp(), &recorder);
        (self.sync_status.failure, self.sync_status.grace) = (Some(failure.clone()), *grace);
    }

    fn probed(&mut self, probed: prober::ProbeUpdate, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        let exists =
            |seen: &PodRuntimeState| seen.pod().containers.iter().any(|c| c.id == probed.id);
        if !self.observed.runtime_state.as_ref().is_some_and(exists) {
            return Ok(());
        }
        let why = termination_message::probe_why(&probed);
        self.history.note(&why, ctx.timestamp());
        self.checkpoint
            .record
            .health
            .insert(probed.id, probed.health);
        self.reconcile(ctx)
    }

    fn resync(&mut self, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        self.publish_now();
        self.forget_notified();
        self.volumes.invalidate();
        self.reconcile(ctx)
    }

    async fn explain(&self, reply: Reply<Explanation>) -> Result<(), Exit> {
        let events = self.peers.recorder.about(self.uid.as_str()).await;
        reply.send(Explanation {
            pod: self.pod_name(),
            stage: match &self.operation.removal.stuck {
                Some(why) => format!("{:?}: {why}", self.sync_status.state),
                None => format!("{:?}", self.sync_status.state),
            },
            runtime: self.peers.gate.describe(),
            phase: self
                .published
                .status
                .as_ref()
                .and_then(|status| status.phase.clone())
                .unwrap_or_default(),
            containers: self
                .published
                .status
                .as_deref()
                .map(history::containers)
                .unwrap_or_default(),
            lines: self.history.merge_events(events),
        });
        Ok(())
    }

    fn pod_name(&self) -> String {
        let desired = self.updates.goal.borrow();
        let metadata = &desired.allocated.metadata;
        let namespace = metadata.namespace.as_deref().unwrap_or("default");
        format!(
            "{namespace}/{}",
            metadata.name.as_deref().unwrap_or_default()
        )
    }
}
