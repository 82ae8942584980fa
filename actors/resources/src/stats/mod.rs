//! Resource use of the node and its pods, measured when it is asked for.
//!
//! Nothing is measured between two requests. Requests at the same time, or within a second, share one measurement. Not
//! an actor: the summary is computed in the task of the server that asks.
//!
//! Upstream: pkg/kubelet/stats, pkg/kubelet/server/stats (1.36), without cAdvisor: the runtime measures pods, the
//! kernel's files the node. Decisions: `logic_resources::summary`.

mod bounded_io;
mod disk;
mod metrics_endpoint;
mod resource;
#[cfg(test)]
mod tests;
pub mod usage;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
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
use logic_resources::summary::pods::{
    self as pod_summary, RuntimeMeasurements, SummaryInput, WritableLayer,
};
use logic_resources::summary::rates::CpuRates;
use logic_resources::summary::{FsStats, NodeStats, RuntimeStats, StatsSummary, SummaryScope};
use pods::pod_manager;
use thiserror::Error;
use tokio::sync::Mutex;

use self::bounded_io::{BoundedIo, BoundedIoError};
use self::disk::{DiskScan, DiskStats};

/// Actors answer from memory.
const ASK_TIMEOUT: Duration = Duration::from_secs(5);
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
    /// For file systems, which may be remote and hang: the figures of the machine do not wait for them.
    disk_io: BoundedIo,
    rates: RefCell<CpuRates>,
    /// Locked during a measurement: later requests wait for its result.
    last: Mutex<Option<CachedSummary>>,
}

#[derive(Debug)]
struct CachedSummary {
    at: Instant,
    scope: SummaryScope,
    summary: Rc<StatsSummary>,
}

/// The inputs of a summary from the actors and the runtime.
struct SummaryInputs {
    listed: BTreeMap<PodUid, RuntimePod>,
    measured: RuntimeMeasurements,
    pods: BTreeMap<PodUid, Arc<Pod>>,
    volumes: BTreeMap<PodUid, BTreeMap<String, VolumeMetrics>>,
    file_systems: FileSystems,
}

impl SummaryProvider {
    pub fn new(peers: Peers) -> Self {
        let policy = peers.rules.node.cgroups.as_ref();
        let machine = MachineStats::here(&peers.groups, policy);
        SummaryProvider(Rc::new(ProviderState {
            peers,
            machine: Arc::new(machine),
            machine_io: BoundedIo::default(),
            disk_io: BoundedIo::default(),
            rates: RefCell::default(),
            last: Mutex::new(None),
        }))
    }

    /// The runtime that measures pods.
    pub fn runtime(&self) -> &RuntimeClient {
        &self.0.peers.runtime
    }

