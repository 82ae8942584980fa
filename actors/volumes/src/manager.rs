//! The volume manager.
//!
//! - **Owns** which pods desire which volumes, what is mounted, and the running operations.
//! - **Hears** workers' requests to mount and release a pod's volumes, the storage plugins' answers and events of
//!   their drivers, changes of objects, and which pods the pod manager knows.
//! - **Tells** the recorder what failed, the storage plugins' hosts which process is stuck, and by its reporter the
//!   API server's actors what is in use.
//! - **Never** runs two operations on one volume, unmounts a volume that a pod may use, or touches a volume's path: only
//!   storage plugins do.
//!
//! Upstream: pkg/kubelet/volumemanager/volume_manager.go and reconciler/reconciler.go (1.36).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clients::storage::{Storage, StoragePlugin};
use kernel::{Actor, Addr, Context, Exit, Recipient, TimerId};
use logic_api::pod::volume_stats::VolumeMetrics;
use logic_api::types::PodUid;
use logic_pods::PodWorkerConfig;
use logic_volumes::reconciler::{ResolveTrigger, StateOfWorld};
use logic_volumes::resolve::SeLinuxMountPolicy;
use serde::Serialize;
use state::events::{EventType, InvolvedObject, Recorder};
use state::objects::ObjectStore;
use state::status::PodResync;

use super::executor::StuckVolumes;
use super::mount_requests::{PodMountRequest, ReleaseRequests};
use super::reporter::{ApiPeers, Reporter};
use super::resolving::ResolveQueue;
use super::{Msg, VolumeQuery, VolumeTimer};
use crate::executor::csi_limits::LimitRefreshes;
use crate::executor::drivers::DriverRegistry;
use crate::executor::measurements::VolumeMeasurements;

/// Room for a request from every pod at once, and for the result of every operation.
pub const MAILBOX: usize = 4096;

/// The volume manager's section of the configuration.
#[derive(Debug, Clone)]
pub struct Policy {
    /// Between two syncs of a volume without a change; upstream's sync period.
    pub resync: Duration,
    /// Between two measurements of one volume; none: volumes are not measured (`volumeStatsAggPeriod`).
    pub stats: Option<Duration>,
    pub selinux: SeLinuxMountPolicy,
    pub health: VolumeHealthPolicy,
}

/// Whether the health that drivers report is told (`CSIVolumeHealth`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VolumeHealthPolicy {
    Told,
    Ignored,
}

impl VolumeHealthPolicy {
    /// Leaves the health out of a volume's metrics where it isn't told.
    pub(crate) fn apply(self, mut metrics: VolumeMetrics) -> VolumeMetrics {
        if self == VolumeHealthPolicy::Ignored {
            metrics.abnormal = None;
        }
        metrics
    }
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
    /// That have volumes.
    pub pods: usize,
    /// Operations under way.
    pub running: usize,
    /// Registered drivers.
    pub backends: Vec<String>,
    /// Names of volumes that hang.
    pub stuck: Vec<String>,
    /// How many are reported in use.
    pub in_use: usize,
}

/// The volume manager.
#[derive(Debug)]
pub struct VolumeManager {
    pub(super) policy: Policy,
    pub(super) peers: Peers,

    pub(super) world: StateOfWorld,
    pub(super) pods: BTreeMap<PodUid, PodMountRequest>,
    pub(super) releases: ReleaseRequests,
    pub(super) drivers: DriverRegistry,
    pub(super) resolving: ResolveQueue,
    /// Plugins' processes with a stuck thread that have not ended yet, with the volumes they are stuck over.
    pub(super) stuck_processes: BTreeMap<(StoragePlugin, u64), StuckVolumes>,
    pub(super) measures: VolumeMeasurements,
    pub(super) inquiries: LimitRefreshes,
    pub(super) reporter: Reporter,
    /// When the manager plans next without a message, and the timer for it.
    pub(super) wake: Option<(Instant, TimerId)>,
}

impl Actor for VolumeManager {
    type Msg = Msg;
    type Snapshot = Snapshot;

