//! Desired and actual mounts of all pods.
//!
//! - **Owns** which volumes are wanted by which pods, what is mounted, and what is under way.
//! - **Hears** workers that want a pod's volumes or are done with them, the storage plugins' answers and news of
//!   their drivers, changes of objects, the pod manager's word of which pods there are.
//! - **Tells** the recorder what failed, and the storage plugins' hosts which process is stuck.
//! - **Never** works on one volume twice at once, unmounts what a pod may still use, or touches a volume's path: only
//!   storage plugins do.
//!
//! Upstream: pkg/kubelet/volumemanager and pkg/volume/util/operationexecutor (1.36). Decisions: `logic_volumes`.

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

use cluster::events::{EventType, Recorder};
use cluster::objects::ObjectStore;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kernel::{Actor, Addr, Context, Exit, Reply, TimerId};
use logic_api::env_file::{EnvFilePath, EnvFiles};
use logic_api::objects::StaticObjects;
use logic_api::types::PodUid;
use logic_api::volume_stats::VolumeMetrics;
use logic_volumes::reconciler::{ResolveTrigger, StateOfWorld};
use logic_volumes::resolve::SeLinuxMountPolicy;
use logic_volumes::{MountedVolumes, ReconstructedVolume, Subpath, VolumeId};
use serde::{Deserialize, Serialize};

use self::csi_limits::LimitRefreshes;
use self::drivers::DriverRegistry;
use self::executor::{FinishedOperation, StuckProcess, StuckVolumes};
pub use self::in_use::ApiPeers;
use self::in_use::{ExpandingClaim, InUseReporter};
use self::measurements::VolumeMeasurements;
use self::mount_requests::{PodMountRequest, ReleaseWaiter};
use crate::pod_manager;
use crate::storage::{DriverEvent, Storage, StorageCapabilities, StorageError, StoragePlugin};
use crate::worker::PodWorkerConfig;

/// Every pod at once may come with what it wants, and every operation with its end.
pub const MAILBOX: usize = 4096;

/// What the volume manager is told.
#[derive(Debug, strum::IntoStaticStr)]
pub enum Msg {
    /// Wants a pod's volumes mounted, as its definition now has them; answers when all are, or at the end of the time
    /// with what is not. A later wish for the same pod answers the earlier one with `Superseded`.
    Mount {
        pod: Arc<Pod>,
        within: Duration,
        reply: Reply<Result<MountedVolumes, NotMounted>>,
    },
    /// Nothing of the pod runs any more: unmounts its volumes; answers when they are gone, or at the end of the time
    /// with what is not. Goes on unmounting then.
    Release {
        uid: PodUid,
        within: Duration,
        reply: Reply<Result<(), NotReleased>>,
    },
    /// Makes paths within a pod's mounted volumes ready for a container; answers with the path of each by index.
    Bind {
        uid: PodUid,
        container: String,
        subpaths: Vec<Subpath>,
        reply: Reply<Result<BTreeMap<u32, PathBuf>, SubpathBindError>>,
    },
    /// Reads files of a pod's mounted volumes; answers with what could be read.
    Read {
        uid: PodUid,
        files: Vec<EnvFilePath>,
        reply: Reply<EnvFiles>,
    },
    /// Learns which pods there are: what belongs to no other is left over and removed.
    Pods(BTreeSet<PodUid>),
    /// Answers with everything that an operator may want to see.
    View { reply: Reply<VolumesView> },
    /// Answers with the last figures of each volume of each pod, by the pod's name of it.
    Stats {
        reply: Reply<BTreeMap<PodUid, BTreeMap<String, VolumeMetrics>>>,
    },
    /// Mounts what waited for it: the API server knows these to be in use.
    Reported(BTreeSet<VolumeId>),
    /// Tells again what the API server is to know: who passes it on has a successor.
    Resync,
    /// Looks at the node's labels, which drivers must not contradict, and whose volumes depend on them.
    NodeChanged,
    /// Finds out whose volumes are to be resolved again: an object changed.
    ObjectsChanged,
    /// Resolves the next of those pods.
    Resolve,
    /// Resolves a pod's volumes again: a token grows old, or it is time to look.
    ResyncPod { uid: PodUid },
    /// Takes in what a plugin can do and what it found.
    Listed(StoragePlugin, Box<Result<PluginListing, StorageError>>),
    /// Takes in which pods have folders on the node.
    Folders(Vec<PodUid>),
    /// Takes in news of a plugin's drivers; none: the stream ended.
    Backends(StoragePlugin, Option<DriverEvent>),
    /// Takes in how an operation ended.
    OperationFinished(Box<FinishedOperation>),
    /// Somebody who worked within a pod's volumes is done; has plugins' processes replaced that got stuck over it.
    AccessEnded {
        uid: PodUid,
        worn: Vec<StuckProcess>,
    },
    /// Tries again what hung in a plugin's process that is gone by now.
    ProcessReplaced(StoragePlugin, u64),
    /// Plans again: something's time has come.
    Wake,
    /// Answers a wish that has waited for too long.
    TimedOut { uid: PodUid, turn: u64 },
    /// Asks a driver again how many volumes it takes on this node: its period is over.
    RefreshLimits { driver: String },
    /// Takes note of the end of that; the answer comes as news of the driver.
    LimitsRefreshed {
        driver: String,
        answer: Result<(), StorageError>,
    },
    /// Measures the next volumes.
    Measure,
    /// Takes in a volume's figures.
    Measured(Box<measurements::MeasurementResult>),
}

