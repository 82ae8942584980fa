//! Desired and actual mounts of all pods.
//!
//! - **Owns** which pods desire which volumes, what is mounted, and the running operations.
//! - **Hears** workers' requests to mount and release a pod's volumes, the storage plugins' answers and events of
//!   their drivers, changes of objects, and which pods the pod manager knows.
//! - **Tells** the recorder what failed, and the storage plugins' hosts which process is stuck.
//! - **Never** runs two operations on one volume, unmounts a volume that a pod may use, or touches a volume's path: only
//!   storage plugins do.
//!
//! Upstream: pkg/kubelet/volumemanager and pkg/volume/util/operationexecutor (1.36). Decisions: `logic_volumes`.

pub mod area;
mod csi_limits;
mod drivers;
mod executor;
mod in_use;
mod measurements;
mod metrics;
mod mount_requests;
mod resolving;
mod subpaths;
#[cfg(test)]
mod tests;
mod view;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clients::storage::{DriverEvent, Storage, StorageCapabilities, StorageError, StoragePlugin};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kernel::{Actor, Addr, Context, Exit, Recipient, Reply, TimerId};
use logic_api::env_file::{EnvFilePath, EnvFiles};
use logic_api::objects::StaticObjects;
use logic_api::types::PodUid;
use logic_api::volume_stats::VolumeMetrics;
use logic_pods::PodWorkerConfig;
use logic_volumes::reconciler::{ResolveTrigger, StateOfWorld};
use logic_volumes::resolve::SeLinuxMountPolicy;
use logic_volumes::{MountedVolumes, ReconstructedVolume, Subpath, VolumeId};
use serde::{Deserialize, Serialize};
use state::events::{EventType, InvolvedObject, Recorder};
use state::objects::ObjectStore;
use state::status::PodResync;

use self::csi_limits::LimitRefreshes;
use self::drivers::DriverRegistry;
use self::executor::{FinishedOperation, StuckProcess, StuckVolumes};
pub use self::in_use::ApiPeers;
use self::in_use::{ExpandingClaim, InUseReporter};
use self::measurements::VolumeMeasurements;
use self::mount_requests::{PodMountRequest, ReleaseWaiter};

/// Room for a request from every pod at once, and for the result of every operation.
pub const MAILBOX: usize = 4096;

