//! Samples for eviction: what is left of the node at each look, what the pods take only where it matters.
//!
//! A look at the node reads a few files of the kernel and the file systems' figures, each with its deadline, in a thread
//! of its own: a file system that hangs costs its own signals. Pods are measured while a threshold is met, and those
//! with limits of local storage are measured always; where they cannot be, the node's own figures count all the same.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clients::runtime::FileSystems;
use k8s_openapi::api::core::v1::Pod;
use kernel::AskError;
use logic_api::pod::PodView;
use logic_api::types::PodUid;
use logic_resources::cgroups::{Hierarchy, pod_cgroup};
use logic_resources::eviction::{
    self as decide, EvictionPolicy, FsDevices, FsLayout, PodUsage, StorageLimitPolicy,
};
use logic_resources::group_stats::GroupDetail;
use logic_resources::summary::{
    FsStats, MemoryStats, NodeStats, PodReference, PodStats, RuntimeStats, SummaryScope, groups,
};
use logic_resources::thresholds::{
    Observations, PressureCondition, Reclaim, Signal, Threshold, thresholds_met,
};
use pods::pod_manager;
use thiserror::Error;
use tokio::time::timeout;

use super::bounded_io::{BoundedIo, BoundedIoError};
use super::file_systems::FileSystemFigures;
use super::{SummaryError, SummaryProvider};

/// The pod manager answers from memory.
const POD_MANAGER_TIMEOUT: Duration = Duration::from_secs(5);
/// For all figures of all pods.
const STATS_TIMEOUT: Duration = Duration::from_secs(10);
/// For new measurements of volumes: a large one takes long to walk.
const VOLUMES_TIMEOUT: Duration = Duration::from_secs(5);
/// For the memory of all pods by the runtime; the kernel's own figures come faster.
const MEMORY_STATS_TIMEOUT: Duration = Duration::from_millis(500);
/// The runtime keeps what it has in the same places: it is asked again only so often.
const LAYOUT_PERIOD: Duration = Duration::from_secs(60);
/// The runtime says from memory where it keeps images and containers.
const LAYOUT_TIMEOUT: Duration = Duration::from_secs(5);

