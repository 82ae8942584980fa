//! Resource use of the node and its pods, measured when it is asked for.
//!
//! Nothing is measured between two requests. Requests at the same time, or within a second, share one measurement, and
//! those of different kinds one reading of the groups. Not
//! an actor: the summary is computed in the task of the server that asks.
//!
//! Upstream: pkg/kubelet/stats, pkg/kubelet/server/stats (1.36), with our own reading of cgroups in place of cAdvisor's.
//! A runtime whose containers have no groups on this machine is asked for its figures. Decisions:
//! `logic_resources::summary`.

pub(crate) mod bounded_io;
mod cadvisor;
mod disk;
mod file_systems;
#[cfg(test)]
mod group_tests;
mod groups;
mod layers;
mod metrics_endpoint;
mod node;
mod resource;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
pub mod usage;
#[cfg(test)]
mod usage_tests;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clients::runtime::{FileSystems, RuntimeClient, RuntimeError};
use host::stats::{MachineStats, NodeFigures, SystemGroups};
use k8s_openapi::api::core::v1::Pod;
use kernel::{Addr, AskError, Supervisor};
use logic_api::pod::PodView;
use logic_api::pod::volume_stats::VolumeMetrics;
use logic_api::types::{PodUid, RuntimePod};
use logic_pods::PodWorkerConfig;
use logic_resources::cgroups::CgroupDriver;
use logic_resources::group_stats::{GroupDetail, GroupIndex, GroupStats};
use logic_resources::summary::pods::{
    self as pod_summary, PodDiskUsage, RuntimeMeasurements, SummaryInput, WritableLayer,
};
use logic_resources::summary::rates::CpuRates;
use logic_resources::summary::{FsStats, StatsSummary, SummaryScope};
use pods::pod_manager;
use thiserror::Error;
use tokio::sync::Mutex;

use self::bounded_io::{BoundedIo, BoundedIoError};
use self::cadvisor::{CadvisorCache, MachineDescription};
use self::disk::DiskScan;
use self::file_systems::FileSystemReader;
use self::groups::GroupCache;
use self::layers::LayerCache;
use self::node::lessened;

/// Actors answer from memory.
const ASK_TIMEOUT: Duration = Duration::from_secs(5);
/// File systems of the runtime's that are measured; a runtime has one or two.
const MAX_MOUNTPOINTS: usize = 16;
/// Requests within this time get the same summary.
const CACHE_PERIOD: Duration = Duration::from_secs(1);