    /// The full summary, or CPU and memory alone.
    pub async fn summary(&self, scope: SummaryScope) -> Result<Rc<StatsSummary>, SummaryError> {
        let mut last = self.0.last.lock().await;
        let now = kernel::now();
        let fresh = |answer: &&CachedSummary| {
            let covers = answer.scope == SummaryScope::Everything || answer.scope == scope;
            covers && now.saturating_duration_since(answer.at) < CACHE_PERIOD
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
        let inputs = self.ask(scope).await?;
        let (node, seen) = self.see(scope, &inputs).await?;
        let root = seen.root.clone().unwrap_or_default();
        let facts = SummaryInput {
            listed: &inputs.listed,
            measured: &inputs.measured,
            pods: &inputs.pods,
            volumes: &inputs.volumes,
            disks: &seen.disks,
            file_systems: &seen.file_systems,
            root: &root,
        };
        let mut rates = self.0.rates.borrow_mut();
        let pods = pod_summary::stats(&facts, scope, &mut rates);
        let node = self.node(node, scope, &inputs.file_systems, &seen, &mut rates);
        forget_gone(&mut rates, &inputs.listed);
        Ok(StatsSummary { node, pods })
    }

    async fn ask(&self, scope: SummaryScope) -> Result<SummaryInputs, SummaryError> {
        let runtime = &self.0.peers.runtime;
        let of_runtime = futures_util::future::try_join(runtime.pods(), runtime.measured());
        let (listed, measured) = of_runtime.await.map_err(SummaryError::Runtime)?;
        let mut inputs = SummaryInputs {
            listed,
            measured,
            pods: BTreeMap::new(),
            volumes: BTreeMap::new(),
            file_systems: FileSystems::default(),
        };
        if scope == SummaryScope::Everything {
            let known = futures_util::future::try_join(self.pods(), self.volumes());
            (inputs.pods, inputs.volumes) = known.await.map_err(SummaryError::Silent)?;
            match runtime.file_systems().await {
                Ok(file_systems) => inputs.file_systems = file_systems,
                // The rest of the summary is still of use.
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

    /// Reads the kernel's files and the node's disk in the blocking pool. Without the disk's figures if those time out.
    async fn see(
        &self,
        scope: SummaryScope,
        told: &SummaryInputs,
    ) -> Result<(NodeFigures, DiskStats), SummaryError> {
        let (machine, at) = (self.0.machine.clone(), kernel::wall());
        let driver = self.cgroup_driver();
        let figures = self
            .0
            .machine_io
            .run(move || machine.read(scope, at, driver));
        let (figures, seen) =
            futures_util::future::join(figures, self.see_disks(scope, told)).await;
        Ok((figures.map_err(SummaryError::Machine)?, seen))
    }

    /// The driver that makes pods' cgroups: the runtime's, else the configured one.
    fn cgroup_driver(&self) -> CgroupDriver {
        let peers = &self.0.peers;
        let reported = *peers.runtime.cgroup_driver().borrow();
        let policy = peers.rules.node.cgroups.as_ref();
        let configured = policy.map(|policy| policy.driver);
        reported.or(configured).unwrap_or(CgroupDriver::Cgroupfs)
    }

    async fn see_disks(&self, scope: SummaryScope, told: &SummaryInputs) -> DiskStats {
        if scope == SummaryScope::CpuAndMemory {
            return DiskStats::default();
        }
        let node = &self.0.peers.rules.node;
        let look = DiskScan {
            root_dir: node.root_dir.clone(),
            pod_logs_dir: node.pod_logs_dir.clone(),
            mountpoints: mountpoints(told),
            pods: told
                .listed
                .values()
                .map(|pod| (pod.uid.clone(), pod.namespace.clone(), pod.name.clone()))
                .collect(),
        };
        let at = kernel::wall();
        let seen = self.0.disk_io.run(move || look.see(at)).await;
        seen.unwrap_or_else(|error| {
            tracing::warn!("no figures of file systems: {error}");
            DiskStats::default()
        })
    }

    fn node(
        &self,
        figures: NodeFigures,
        scope: SummaryScope,
        file_systems: &FileSystems,
        seen: &DiskStats,
        rates: &mut CpuRates,
    ) -> NodeStats {
        let mut node = NodeStats {
            node_name: self.0.peers.rules.node.node_name.clone(),
            system_containers: figures.system,
            start_time: figures.started,
            cpu: figures.cpu,
            memory: figures.memory,
            network: figures.network,
            rlimit: figures.rlimit,
            swap: figures.swap,
            ..NodeStats::default()
        };
        if let Some(cpu) = &mut node.cpu {
            rates.rate("", cpu);
        }
        for system in &mut node.system_containers {
            if let Some(cpu) = &mut system.cpu {
                rates.rate(&system.name, cpu);
            }
        }
        if scope == SummaryScope::Everything {
            let layer = |layer: &WritableLayer| FsStats {
                time: layer.used.time,
                used_bytes: layer.used.used_bytes,
                inodes_used: layer.used.inodes_used,
                ..seen
                    .file_systems
                    .get(&layer.mountpoint)
                    .cloned()
                    .unwrap_or_default()
            };
            let image_fs = file_systems.images.as_ref().map(layer);
            let container_fs = file_systems.containers.as_ref().map(layer);
            node.fs.clone_from(&seen.root);
            node.runtime = Some(RuntimeStats {
                container_fs: container_fs.or_else(|| image_fs.clone()),
                image_fs,
            });
        }
        node
    }
}

/// The parts of a summary that `only_cpu_and_memory=true` leaves.
fn lessened(summary: &StatsSummary) -> StatsSummary {
    let mut summary = summary.clone();
    let node = &mut summary.node;
    (node.network, node.fs, node.runtime, node.rlimit) = (None, None, None, None);
    for pod in &mut summary.pods {
        (pod.network, pod.io, pod.processes) = (None, None, None);
        (pod.ephemeral_storage, pod.volumes) = (None, Vec::new());
        for container in &mut pod.containers {
            (container.rootfs, container.logs, container.io) = (None, None, None);
        }
    }
    summary
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
    points.filter(|point| !point.is_empty()).collect()
}

/// Drops the CPU counters of containers that are gone; those of the node and its groups stay.
fn forget_gone(rates: &mut CpuRates, listed: &BTreeMap<PodUid, RuntimePod>) {
    let ids: BTreeSet<&str> = listed
        .values()
        .flat_map(|pod| {
            let containers = pod.containers.iter().map(|c| c.id.as_str());
            containers.chain(pod.sandboxes.iter().map(|s| s.id.as_str()))
        })
        .collect();
    rates.keep(|whose| host::cgroup_stats::NAMES.contains(&whose) || ids.contains(whose));
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