/// Why there is no sample.
#[derive(Debug, Error)]
pub enum SampleError {
    #[error("nothing of the node can be read")]
    Node(#[source] BoundedIoError),
    #[error("the pods are not known")]
    Pods(#[source] AskError),
    #[error("the pods' usage is not known")]
    Usage(#[source] SummaryError),
    #[error("the pods' usage is not known after {} s", .0.as_secs())]
    Slow(Duration),
}

/// Use of the node and its pods at one moment.
#[derive(Debug, Default)]
pub struct UsageSample {
    /// By signal.
    pub observations: Observations,
    /// Those that hold resources; none where nobody's use matters.
    pub pods: Vec<PodUsage>,
    pub layout: FsLayout,
    pub memory: MemoryFigures,
    /// Why figures are missing.
    pub missing: Option<String>,
}

/// The memory of the node and of all pods, by the signals of both.
pub type MemoryFigures = BTreeMap<Signal, MemoryStats>;

/// How much is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SampleExtent {
    Everything,
    /// Memory alone, as fast as can be: no disk is waited for.
    Memory,
}

/// Samples the node and its pods. Clones share what is known.
#[derive(Debug, Clone)]
pub struct UsageSampler(Rc<SamplerState>);

#[derive(Debug)]
struct SamplerState {
    summaries: SummaryProvider,
    /// Not the summaries' own: theirs may be in use for long.
    machine_io: BoundedIo,
    /// For the pods' cgroups: one that hangs does not hide the machine's figures.
    pods_io: BoundedIo,
    /// The mount points of images and writable layers, and when the runtime told them.
    places: RefCell<Option<(Instant, Places)>>,
    /// Whether the runtime did not tell them when it was last asked.
    keeps_places: Cell<bool>,
    layout: RefCell<FsLayout>,
}

/// What a file system says; none where it is not known where it is.
type DiskRead = Result<Option<FileSystemFigures>, BoundedIoError>;

/// The mount points of the runtime's file systems.
#[derive(Debug, Clone, Default)]
struct Places {
    images: Option<PathBuf>,
    containers: Option<PathBuf>,
}

/// What the disks say.
#[derive(Debug, Default)]
struct DiskFigures {
    root: Option<FsStats>,
    runtime: RuntimeStats,
    /// None where one of them does not answer: where images are is as it was.
    devices: Option<FsDevices>,
    /// Why figures are missing.
    missing: Option<BoundedIoError>,
}

impl UsageSampler {
    pub fn new(summaries: SummaryProvider) -> Self {
        UsageSampler(Rc::new(SamplerState {
            summaries,
            machine_io: BoundedIo::default(),
            pods_io: BoundedIo::default(),
            places: RefCell::default(),
            keeps_places: Cell::default(),
            layout: RefCell::default(),
        }))
    }

    /// Samples the node, and the pods where a threshold is met, or was and is not resolved yet.
    ///
    /// # Errors
    /// Where nothing of the node can be known.
    pub async fn sample(
        &self,
        policy: &EvictionPolicy,
        unresolved: &BTreeSet<Threshold>,
        extent: SampleExtent,
    ) -> Result<UsageSample, SampleError> {
        let mut sample = self.node(extent).await?;
        let thresholds = policy.on(sample.layout).pressure.thresholds;
        let mut short = thresholds_met(&thresholds, &sample.observations, Reclaim::Ignored);
        short.extend(unresolved);
        let limits =
            policy.storage_limits == StorageLimitPolicy::Kept && extent == SampleExtent::Everything;
        if short.is_empty() && !limits {
            return Ok(sample);
        }
        let pods = match self.active_pods().await {
            Ok(pods) => pods,
            Err(error) => {
                sample.missing = Some(kernel::error_chain(&error));
                return Ok(sample);
            }
        };
        let limited = limits && pods.iter().any(|pod| decide::is_limited(pod));
        if short.is_empty() && !limited {
            return Ok(sample);
        }
        let signals: BTreeSet<Signal> = short.iter().map(|threshold| threshold.signal).collect();
        match self.pod_stats(&pods, &signals, limited).await {
            Ok(stats) => {
                let usage = |pod: &Arc<Pod>| {
                    let stats = stats.get(pod.uid().as_str());
                    PodUsage::of(pod, stats, sample.layout)
                };
                sample.pods = pods.iter().map(usage).collect();
            }
            Err(error) => sample.missing = Some(kernel::error_chain(&error)),
        }
        Ok(sample)
    }

    /// The pods of which something may still run, or is still mounted.
    ///
    /// # Errors
    /// Where the pod manager does not answer.
    pub async fn unfinished_pods(&self) -> Result<BTreeSet<PodUid>, SampleError> {
        let pod_manager = &self.0.summaries.0.peers.pod_manager;
        let asked = pod_manager.ask(POD_MANAGER_TIMEOUT, pod_manager::Msg::unfinished);
        asked.await.map_err(SampleError::Pods)
    }

    /// The pods of which something may still run.
    async fn active_pods(&self) -> Result<Vec<Arc<Pod>>, SampleError> {
        let pod_manager = &self.0.summaries.0.peers.pod_manager;
        let asked = pod_manager.ask(POD_MANAGER_TIMEOUT, pod_manager::Msg::active);
        asked.await.map_err(SampleError::Pods)
    }

    /// The cgroup whose memory a signal is about; none where pods have no cgroup of their own, or of another signal.
    pub fn memory_group(&self, signal: Signal) -> Option<(Hierarchy, String)> {
        let provider = &self.0.summaries;
        let hierarchy = provider.0.machine.groups.as_ref()?.hierarchy.clone();
        match signal {
            Signal::MemoryAvailable => Some((hierarchy, String::new())),
            Signal::AllocatableMemoryAvailable => {
                let pods = provider.0.machine.pods.as_ref()?;
                Some((hierarchy, pods.path(provider.cgroup_driver())))
            }
            Signal::NodeFsAvailable
            | Signal::NodeFsInodesFree
            | Signal::ImageFsAvailable
            | Signal::ImageFsInodesFree
            | Signal::ContainerFsAvailable
            | Signal::ContainerFsInodesFree
            | Signal::PidAvailable => None,
        }
    }

    #[cfg(test)]
    pub(super) fn machine_io(&self) -> &BoundedIo {
        &self.0.machine_io
    }

    async fn node(&self, extent: SampleExtent) -> Result<UsageSample, SampleError> {
        let provider = &self.0.summaries;
        let (machine, at) = (provider.0.machine.clone(), kernel::wall());
        let driver = provider.cgroup_driver();
        let scope = match extent {
            SampleExtent::Everything => SummaryScope::Everything,
            SampleExtent::Memory => SummaryScope::CpuAndMemory,
        };
        let figures = self
            .0
            .machine_io
            .run(move || machine.read_for_eviction(scope, at, driver));
        let (figures, disks) = match extent {
            SampleExtent::Everything => {
                let (figures, disks) = futures_util::future::join(figures, self.disks()).await;
                (figures, Some(disks))
            }
            SampleExtent::Memory => (figures.await, None),
        };
        let mut node = NodeStats::default();
        let mut missing = None;
        match figures {
            Ok(figures) => {
                node.memory = figures.memory;
                node.system_containers = figures.system;
                node.rlimit = figures.rlimit;
            }
            Err(error) if disks.as_ref().is_none_or(DiskFigures::are_absent) => {
                return Err(SampleError::Node(error));
            }
            Err(error) => missing = Some(kernel::error_chain(&error)),
        }
        if let Some(disks) = disks {
            if let Some(devices) = disks.devices {
                self.0.layout.replace(FsLayout::of(devices));
            }
            let told = disks
                .missing
                .as_ref()
                .map(|error| kernel::error_chain(error));
            missing = told.or(missing);
            (node.fs, node.runtime) = (disks.root, Some(disks.runtime));
        }
        Ok(UsageSample {
            observations: decide::observe(&node, kernel::now()),
            memory: memory_figures(&node),
            pods: Vec::new(),
            layout: *self.0.layout.borrow(),
            missing,
        })
    }

    /// The node's own file system, and the runtime's; none waits for another.
    async fn disks(&self) -> DiskFigures {
        let root = &self.0.summaries.0.peers.rules.node.root_dir;
        let reader = &self.0.summaries.0.file_systems;
        let of_runtime = async {
            let places = self.places().await;
            let read = async |path: &Option<PathBuf>| match path {
                Some(path) => reader.read(path).await.map(Some),
                None => Ok(None),
            };
            let both = futures_util::future::join(read(&places.images), read(&places.containers));
            both.await
        };
        let (root, (images, containers)) =
            futures_util::future::join(reader.read(root), of_runtime).await;
        DiskFigures::of(root.map(Some), images, containers)
    }

    /// The runtime's mount points; the last ones where it does not answer.
    async fn places(&self) -> Places {
        let now = kernel::now();
        let known = self.0.places.borrow().clone();
        if let Some((told, places)) = &known
            && now.saturating_duration_since(*told) < LAYOUT_PERIOD
        {
            return places.clone();
        }
        let runtime = &self.0.summaries.0.peers.runtime;
        let told = match timeout(LAYOUT_TIMEOUT, runtime.file_systems()).await {
            Ok(Ok(file_systems)) => Ok(Places::of(file_systems)),
            Ok(Err(error)) => Err(error.describe().to_string()),
            Err(_) => Err("it does not answer".to_owned()),
        };
        let kept_before = self.0.keeps_places.replace(told.is_err());
        match &told {
            Err(why) if !kept_before => {
                tracing::warn!("the runtime does not tell where images are: {why}");
            }
            Ok(_) | Err(_) => {}
        }
        // A runtime that has never told is asked again by the next look.
        let places = told.ok().or(known.map(|(_, places)| places));
        self.0
            .places
            .replace(places.clone().map(|places| (now, places)));
        places.unwrap_or_default()
    }

    /// The stats of pods by UID; fresh ones where the node is short of something.
    async fn pod_stats(
        &self,
        pods: &[Arc<Pod>],
        short: &BTreeSet<Signal>,
        limited: bool,
    ) -> Result<BTreeMap<String, PodStats>, SampleError> {
        let is_memory = |signal: &Signal| signal.condition() == PressureCondition::MemoryPressure;
        if !limited && short.iter().all(is_memory) {
            return self.memory(pods).await;
        }
        let is_disk = |signal: &Signal| signal.condition() == PressureCondition::DiskPressure;
        if short.iter().any(is_disk) {
            self.measure_volumes().await;
        }
        if !short.is_empty() {
            self.forget_summary();
        }
        let summary = self.0.summaries.summary(SummaryScope::Everything);
        let summary = timeout(STATS_TIMEOUT, summary).await;
        let summary = summary.map_err(|_| SampleError::Slow(STATS_TIMEOUT))?;
        Ok(by_uid(&summary.map_err(SampleError::Usage)?.pods))
    }

    /// Has the volumes on the node's disk measured: figures of a minute ago would have another pod evicted.
    async fn measure_volumes(&self) {
        let volumes = &self.0.summaries.0.peers.volumes;
        let asked = volumes.ask(VOLUMES_TIMEOUT, volumes::Msg::measure);
        if let Err(error) = asked.await {
            tracing::warn!("pods are ranked by volumes as they were: {error}");
        }
    }

    /// The memory of each pod, from the runtime with that of its containers, or from the pods' cgroups if the runtime is
    /// slow: memory runs out within a second.
    async fn memory(&self, pods: &[Arc<Pod>]) -> Result<BTreeMap<String, PodStats>, SampleError> {
        self.forget_summary();
        let summary = self.0.summaries.summary(SummaryScope::CpuAndMemory);
        let failed = match timeout(MEMORY_STATS_TIMEOUT, summary).await {
            Ok(Ok(summary)) => return Ok(by_uid(&summary.pods)),
            Ok(Err(error)) => SampleError::Usage(error),
            Err(_) => SampleError::Slow(MEMORY_STATS_TIMEOUT),
        };
        let read = self.memory_by_cgroups(pods).await;
        if read.is_empty() {
            Err(failed)
        } else {
            Ok(read)
        }
    }

    async fn memory_by_cgroups(&self, pods: &[Arc<Pod>]) -> BTreeMap<String, PodStats> {
        let provider = &self.0.summaries;
        let policy = provider.0.peers.rules.node.cgroups.as_ref();
        let (Some(policy), Some(reader)) = (policy, provider.0.machine.groups.clone()) else {
            return BTreeMap::new();
        };
        let driver = provider.cgroup_driver();
        let group = |pod: &Arc<Pod>| Some((pod.uid(), pod_cgroup(pod, policy)?.path(driver)));
        let groups: Vec<(PodUid, String)> = pods.iter().filter_map(group).collect();
        let at = kernel::wall();
        let read = move || {
            let stats = |(uid, group): (PodUid, String)| {
                let group = reader.read(&group, GroupDetail::CpuAndMemory, at)?;
                let memory = group.memory.is_some().then(|| groups::memory(&group))?;
                let pod_ref = PodReference {
                    uid: uid.to_string(),
                    ..PodReference::default()
                };
                let stats = PodStats {
                    pod_ref,
                    memory: Some(memory),
                    ..PodStats::default()
                };
                Some((uid.to_string(), stats))
            };
            groups.into_iter().filter_map(stats).collect()
        };
        self.0.pods_io.run(read).await.unwrap_or_else(|error| {
            tracing::warn!("the pods' cgroups cannot be read: {error}");
            BTreeMap::new()
        })
    }

    /// Has the next summary measure anew; not where one is being measured, which is new enough.
    fn forget_summary(&self) {
        if let Ok(mut last) = self.0.summaries.0.last.try_lock() {
            last.take();
            self.0.summaries.0.layers.expire();
            self.0.summaries.0.groups.expire();
        }
    }
}

impl DiskFigures {
    fn of(root: DiskRead, images: DiskRead, containers: DiskRead) -> DiskFigures {
        let mut missing = None;
        let mut taken = |read: DiskRead| match read {
            Ok(figures) => Some(figures.unwrap_or_default()),
            Err(error) => {
                missing = Some(error);
                None
            }
        };
        let (root, images, containers) = (taken(root), taken(images), taken(containers));
        let device = |figures: &Option<FileSystemFigures>| figures.as_ref().map(|one| one.device);
        let devices = (device(&root), device(&images), device(&containers));
        let stats = |figures: Option<FileSystemFigures>| figures?.stats;
        let image_fs = stats(images);
        // Where the runtime names no place of its own for containers, they lie beside the images.
        let container_fs = match &containers {
            Some(FileSystemFigures { stats: None, .. }) => image_fs.clone(),
            Some(_) | None => stats(containers),
        };
        DiskFigures {
            root: stats(root),
            runtime: RuntimeStats {
                container_fs,
                image_fs,
            },
            devices: match devices {
                (Some(Some(node)), Some(images), Some(containers)) => Some(FsDevices {
                    node,
                    images,
                    containers,
                }),
                (Some(Some(_)) | Some(None) | None, _, _) => None,
            },
            missing,
        }
    }

    /// Whether no disk answers.
    fn are_absent(&self) -> bool {
        let RuntimeStats {
            image_fs,
            container_fs,
        } = &self.runtime;
        self.root.is_none() && image_fs.is_none() && container_fs.is_none()
    }
}

impl Places {
    fn of(file_systems: FileSystems) -> Places {
        let place = |layer: Option<super::WritableLayer>| {
            let mountpoint = layer?.mountpoint;
            (!mountpoint.is_empty()).then(|| PathBuf::from(mountpoint))
        };
        Places {
            images: place(file_systems.images),
            containers: place(file_systems.containers),
        }
    }
}

fn memory_figures(node: &NodeStats) -> MemoryFigures {
    let pods = node.system_containers.iter();
    let pods = pods.filter(|container| container.name == host::stats::PODS);
    let of_pods = pods.filter_map(|pods| {
        let memory = pods.memory.clone()?;
        Some((Signal::AllocatableMemoryAvailable, memory))
    });
    let of_node = node.memory.clone();
    let of_node = of_node.map(|memory| (Signal::MemoryAvailable, memory));
    of_node.into_iter().chain(of_pods).collect()
}

fn by_uid(pods: &[PodStats]) -> BTreeMap<String, PodStats> {
    let entry = |pod: &PodStats| (pod.pod_ref.uid.clone(), pod.clone());
    pods.iter().map(entry).collect()
}