/// Messages of the volume manager.
#[derive(Debug, strum::IntoStaticStr)]
pub enum Msg {
    /// Mounts a pod's volumes as its definition has them now; answers when all are mounted, or at the deadline
    /// with those that are not. A later request for the same pod answers this one with `Superseded`.
    Mount {
        pod: Arc<Pod>,
        within: Duration,
        reply: Reply<Result<MountedVolumes, NotMounted>>,
    },
    /// Unmounts the volumes of a pod of which nothing runs any more; answers when they are gone, or at the deadline
    /// with those that are not. Unmounting goes on then.
    Release {
        uid: PodUid,
        within: Duration,
        reply: Reply<Result<(), NotReleased>>,
    },
    /// Binds paths within a pod's mounted volumes for a container; answers with the bound path of each by index.
    Bind {
        uid: PodUid,
        container: String,
        subpaths: Vec<Subpath>,
        reply: Reply<Result<BTreeMap<u32, PathBuf>, SubpathBindError>>,
    },
    /// Reads files of a pod's mounted volumes; answers with those that could be read.
    Read {
        uid: PodUid,
        files: Vec<EnvFilePath>,
        reply: Reply<EnvFiles>,
    },
    /// Sets which pods there are: volumes of any other are left over and removed.
    Pods(BTreeSet<PodUid>),
    /// Answers with the view for operators.
    View { reply: Reply<VolumesView> },
    /// Answers with the last measurements, by pod and the pod's name of the volume.
    Stats {
        reply: Reply<BTreeMap<PodUid, BTreeMap<String, VolumeMetrics>>>,
    },
    /// Mounts volumes that waited for it: the API server has these in the status as in use.
    Reported(BTreeSet<VolumeId>),
    /// Reports everything for the API server again: the actor that passes it on restarted.
    Resync,
    /// Reads the node object's labels, which drivers' topology must match and some volumes depend on.
    NodeChanged,
    /// Queues the pods whose volumes depend on a changed object.
    ObjectsChanged,
    /// Resolves the next queued pods.
    Resolve,
    /// Resolves a pod's volumes again: a token must be renewed, or the sync period has passed.
    ResyncPod { uid: PodUid },
    /// Takes a plugin's capabilities and volumes.
    Listed(StoragePlugin, Box<Result<PluginListing, StorageError>>),
    /// Takes the pods that have folders on the node.
    Folders(Vec<PodUid>),
    /// Takes an event of a plugin's drivers; none: the stream ended.
    Backends(StoragePlugin, Option<DriverEvent>),
    /// Takes the result of an operation.
    OperationFinished(Box<FinishedOperation>),
    /// Ends a piece of work within a pod's volumes; replaces the plugin processes that got stuck over it.
    AccessEnded {
        uid: PodUid,
        worn: Vec<StuckProcess>,
    },
    /// Retries what was stuck in a plugin's process that has ended.
    ProcessReplaced(StoragePlugin, u64),
    /// Plans again: a delay has passed.
    Wake,
    /// Answers a request whose deadline has passed.
    TimedOut { uid: PodUid, turn: u64 },
    /// Asks a driver again how many volumes it takes on this node: its period has passed.
    RefreshLimits { driver: String },
    /// Ends that request; the limit itself comes as an event of the driver.
    LimitsRefreshed {
        driver: String,
        answer: Result<(), StorageError>,
    },
    /// Measures the due volumes.
    Measure,
    /// Takes the result of a measurement.
    Measured(Box<measurements::MeasurementResult>),
}

/// The first answers of a plugin: its capabilities and its volumes.
#[derive(Debug)]
pub struct PluginListing {
    abilities: Vec<(String, StorageCapabilities)>,
    found: Vec<ReconstructedVolume>,
}

/// The volume manager's section of the configuration.
#[derive(Debug, Clone)]
pub struct Policy {
    /// Between two syncs of a volume without a change; upstream's sync period.
    pub resync: Duration,
    /// Between two measurements of one volume; none: volumes are not measured (`volumeStatsAggPeriod`).
    pub stats: Option<Duration>,
    pub selinux: SeLinuxMountPolicy,
}

/// The actors and clients that the volume manager works with.
#[derive(Debug, Clone)]
pub struct Peers {
    pub storage: Storage,
    /// The storage plugins' hosts, by the plugin's name.
    pub hosts: BTreeMap<String, Addr<plugin_host::Msg>>,
    pub objects: ObjectStore,
    /// Has every worker send its pod's status again: the pod manager.
    pub resync: Recipient<PodResync>,
    pub recorder: Recorder,
    pub rules: Arc<PodWorkerConfig>,
    /// The actors that report to the API server; none on a node without one.
    pub cluster: Option<ApiPeers>,
}

/// Counts of pods and operations, drivers, and stuck volumes.
#[derive(Debug, Serialize)]
pub struct Snapshot {
    pub pods: usize,
    pub running: usize,
    pub backends: Vec<String>,
    pub stuck: Vec<String>,
    pub in_use: usize,
}

/// The volume manager.
#[derive(Debug)]
pub struct VolumeManager {
    policy: Policy,
    peers: Peers,