    /// A restarted manager begins empty: the plugins list their volumes, and the workers repeat their requests.
    async fn start(&mut self, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        self.find_leftovers(ctx);
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
            Msg::Mount { pod, within, reply } => self.request_mount(pod, within, reply, ctx),
            Msg::Ending { uid } => self.pod_ends(&uid),
            Msg::Release { uid, within, reply } => self.request_release(uid, within, reply, ctx),
            Msg::Bind {
                uid,
                container,
                subpaths,
                reply,
            } => self.bind(uid, container, subpaths, reply, ctx),
            Msg::Read { uid, files, reply } => self.read(uid, files, reply, ctx),
            Msg::Pods(known) => self.set_known_pods(known, ctx),
            Msg::FindLeftovers => self.find_leftovers(ctx),
            Msg::Reported(volumes) => self.reporter.reported(volumes, &mut self.world),
            Msg::Resync => self.resync(),
            Msg::Query(VolumeQuery::View { reply }) => reply.send(self.view()),
            Msg::Query(VolumeQuery::Stuck { reply }) => reply.send(self.stuck()),
            Msg::Query(VolumeQuery::Stats { reply }) => reply.send(self.stats()),
            Msg::Query(VolumeQuery::Measure { reply }) => self.measure_at_once(reply, ctx),
            Msg::Query(VolumeQuery::PodsWithMounts { reply }) => {
                reply.send(self.world.pods_with_mounts());
            }
            Msg::Due(timer) => self.due(timer, ctx),
            Msg::Completed(completion) => self.completed(*completion, ctx),
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
            in_use: self.reporter.in_use().len(),
        }
    }
}

impl VolumeManager {
    fn find_leftovers(&self, ctx: &mut Context<Msg>) {
        for plugin in StoragePlugin::ALL {
            self.ask_plugin(plugin, Duration::ZERO, ctx);
        }
    }

    pub fn new(policy: Policy, peers: Peers) -> Self {
        VolumeManager {
            world: StateOfWorld::new(&peers.rules.node.node_name),
            resolving: ResolveQueue::new(peers.objects.snapshot()),
            policy,
            peers,
            pods: BTreeMap::new(),
            releases: ReleaseRequests::default(),
            drivers: DriverRegistry::default(),
            stuck_processes: BTreeMap::new(),
            measures: VolumeMeasurements::default(),
            inquiries: LimitRefreshes::default(),
            reporter: Reporter::default(),
            wake: None,
        }
    }

    /// Begins planned operations, sends reports and events, and answers the requests that are done.
    fn settle(&mut self, ctx: &mut Context<Msg>) {
        let freed: Vec<PodUid> = self.world.take_unblocked_pods().into_iter().collect();
        self.resolve_all(&freed, ResolveTrigger::Resync, ctx);
        self.report_in_use();
        self.world.mark_overdue(ctx.now(), ctx.timestamp());
        let plan = self.world.plan(ctx.now());
        for task in plan.tasks {
            self.begin(task, ctx);
        }
        // The plan may have released volumes that are in use no longer.
        self.report_in_use();
        if self.world.take_overdue_change() {
            self.report_stuck();
        }
        let wakes = plan.wake.into_iter().chain(self.world.next_overdue());
        self.wake_at(wakes.min(), ctx);
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
            (at, ctx.after(wait, Msg::Due(VolumeTimer::Plan)))
        });
    }

    fn record_events(&mut self, ctx: &Context<Msg>) {
        for news in self.world.take_events() {
            let r#type = EventType::from(news.weight);
            self.record_event(&news.uid, r#type, (news.reason, news.message), ctx);
        }
    }

    pub(super) fn record_event(
        &self,
        uid: &PodUid,
        r#type: EventType,
        (reason, message): (&str, String),
        ctx: &Context<Msg>,
    ) {
        let mounted = self.pods.get(uid).map(|wanting| &wanting.pod);
        let Some(pod) = mounted.or_else(|| self.releases.pod(uid)) else {
            tracing::info!(pod = %uid, reason, "{message}");
            return;
        };
        let object = InvolvedObject::pod(pod, None);
        let recorder = &self.peers.recorder;
        recorder.record(ctx.timestamp(), r#type, object, reason, message);
    }
}

#[cfg(test)]
mod tests {
    use logic_api::pod::volume_stats::{VolumeHealthReport, VolumeHealthState};

    use super::*;

    /// Upstream's `CSIVolumeHealth`.
    #[test]
    fn the_health_of_a_volume_is_told_where_its_gate_is_on() {
        let health = VolumeHealthReport {
            state: VolumeHealthState::Abnormal,
            message: "the disk smokes".into(),
        };
        let metrics = VolumeMetrics {
            used: Some(1),
            abnormal: Some(health),
            ..VolumeMetrics::default()
        };
        assert_eq!(VolumeHealthPolicy::Told.apply(metrics.clone()), metrics);
        let without = VolumeMetrics {
            used: Some(1),
            ..VolumeMetrics::default()
        };
        assert_eq!(VolumeHealthPolicy::Ignored.apply(metrics), without);
    }
}
