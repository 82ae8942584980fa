//! What a pod requests and takes, for the ranking; made from its spec and the stats API's figures.
//!
//! Mirrors upstream's `podDiskUsage`, `containerUsage`, `podLocalVolumeUsage`, `memoryUsage` and `processUsage`
//! (eviction/helpers.go) at v1.36.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Pod, Volume};
use logic_api::pod::PodView;
use logic_api::pod::requests::{self, EPHEMERAL_STORAGE, MEMORY};
use logic_api::types::PodUid;
use serde::{Deserialize, Serialize};

use super::limits::{LimitBreach, breach};
use super::{EvictionClass, FsLayout};
use crate::summary::{ContainerStats, FsStats, PodStats};
use crate::thresholds::WrittenAmount;

/// One pod's requests and usage, for the ranking.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodUsage {
    pub uid: PodUid,
    /// The pod's name alone.
    pub name: String,
    /// Whether the pod may be evicted.
    pub standing: EvictionClass,
    /// Lower ones go first.
    pub priority: i32,
    /// The pod's own; none where it has none.
    pub termination_grace: Option<Duration>,
    pub requests: PodRequests,
    /// None where the pod has not been measured.
    pub used: Option<MeasuredUsage>,
    /// The limit of local storage that the pod exceeds.
    pub breach: Option<LimitBreach>,
}

/// What the whole pod asks for, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PodRequests {
    pub memory: u64,
    pub ephemeral_storage: u64,
    /// The memory that the pod asks for at its own level; none where it has no such request.
    pub pod_level_memory: Option<WrittenAmount>,
}

/// What a pod takes, as measured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MeasuredUsage {
    /// Bytes of working set.
    pub memory: u64,
    /// Whether the pod as a whole was measured.
    pub has_memory: bool,
    /// Processes.
    pub pids: u64,
    /// The writable layers of its containers.
    pub root: DiskAmount,
    pub logs: DiskAmount,
    /// Volumes on the node's own disk.
    pub volumes: DiskAmount,
    pub containers: Vec<ContainerUsage>,
}

/// What lies on a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskAmount {
    pub bytes: u64,
    pub inodes: u64,
}

impl DiskAmount {
    fn of(stats: Option<&FsStats>) -> DiskAmount {
        DiskAmount {
            bytes: stats.and_then(|stats| stats.used_bytes).unwrap_or(0),
            inodes: stats.and_then(|stats| stats.inodes_used).unwrap_or(0),
        }
    }

    pub(super) fn plus(self, other: DiskAmount) -> DiskAmount {
        DiskAmount {
            bytes: self.bytes.saturating_add(other.bytes),
            inodes: self.inodes.saturating_add(other.inodes),
        }
    }
}

/// One container's share, for the message; none where it was not measured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerUsage {
    pub name: String,
    /// Bytes of working set.
    pub memory: Option<u64>,
    /// Bytes.
    pub memory_request: WrittenAmount,
    /// Bytes of the writable layer and the logs, where both are known.
    pub storage: Option<u64>,
    /// Bytes.
    pub storage_request: WrittenAmount,
}

impl PodUsage {
    /// A pod as the ranking sees it; without stats where it was not measured.
    pub fn of(pod: &Pod, stats: Option<&PodStats>, layout: FsLayout) -> PodUsage {
        let grace = pod
            .spec()
            .and_then(|spec| spec.termination_grace_period_seconds);
        PodUsage {
            uid: pod.uid(),
            name: pod.name().to_owned(),
            standing: match pod.is_critical() {
                true => EvictionClass::Critical,
                false => EvictionClass::Evictable,
            },
            priority: pod.priority(),
            termination_grace: grace
                .map(|seconds| Duration::from_secs(u64::try_from(seconds).unwrap_or(0))),
            requests: PodRequests {
                memory: positive(requests::request(pod, MEMORY)),
                ephemeral_storage: positive(requests::request(pod, EPHEMERAL_STORAGE)),
                pod_level_memory: pod_level_memory(pod),
            },
            used: stats.map(|stats| MeasuredUsage::of(pod, stats)),
            breach: stats.and_then(|stats| breach(pod, stats, layout)),
        }
    }
}

impl MeasuredUsage {
    fn of(pod: &Pod, stats: &PodStats) -> MeasuredUsage {
        let sum = |part: fn(&ContainerStats) -> Option<&FsStats>| {
            let parts = stats.containers.iter().map(|c| DiskAmount::of(part(c)));
            parts.fold(DiskAmount::default(), DiskAmount::plus)
        };
        let memory = stats.memory.as_ref().and_then(|m| m.working_set_bytes);
        let processes = stats.processes.as_ref().and_then(|p| p.process_count);
        let containers = stats.containers.iter();
        MeasuredUsage {
            memory: memory.unwrap_or(0),
            has_memory: stats.memory.is_some(),
            pids: processes.unwrap_or(0),
            root: sum(|container| container.rootfs.as_ref()),
            logs: sum(|container| container.logs.as_ref()),
            volumes: local_volumes(pod, stats),
            containers: containers.filter_map(|c| container(pod, c)).collect(),
        }
    }
}

fn positive(amount: i64) -> u64 {
    u64::try_from(amount).unwrap_or(0)
}

fn pod_level_memory(pod: &Pod) -> Option<WrittenAmount> {
    let own = pod.spec()?.resources.as_ref()?.requests.as_ref()?;
    WrittenAmount::of(&requests::parse(own.get(MEMORY)?)?)
}

/// Ephemeral containers are left out: they have no requests, and would be blamed always.
fn container(pod: &Pod, stats: &ContainerStats) -> Option<ContainerUsage> {
    let mut named = pod.app_containers().iter().chain(pod.init_containers());
    let container = named.find(|container| container.name == stats.name)?;
    let bytes = |stats: &Option<FsStats>| stats.as_ref().and_then(|stats| stats.used_bytes);
    let parts = bytes(&stats.rootfs).zip(bytes(&stats.logs));
    Some(ContainerUsage {
        name: stats.name.clone(),
        memory: stats.memory.as_ref().and_then(|m| m.working_set_bytes),
        memory_request: request(container, MEMORY),
        storage: parts.map(|(root, logs)| root.saturating_add(logs)),
        storage_request: request(container, EPHEMERAL_STORAGE),
    })
}

fn request(container: &Container, resource: &str) -> WrittenAmount {
    let list = container.resources.as_ref().map(|all| &all.requests);
    let amount = list.and_then(|list| list.as_ref()?.get(resource));
    let amount = amount.and_then(requests::parse);
    let amount = amount.and_then(|amount| WrittenAmount::of(&amount));
    amount.unwrap_or_default()
}

fn local_volumes(pod: &Pod, stats: &PodStats) -> DiskAmount {
    let volumes = pod.spec().and_then(|spec| spec.volumes.as_deref());
    let local = volumes.into_iter().flatten().filter(|v| is_local(v));
    let amount = |volume: &Volume| {
        let stats = stats.volumes.iter().find(|stats| stats.name == volume.name);
        DiskAmount::of(stats.map(|stats| &stats.fs))
    };
    local
        .map(amount)
        .fold(DiskAmount::default(), DiskAmount::plus)
}

/// What lies on the node's disk: host paths, and what ends with the pod.
fn is_local(volume: &Volume) -> bool {
    let empty = volume.empty_dir.as_ref();
    let on_disk = empty.is_some_and(|empty| empty.medium.as_deref().unwrap_or("").is_empty());
    let has_files = volume.config_map.is_some() || volume.git_repo.is_some();
    volume.host_path.is_some() || on_disk || has_files
}