    world: StateOfWorld,
    pods: BTreeMap<PodUid, PodMountRequest>,
    releasing: BTreeMap<PodUid, ReleaseWaiter>,
    drivers: DriverRegistry,
    /// The objects with which pods were resolved last.
    objects: Arc<StaticObjects>,
    /// Pods to resolve again.
    stale: BTreeSet<PodUid>,
    /// Plugins' processes with a stuck thread that have not ended yet, with the volumes they are stuck over.
    worn: BTreeMap<(StoragePlugin, u64), StuckVolumes>,
    measures: VolumeMeasurements,
    inquiries: LimitRefreshes,
    reporting: InUseReporter,
    /// Claims whose volumes are being expanded.
    growing: BTreeMap<VolumeId, ExpandingClaim>,
    turn: u64,
    wake: Option<(Instant, TimerId)>,
}

impl Actor for VolumeManager {
    type Msg = Msg;
    type Snapshot = Snapshot;

    /// A restarted manager begins empty: the plugins list their volumes, and the workers repeat their requests.
    async fn start(&mut self, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        for plugin in StoragePlugin::ALL {
            self.ask_plugin(plugin, Duration::ZERO, ctx);
        }
        self.follow(Duration::ZERO, ctx);
        self.look_for_folders(ctx);
        self.await_objects(ctx);
        self.node_changed(ctx);
        self.measure_later(ctx);
        if let Err(full) = self.peers.resync.tell(PodResync) {
            tracing::warn!("the workers are not asked to tell again: {full}");
        }
        Ok(())
    }

    async fn handle(&mut self, msg: Msg, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        match msg {
            Msg::Mount { pod, within, reply } => self.wanted(pod, within, reply, ctx),
            Msg::Release { uid, within, reply } => self.released(uid, within, reply, ctx),
            Msg::Bind {
                uid,
                container,
                subpaths,
                reply,
            } => self.bind(uid, container, subpaths, reply, ctx),
            Msg::Read { uid, files, reply } => self.read(uid, files, reply, ctx),
            Msg::Pods(known) => self.known(known, ctx),
            Msg::View { reply } => reply.send(self.view()),
            Msg::Stats { reply } => reply.send(self.stats()),
            Msg::Reported(volumes) => self.reported(volumes),
            Msg::Resync => self.resync(),
            Msg::NodeChanged => self.node_changed(ctx),
            Msg::ObjectsChanged => self.await_objects(ctx),
            Msg::Resolve => self.resolve_some(ctx),
            Msg::ResyncPod { uid } => self.again(&uid, ctx),
            Msg::Listed(plugin, answer) => self.listed(plugin, *answer, ctx),
            Msg::Folders(uids) => self.world.folders(uids),
            Msg::Backends(_, news) => self.backend_news(news, ctx),
            Msg::OperationFinished(ended) => self.ended(*ended, ctx),
            Msg::AccessEnded { uid, worn } => self.left(&uid, worn, ctx),
            Msg::ProcessReplaced(plugin, generation) => self.buried(plugin, generation),
            Msg::Wake => self.wake = None,
            Msg::TimedOut { uid, turn } => self.late(&uid, turn),
            Msg::RefreshLimits { driver } => self.inquire(driver, ctx),
            Msg::LimitsRefreshed { driver, answer } => self.inquired(&driver, answer, ctx),
            Msg::Measure => self.measure(ctx),
            Msg::Measured(measured) => self.measured(*measured, ctx),
        }
        self.settle(ctx);
        Ok(())
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot {
            pods: self.pods.len(),
            running: self.world.running(),
            backends: self.drivers.names(),
            stuck: self.stuck(),
            in_use: self.reporting.in_use().len(),
        }
    }
}

impl VolumeManager {
    pub fn new(policy: Policy, peers: Peers) -> Self {
        VolumeManager {
            world: StateOfWorld::new(&peers.rules.node.node_name),
            objects: peers.objects.snapshot(),
            policy,
            peers,
            pods: BTreeMap::new(),
            releasing: BTreeMap::new(),
            drivers: DriverRegistry::default(),
            stale: BTreeSet::new(),
            worn: BTreeMap::new(),
            measures: VolumeMeasurements::default(),
            inquiries: LimitRefreshes::default(),
            reporting: InUseReporter::default(),
            growing: BTreeMap::new(),
            turn: 0,
            wake: None,
        }
    }