/// What a plugin says when it is asked first.
#[derive(Debug)]
pub struct PluginListing {
    abilities: Vec<(String, StorageCapabilities)>,
    found: Vec<ReconstructedVolume>,
}

/// The volume manager's section of the configuration.
#[derive(Debug, Clone)]
pub struct Policy {
    /// Between two looks at what nobody tells of; upstream's sync period.
    pub resync: Duration,
    /// Between two measurements of one volume; none: nothing is measured (`volumeStatsAggPeriod`).
    pub stats: Option<Duration>,
    pub selinux: SeLinuxMountPolicy,
}

/// Whom the volume manager works with.
#[derive(Debug, Clone)]
pub struct Peers {
    pub storage: Storage,
    /// The storage plugins' hosts, by the plugin's name.
    pub hosts: BTreeMap<String, Addr<plugin_host::Msg>>,
    pub objects: ObjectStore,
    pub pod_manager: Addr<pod_manager::Msg>,
    pub recorder: Recorder,
    pub rules: Arc<PodWorkerConfig>,
    /// Who passes on to the API server; none on a node without one.
    pub cluster: Option<ApiPeers>,
}

/// How much there is.
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
    /// As they were when pods were resolved last.
    objects: Arc<StaticObjects>,
    /// Pods that are to be resolved again.
    stale: BTreeSet<PodUid>,
    /// Processes of plugins that have a stuck thread, and whose end is waited for, with what they hang over.
    worn: BTreeMap<(StoragePlugin, u64), StuckVolumes>,
    measures: VolumeMeasurements,
    inquiries: LimitRefreshes,
    reporting: InUseReporter,
    /// Claims whose volumes grow, by what they grow.
    growing: BTreeMap<VolumeId, ExpandingClaim>,
    turn: u64,
    wake: Option<(Instant, TimerId)>,
}

impl Actor for VolumeManager {
    type Msg = Msg;
    type Snapshot = Snapshot;

    /// A successor begins with nothing: the plugins tell what is there, and the workers what they want.
    async fn start(&mut self, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        for plugin in StoragePlugin::ALL {
            self.ask_plugin(plugin, Duration::ZERO, ctx);
        }
        self.follow(Duration::ZERO, ctx);
        self.look_for_folders(ctx);
        self.await_objects(ctx);
        self.node_changed(ctx);
        self.measure_later(ctx);
        if let Err(full) = self.peers.pod_manager.tell(pod_manager::Msg::Resync) {
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

    /// Begins what is to be begun, tells what is to be told, answers whom there is an answer for.
    fn settle(&mut self, ctx: &mut Context<Msg>) {
        let freed: Vec<PodUid> = self.world.take_unblocked_pods().into_iter().collect();
        self.resolve_all(&freed, ResolveTrigger::Resync, ctx);
        self.report_in_use();
        let plan = self.world.plan(ctx.now());
        for task in plan.tasks {
            self.begin(task, ctx);
        }
        // The plan may have let go of what nobody has any more.
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
            let r#type = crate::worker::event_type(news.weight);
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
        let object = crate::worker::object(&wanting.pod, None);
        let recorder = &self.peers.recorder;
        recorder.record(timestamp(ctx), r#type, object, reason, message);
    }
}

/// The context's wall clock, as the API writes time.
fn timestamp(ctx: &Context<Msg>) -> Timestamp {
    Timestamp::try_from(ctx.wall()).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// Why a pod's volumes are not all mounted; upstream's text in full.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotMounted {
    /// `Unable to attach or mount volumes: unmounted volumes=[...] ...`
    #[error("{0}")]
    Late(String),
    /// The same, and it is for good: the node has no room for another attachment.
    #[error("{0}")]
    NoRoom(String),
    #[error("a later definition of the pod replaced this one")]
    Superseded,
    #[error("the pod is being ended")]
    Released,
}

/// Which volumes could not be taken away yet, and why.
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

/// Whether to ask again soon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    Soon,
    Later,
}

/// What an operator sees.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct VolumesView {
    pub volumes: Vec<VolumeView>,
    /// The drivers that registered: the `CSINode` object's `spec.drivers`, as JSON.
    pub csi_node: serde_json::Value,
    /// Sockets of drivers that are not taken, each with the reason after a colon and a space.
    #[serde(default)]
    pub refused: Vec<String>,
    /// Upstream's `status.volumesInUse`.
    pub in_use: Vec<String>,
    /// What hangs, by name: the node condition `VolumesStuck`.
    pub stuck: Vec<String>,
}

/// One volume of one pod.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct VolumeView {
    pub pod: String,
    pub volume: String,
    pub kind: String,
    pub id: String,
    /// `MountedVolumes`, `Mounting`, `Waiting`, `Unmounting`, `Stuck`, `Left over`
    pub state: String,
    /// Why it is not mounted.
    pub why: String,
    pub path: String,
    pub figures: VolumeMetrics,
}