/// Why there is no summary.
#[derive(Debug, Error)]
pub enum SummaryError {
    #[error("the runtime does not tell what pods take")]
    Runtime(#[source] RuntimeError),
    #[error("the pods or their volumes are not known")]
    Silent(#[source] AskError),
    #[error("the machine cannot be read")]
    Machine(#[source] BoundedIoError),
}

impl SummaryError {
    pub fn transient(&self) -> bool {
        match self {
            SummaryError::Runtime(error) => error.transient(),
            SummaryError::Silent(error) => error.transient(),
            SummaryError::Machine(error) => error.transient(),
        }
    }
}

/// Where the figures of pods come from (the gate PodAndContainerStatsFromCRI).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StatsSource {
    /// The pods' cgroups; the runtime where a container has none on this machine.
    #[default]
    Groups,
    /// The runtime alone.
    Runtime,
}

/// The actors and the runtime that a summary is made from.
#[derive(Debug, Clone)]
pub struct Peers {
    /// The supervision tree for `/metrics`.
    pub root: Supervisor,
    pub runtime: RuntimeClient,
    pub pod_manager: Addr<pod_manager::Msg>,
    pub volumes: Addr<volumes::Msg>,
    pub rules: Arc<PodWorkerConfig>,
    pub groups: SystemGroups,
    pub source: StatsSource,
}

/// Measures the node and its pods. Clones share the last summary.
#[derive(Debug, Clone)]
pub struct SummaryProvider(Rc<ProviderState>);

#[derive(Debug)]
struct ProviderState {
    peers: Peers,
    machine: Arc<MachineStats>,
    /// For the kernel's own files.
    machine_io: BoundedIo,
    file_systems: FileSystemReader,
    /// For the pods' logs.
    logs_io: BoundedIo,
    /// For all of the machine's mounts, which `/metrics/cadvisor` tells of.
    mounts_io: BoundedIo,
    rates: RefCell<CpuRates>,
    layers: LayerCache,
    groups: GroupCache,
    description: MachineDescription,
    /// Locked during a reading of `/metrics/cadvisor`.
    cadvisor: Mutex<CadvisorCache>,
    /// Locked during a measurement: later requests wait for its result.
    last: Mutex<Option<CachedSummary>>,
}

#[derive(Debug)]
struct CachedSummary {
    at: Instant,
    scope: SummaryScope,
    summary: Rc<StatsSummary>,
}

/// What the node's disks say.
#[derive(Debug, Default)]
struct DiskStats {
    /// The file system of the node's root directory.
    root: Option<FsStats>,
    /// By mountpoint.
    file_systems: BTreeMap<String, FsStats>,
    disks: BTreeMap<PodUid, PodDiskUsage>,
}

/// The inputs of a summary from the actors and the runtime.
struct SummaryInputs {
    measured: RuntimeMeasurements,
    pods: BTreeMap<PodUid, Arc<Pod>>,
    volumes: BTreeMap<PodUid, BTreeMap<String, VolumeMetrics>>,
    file_systems: FileSystems,
}

impl SummaryProvider {
    pub fn new(peers: Peers) -> Self {
        let policy = peers.rules.node.cgroups.as_ref();
        let machine = MachineStats::here(&peers.groups, policy, kernel::wall());
        SummaryProvider::of_machine(peers, machine)
    }

    fn of_machine(peers: Peers, machine: MachineStats) -> Self {
        metrics::node::set_provider(match peers.source {
            StatsSource::Groups => metrics::node::MetricsProvider::Cadvisor,
            StatsSource::Runtime => metrics::node::MetricsProvider::Cri,
        });
        SummaryProvider(Rc::new(ProviderState {
            peers,
            machine: Arc::new(machine),
            machine_io: BoundedIo::default(),
            file_systems: FileSystemReader::default(),
            logs_io: BoundedIo::default(),
            mounts_io: BoundedIo::default(),
            rates: RefCell::default(),
            layers: LayerCache::default(),
            groups: GroupCache::default(),
            description: MachineDescription::read(Path::new("/")),
            cadvisor: Mutex::default(),
            last: Mutex::new(None),
        }))
    }

    /// The runtime that measures pods.
    pub fn runtime(&self) -> &RuntimeClient {
        &self.0.peers.runtime
    }

    /// The full summary, or CPU and memory alone.
    pub async fn summary(&self, scope: SummaryScope) -> Result<Rc<StatsSummary>, SummaryError> {
        self.summary_within(scope, CACHE_PERIOD).await
    }

    /// As [`summary`](Self::summary), but the last one counts where it is younger than `age`: who watches for long
    /// costs no measurement at each look.
    pub async fn summary_within(
        &self,
        scope: SummaryScope,
        age: Duration,
    ) -> Result<Rc<StatsSummary>, SummaryError> {
        let mut last = self.0.last.lock().await;
        let now = kernel::now();
        let fresh = |answer: &&CachedSummary| {
            let covers = answer.scope == SummaryScope::Everything || answer.scope == scope;
            covers && now.saturating_duration_since(answer.at) < age
        };
        if let Some(answer) = last.as_ref().filter(fresh) {
            return Ok(match (answer.scope, scope) {
                (SummaryScope::Everything, SummaryScope::CpuAndMemory) => {
                    Rc::new(lessened(&answer.summary))
                }
                (SummaryScope::Everything | SummaryScope::CpuAndMemory, _) => {
                    answer.summary.clone()
                }
            });
        }
        let summary = Rc::new(self.summarize(scope).await?);
        *last = Some(CachedSummary {
            at: kernel::now(),
            scope,
            summary: summary.clone(),
        });
        Ok(summary)
    }

    /// `/metrics/resource`: unknown figures are left out, and `resource_scrape_error` tells of an error.
    pub async fn resource_metrics(&self) -> String {
        match self.summary(SummaryScope::CpuAndMemory).await {
            Ok(summary) => resource::text(Some(&summary)),
            Err(error) => {
                tracing::warn!("no resource metrics: {}", error_text(&error));
                resource::text(None)
            }
        }
    }

    /// Use and capacity of the volumes of claims, each claim once.
    pub async fn claims(&self) -> Result<Vec<metrics::node::volumes::ClaimUsage>, AskError> {
        let (pods, volumes) = futures_util::future::try_join(self.pods(), self.volumes()).await?;
        let claims = pod_summary::claims(&pods, &volumes);
        Ok(claims.into_iter().map(claimed).collect())
    }

    async fn summarize(&self, scope: SummaryScope) -> Result<StatsSummary, SummaryError> {
        let listed = self.0.peers.runtime.pods().await;
        let listed = listed.map_err(SummaryError::Runtime)?;
        let detail = match scope {
            SummaryScope::CpuAndMemory => GroupDetail::CpuAndMemory,
            SummaryScope::Everything => GroupDetail::Summary,
        };
        let groups = match self.0.peers.source {
            StatsSource::Groups => {
                let groups = self.groups(&listed, detail, self.pod_prefixes()).await;
                // The runtime is asked in their place.
                groups.unwrap_or_else(|error| {
                    tracing::warn!("no figures of cgroups: {}", error_text(&error));
                    Arc::default()
                })
            }
            StatsSource::Runtime => Arc::default(),
        };
        let ids = listed.values().flat_map(RuntimePod::ids).collect();
        let index = GroupIndex::new(&groups, &ids);
        let measured = self.measured(&listed, &index, scope).await?;
        let inputs = self.ask(scope, measured).await?;
        let (node, seen) = self.see(scope, &listed, &inputs).await;
        let root = seen.root.clone().unwrap_or_default();
        let facts = SummaryInput {
            listed: &listed,
            measured: &inputs.measured,
            groups: &index,
            pods: &inputs.pods,
            volumes: &inputs.volumes,
            disks: &seen.disks,
            file_systems: &seen.file_systems,
            root: &root,
        };
        let mut rates = self.0.rates.borrow_mut();
        let pods = pod_summary::stats(&facts, scope, &mut rates);
        let node = self.node(node, scope, &inputs.file_systems, &seen, &mut rates);
        forget_gone(&mut rates, &ids, &groups);
        Ok(StatsSummary { node, pods })
    }

    async fn ask(
        &self,
        scope: SummaryScope,
        measured: RuntimeMeasurements,
    ) -> Result<SummaryInputs, SummaryError> {
        let mut inputs = SummaryInputs {
            measured,
            pods: BTreeMap::new(),
            volumes: BTreeMap::new(),
            file_systems: FileSystems::default(),
        };
        if scope == SummaryScope::Everything {
            let (pods, volumes) = futures_util::future::join(self.pods(), self.volumes()).await;
            inputs.pods = pods.map_err(SummaryError::Silent)?;
            // The rest of the summary is still of use.
            inputs.volumes = volumes.unwrap_or_else(|error| {
                tracing::warn!("no figures of volumes: {error}");
                BTreeMap::new()
            });
            match self.0.peers.runtime.file_systems().await {
                Ok(file_systems) => inputs.file_systems = file_systems,
                Err(error) => {
                    tracing::warn!("the images' file system is not known: {}", error.describe());
                }
            }
        }
        Ok(inputs)
    }

    async fn pods(&self) -> Result<BTreeMap<PodUid, Arc<Pod>>, AskError> {
        let pod_manager = &self.0.peers.pod_manager;
        let ask = pod_manager.ask(ASK_TIMEOUT, pod_manager::Msg::all);
        Ok(ask.await?.into_iter().map(|pod| (pod.uid(), pod)).collect())
    }

    async fn volumes(&self) -> Result<BTreeMap<PodUid, BTreeMap<String, VolumeMetrics>>, AskError> {
        let volumes = &self.0.peers.volumes;
        let ask = volumes.ask(ASK_TIMEOUT, volumes::Msg::stats);
        ask.await
    }

    /// Reads the kernel's files and the node's disks in the blocking pool. What times out costs its own figures.
    async fn see(
        &self,
        scope: SummaryScope,
        listed: &BTreeMap<PodUid, RuntimePod>,
        told: &SummaryInputs,
    ) -> (NodeFigures, DiskStats) {
        let (machine, at) = (self.0.machine.clone(), kernel::wall());
        let driver = self.cgroup_driver();
        let figures = self
            .0
            .machine_io
            .run(move || machine.read(scope, at, driver));
        let (figures, seen) =
            futures_util::future::join(figures, self.see_disks(scope, listed, told)).await;
        let figures = figures.unwrap_or_else(|error| {
            tracing::warn!("no figures of the machine: {error}");
            NodeFigures::default()
        });
        (figures, seen)
    }

    /// The driver that makes pods' cgroups: the runtime's, else the configured one.
    fn cgroup_driver(&self) -> CgroupDriver {
        let peers = &self.0.peers;
        let reported = *peers.runtime.cgroup_driver().borrow();
        let policy = peers.rules.node.cgroups.as_ref();
        let configured = policy.map(|policy| policy.driver);
        reported.or(configured).unwrap_or(CgroupDriver::Cgroupfs)
    }

    async fn see_disks(
        &self,
        scope: SummaryScope,
        listed: &BTreeMap<PodUid, RuntimePod>,
        told: &SummaryInputs,
    ) -> DiskStats {
        if scope == SummaryScope::CpuAndMemory {
            return DiskStats::default();
        }
        let node = &self.0.peers.rules.node;
        let look = DiskScan {
            root_dir: node.root_dir.clone(),
            pod_logs_dir: node.pod_logs_dir.clone(),
            pods: listed
                .values()
                .map(|pod| (pod.uid.clone(), pod.namespace.clone(), pod.name.clone()))
                .collect(),
        };
        let points = mountpoints(told).into_iter().map(|point| async {
            let stats = self.file_system(Path::new(&point)).await?;
            Some((point, stats))
        });
        let (disks, root, points) = futures_util::future::join3(
            self.0.logs_io.run(move || look.see()),
            self.file_system(&node.root_dir),
            futures_util::future::join_all(points),
        )
        .await;
        DiskStats {
            root,
            file_systems: points.into_iter().flatten().collect(),
            disks: disks.unwrap_or_else(|error| {
                tracing::warn!("no figures of the pods' logs: {error}");
                BTreeMap::new()
            }),
        }
    }

    async fn file_system(&self, path: &Path) -> Option<FsStats> {
        match self.0.file_systems.read(path).await {
            Ok(figures) => figures.stats,
            Err(error) => {
                tracing::warn!(
                    "no figures of the file system at {}: {error}",
                    path.display()
                );
                None
            }
        }
    }
}

fn mountpoints(told: &SummaryInputs) -> BTreeSet<String> {
    let of_containers: Vec<&WritableLayer> = match &told.measured {
        RuntimeMeasurements::Sandboxes(sandboxes) => sandboxes
            .iter()
            .flat_map(|sandbox| &sandbox.containers)
            .filter_map(|container| container.layer.as_ref())
            .collect(),
        RuntimeMeasurements::Containers(containers) => containers
            .iter()
            .filter_map(|container| container.layer.as_ref())
            .collect(),
    };
    let of_runtime = [&told.file_systems.images, &told.file_systems.containers];
    let layers = of_containers
        .into_iter()
        .chain(of_runtime.into_iter().flatten());
    let points = layers.map(|layer| layer.mountpoint.clone());
    let points: BTreeSet<String> = points.filter(|point| !point.is_empty()).collect();
    points.into_iter().take(MAX_MOUNTPOINTS).collect()
}

/// Drops the CPU counters of containers and groups that are gone; those of the node and the system stay.
fn forget_gone(rates: &mut CpuRates, ids: &BTreeSet<&str>, groups: &[GroupStats]) {
    let groups: BTreeSet<&str> = groups.iter().map(|group| group.name.as_str()).collect();
    rates.keep(|whose| {
        host::stats::NAMES.contains(&whose) || ids.contains(whose) || groups.contains(whose)
    });
}

fn claimed(
    ((namespace, claim), figures): ((String, String), &VolumeMetrics),
) -> metrics::node::volumes::ClaimUsage {
    use metrics::node::volumes::{ClaimUsage, VolumeHealthMetric};
    let known = |value: Option<u64>| Some(value.unwrap_or(0));
    ClaimUsage {
        namespace,
        claim,
        capacity: known(figures.capacity),
        available: known(figures.available),
        used: known(figures.used),
        inodes: known(figures.inodes),
        inodes_free: known(figures.inodes_free),
        inodes_used: known(figures.inodes_used),
        abnormal: figures.abnormal.as_ref().map(|told| match told.state {
            logic_api::pod::volume_stats::VolumeHealthState::Normal => VolumeHealthMetric::Normal,
            logic_api::pod::volume_stats::VolumeHealthState::Abnormal => {
                VolumeHealthMetric::Abnormal
            }
        }),
    }
}

/// The error and its causes in one line.
fn error_text(error: &SummaryError) -> String {
    match error {
        SummaryError::Runtime(cause) => format!("{error}: {}", cause.describe()),
        SummaryError::Silent(cause) => format!("{error}: {cause}"),
        SummaryError::Machine(cause) => format!("{error}: {cause}"),
    }
}