    /// Begins planned operations, sends reports and events, and answers the requests that are done.
    fn settle(&mut self, ctx: &mut Context<Msg>) {
        let freed: Vec<PodUid> = self.world.take_unblocked_pods().into_iter().collect();
        self.resolve_all(&freed, ResolveTrigger::Resync, ctx);
        self.report_in_use();
        let plan = self.world.plan(ctx.now());
        for task in plan.tasks {
            self.begin(task, ctx);
        }
        // The plan may have released volumes that are in use no longer.
        self.report_in_use();
        self.wake_at(plan.wake, ctx);
        self.record_events(ctx);
        for uid in self.world.take_touched_pods() {
            self.answer(&uid, ctx);
        }
    }

    fn wake_at(&mut self, at: Option<Instant>, ctx: &mut Context<Msg>) {
        if at == self.wake.map(|(at, _)| at) {
            return;
        }
        if let Some((_, timer)) = self.wake.take() {
            ctx.cancel(timer);
        }
        self.wake = at.map(|at| {
            let wait = at.saturating_duration_since(ctx.now());
            (at, ctx.after(wait, Msg::Wake))
        });
    }

    fn record_events(&mut self, ctx: &Context<Msg>) {
        for news in self.world.take_events() {
            let r#type = EventType::from(news.weight);
            self.record_event(&news.uid, r#type, (news.reason, news.message), ctx);
        }
    }

    fn record_event(
        &self,
        uid: &PodUid,
        r#type: EventType,
        (reason, message): (&str, String),
        ctx: &Context<Msg>,
    ) {
        let Some(wanting) = self.pods.get(uid) else {
            tracing::info!(pod = %uid, reason, "{message}");
            return;
        };
        let object = InvolvedObject::pod(&wanting.pod, None);
        let recorder = &self.peers.recorder;
        recorder.record(timestamp(ctx), r#type, object, reason, message);
    }
}

/// The wall clock of the context, as the API's type.
fn timestamp(ctx: &Context<Msg>) -> Timestamp {
    Timestamp::try_from(ctx.wall()).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// Why a pod's volumes are not all mounted, with upstream's full text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotMounted {
    /// `Unable to attach or mount volumes: unmounted volumes=[...] ...`
    #[error("{0}")]
    Late(String),
    /// The same text, and retrying is of no use: the node has no room for another attachment.
    #[error("{0}")]
    NoRoom(String),
    #[error("a later definition of the pod replaced this one")]
    Superseded,
    #[error("the pod is being ended")]
    Released,
}

/// The volumes that could not be unmounted yet, with reasons.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotReleased(pub String);

/// Why a path within a volume could not be prepared; its waiting reason is `CreateContainerConfigError`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct SubpathBindError {
    pub message: String,
    pub transient: Retry,
}

/// Whether a failed request is worth repeating soon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    Soon,
    Later,
}

/// What operators see of volumes.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct VolumesView {
    pub volumes: Vec<VolumeView>,
    /// The drivers that registered: the `CSINode` object's `spec.drivers`, as JSON.
    pub csi_node: serde_json::Value,
    /// Refused drivers: the socket or name, a colon and a space, and the reason.
    #[serde(default)]
    pub refused: Vec<String>,
    /// Upstream's `status.volumesInUse`.
    pub in_use: Vec<String>,
    /// The names of stuck volumes: the node condition `VolumesStuck`.
    pub stuck: Vec<String>,
}

/// One volume of one pod.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct VolumeView {
    pub pod: String,
    pub volume: String,
    pub kind: String,
    pub id: String,
    /// `Mounted`, `Mounting`, `Waiting`, `Unmounting`, `Stuck`, `Left over`
    pub state: String,
    /// Why it is not mounted; empty if it is.
    pub why: String,
    pub path: String,
    pub figures: VolumeMetrics,
}
