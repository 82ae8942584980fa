//! The pods' part of the summary, from the runtime's lists and stats. Mirrors pkg/kubelet/stats/cri_stats_provider.go
//! (1.36) without cAdvisor.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use logic_api::pod::volume_stats::VolumeMetrics;
use logic_api::types::{
    ContainerId, ContainerState, PodUid, RuntimeContainer, RuntimePod, RuntimeSandbox, SandboxId,
};

use super::rates::CpuRates;
use super::storage::{self, plus};
use super::{
    ContainerStats, CpuStats, FsStats, IoStats, MemoryStats, NetworkStats, PodReference, PodStats,
    ProcessStats, SummaryScope, SwapStats,
};

/// CRI's stats of one container.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RuntimeContainerStats {
    pub id: ContainerId,
    pub cpu: Option<CpuStats>,
    pub memory: Option<MemoryStats>,
    pub swap: Option<SwapStats>,
    pub io: Option<IoStats>,
    pub layer: Option<WritableLayer>,
}

/// A part of a file system that the runtime keeps.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WritableLayer {
    /// Where that file system is mounted; empty if unknown.
    pub mountpoint: String,
    pub used: FsStats,
}

/// CRI's stats of one sandbox as a whole.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RuntimeSandboxStats {
    pub id: SandboxId,
    pub cpu: Option<CpuStats>,
    pub memory: Option<MemoryStats>,
    pub io: Option<IoStats>,
    pub network: Option<NetworkStats>,
    /// In all of the pod's containers.
    pub processes: Option<u64>,
    pub containers: Vec<RuntimeContainerStats>,
}

/// The runtime's stats: of sandboxes, or where it has none, of containers.
#[derive(Clone, Debug, PartialEq)]
pub enum RuntimeMeasurements {
    /// It knows its sandboxes.
    Sandboxes(Vec<RuntimeSandboxStats>),
    /// It knows only containers: a pod takes what they take together.
    Containers(Vec<RuntimeContainerStats>),
}

/// Disk usage in bytes and inodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskUsage {
    /// Allocated, not apparent.
    pub bytes: u64,
    /// Files, folders and links.
    pub inodes: u64,
}

/// A pod's usage of the node's disk beside its volumes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodDiskUsage {
    /// Logs by container name.
    pub container_logs: BTreeMap<String, DiskUsage>,
    /// Logs of the pod itself.
    pub logs: Option<DiskUsage>,
    /// Its managed hosts file.
    pub hosts: Option<DiskUsage>,
}

/// Everything that is known.
#[derive(Debug)]
pub struct SummaryInput<'a> {
    pub listed: &'a BTreeMap<PodUid, RuntimePod>,
    pub measured: &'a RuntimeMeasurements,
    /// By UID, as they are desired.
    pub pods: &'a BTreeMap<PodUid, Arc<Pod>>,
    pub volumes: &'a BTreeMap<PodUid, BTreeMap<String, VolumeMetrics>>,
    pub disks: &'a BTreeMap<PodUid, PodDiskUsage>,
    /// By mountpoint, without what is used of them.
    pub file_systems: &'a BTreeMap<String, FsStats>,
    /// The file system of the node's root directory.
    pub root: &'a FsStats,
}

/// Puts the pods' part together, in the order of their names.
pub fn stats(facts: &SummaryInput<'_>, scope: SummaryScope, rates: &mut CpuRates) -> Vec<PodStats> {
    let shown = shown(facts.listed);
    let containers = running(facts.listed);
    let mut pods = BTreeMap::new();
    match facts.measured {
        RuntimeMeasurements::Sandboxes(sandboxes) => {
            for figures in sandboxes {
                if let Some((pod, sandbox)) = shown.get(&figures.id) {
                    let mut stats = empty_stats(pod, sandbox);
                    whole(&mut stats, figures, scope, rates);
                    for figures in &figures.containers {
                        if let Some((_, container)) = containers.get(&figures.id) {
                            let container = one(facts, (pod, container), figures, scope, rates);
                            stats.containers.push(container);
                        }
                    }
                    add_swap(&mut stats);
                    pods.insert(&figures.id, stats);
                }
            }
        }
        RuntimeMeasurements::Containers(all) => {
            for figures in all {
                let Some((pod, container)) = containers.get(&figures.id) else {
                    continue;
                };
                let Some((_, sandbox)) = shown.get(&container.sandbox) else {
                    continue;
                };
                let stats = pods
                    .entry(&sandbox.id)
                    .or_insert_with(|| empty_stats(pod, sandbox));
                let container = one(facts, (pod, container), figures, scope, rates);
                add_to_pod(stats, &container);
                stats.containers.push(container);
            }
            for stats in pods.values_mut() {
                add_swap(stats);
            }
        }
    }
    let mut pods: Vec<PodStats> = pods.into_values().collect();
    for stats in &mut pods {
        stats.containers.sort_by(|a, b| a.name.cmp(&b.name));
        if scope == SummaryScope::Everything {
            store(facts, stats);
        }
    }
    let order = |stats: &PodStats| (stats.pod_ref.namespace.clone(), stats.pod_ref.name.clone());
    pods.sort_by_cached_key(order);
    pods
}

/// The sandboxes that count: of pods of one name the ready ones, and the newest where none is.
fn shown(
    listed: &BTreeMap<PodUid, RuntimePod>,
) -> BTreeMap<SandboxId, (&RuntimePod, &RuntimeSandbox)> {
    let mut named: BTreeMap<(&str, &str), Vec<(&RuntimePod, &RuntimeSandbox)>> = BTreeMap::new();
    for pod in listed.values() {
        let same = named.entry((&pod.namespace, &pod.name)).or_default();
        same.extend(pod.sandboxes.iter().map(|sandbox| (pod, sandbox)));
    }
    let mut shown = BTreeMap::new();
    for mut same in named.into_values() {
        same.sort_by_key(|(_, sandbox)| sandbox.created_at);
        let ready: Vec<_> = same.iter().filter(|(_, s)| s.is_ready()).copied().collect();
        let counted = match (ready.is_empty() && same.len() > 1, same.last()) {
            (true, Some(last)) => vec![*last],
            _ if same.len() == 1 => same,
            _ => ready,
        };
        shown.extend(counted.into_iter().map(|(pod, s)| (s.id.clone(), (pod, s))));
    }
    shown
}

fn running(
    listed: &BTreeMap<PodUid, RuntimePod>,
) -> BTreeMap<ContainerId, (&RuntimePod, &RuntimeContainer)> {
    let all = listed
        .values()
        .flat_map(|pod| pod.containers.iter().map(move |c| (pod, c)));
    all.filter(|(_, container)| container.state == ContainerState::Running)
        .map(|(pod, container)| (container.id.clone(), (pod, container)))
        .collect()
}

fn empty_stats(pod: &RuntimePod, sandbox: &RuntimeSandbox) -> PodStats {
    PodStats {
        pod_ref: PodReference {
            name: pod.name.clone(),
            namespace: pod.namespace.clone(),
            uid: pod.uid.to_string(),
        },
        start_time: sandbox.created_at,
        ..PodStats::default()
    }
}

/// What was measured of the sandbox as a whole.
fn whole(
    stats: &mut PodStats,
    figures: &RuntimeSandboxStats,
    scope: SummaryScope,
    rates: &mut CpuRates,
) {
    stats.cpu.clone_from(&figures.cpu);
    if let Some(cpu) = &mut stats.cpu {
        rates.rate(figures.id.as_str(), cpu);
    }
    stats.memory.clone_from(&figures.memory);
    if scope == SummaryScope::Everything {
        stats.io.clone_from(&figures.io);
        stats.network.clone_from(&figures.network);
        stats.processes = figures.processes.map(|count| ProcessStats {
            process_count: Some(count),
        });
    }
}

fn one(
    facts: &SummaryInput<'_>,
    (pod, container): (&RuntimePod, &RuntimeContainer),
    figures: &RuntimeContainerStats,
    scope: SummaryScope,
    rates: &mut CpuRates,
) -> ContainerStats {
    let mut stats = ContainerStats {
        name: container.name.clone(),
        start_time: container.created_at,
        cpu: figures.cpu.clone(),
        memory: figures.memory.clone(),
        swap: figures.swap.clone(),
        ..ContainerStats::default()
    };
    if let Some(cpu) = &mut stats.cpu {
        rates.rate(figures.id.as_str(), cpu);
    }
    if scope == SummaryScope::Everything {
        stats.io.clone_from(&figures.io);
        stats.rootfs = figures.layer.as_ref().map(|layer| layer_of(facts, layer));
        let disk = facts.disks.get(&pod.uid);
        let logs = disk.and_then(|disk| disk.container_logs.get(&container.name));
        stats.logs = logs.map(|amount| storage::logs(*amount, facts.root));
    }
    stats
}

/// How much of a file system a layer takes, where that file system is known.
fn layer_of(facts: &SummaryInput<'_>, layer: &WritableLayer) -> FsStats {
    let there = facts.file_systems.get(&layer.mountpoint);
    FsStats {
        time: layer.used.time,
        used_bytes: layer.used.used_bytes,
        inodes_used: layer.used.inodes_used,
        ..there.cloned().unwrap_or_default()
    }
}

fn add_to_pod(pod: &mut PodStats, container: &ContainerStats) {
    if let Some(cpu) = &container.cpu {
        let sum = pod.cpu.get_or_insert_default();
        sum.time = cpu.time;
        sum.usage_core_nano_seconds =
            plus(sum.usage_core_nano_seconds, cpu.usage_core_nano_seconds);
        sum.usage_nano_cores = plus(sum.usage_nano_cores, cpu.usage_nano_cores);
    }
    if let Some(memory) = &container.memory {
        let sum = pod.memory.get_or_insert_default();
        sum.time = memory.time;
        sum.available_bytes = plus(sum.available_bytes, memory.available_bytes);
        sum.usage_bytes = plus(sum.usage_bytes, memory.usage_bytes);
        sum.working_set_bytes = plus(sum.working_set_bytes, memory.working_set_bytes);
        sum.rss_bytes = plus(sum.rss_bytes, memory.rss_bytes);
        sum.page_faults = plus(sum.page_faults, memory.page_faults);
        sum.major_page_faults = plus(sum.major_page_faults, memory.major_page_faults);
    }
}

/// A runtime measures the swap of containers only.
fn add_swap(pod: &mut PodStats) {
    for swap in pod.containers.iter().filter_map(|c| c.swap.as_ref()) {
        let sum = pod.swap.get_or_insert_default();
        sum.time = sum.time.max(swap.time);
        sum.swap_available_bytes = plus(sum.swap_available_bytes, swap.swap_available_bytes);
        sum.swap_usage_bytes = plus(sum.swap_usage_bytes, swap.swap_usage_bytes);
    }
}

/// The pod's volumes, and what it takes of the node's disk.
fn store(facts: &SummaryInput<'_>, stats: &mut PodStats) {
    let uid = PodUid::from(stats.pod_ref.uid.as_str());
    let figures = facts.volumes.get(&uid);
    let pod = facts.pods.get(&uid);
    let (own, others) = match (pod, figures) {
        (Some(pod), Some(figures)) => storage::volumes(pod, figures),
        (None, _) | (_, None) => Default::default(),
    };
    let nothing = PodDiskUsage::default();
    let disk = facts.disks.get(&uid).unwrap_or(&nothing);
    stats.ephemeral_storage = Some(storage::ephemeral(
        &stats.containers,
        &own,
        disk,
        facts.root,
    ));
    stats.volumes = own.into_iter().chain(others).collect();
}

/// The claims whose volumes were measured, each once, with its figures.
pub fn claims<'a>(
    pods: &'a BTreeMap<PodUid, Arc<Pod>>,
    volumes: &'a BTreeMap<PodUid, BTreeMap<String, VolumeMetrics>>,
) -> BTreeMap<(String, String), &'a VolumeMetrics> {
    let mut claims = BTreeMap::new();
    for (uid, figures) in volumes {
        let Some(pod) = pods.get(uid) else { continue };
        let spec = pod.spec.as_ref();
        for volume in spec
            .and_then(|s| s.volumes.as_deref())
            .into_iter()
            .flatten()
        {
            if let (Some(claim), Some(figures)) =
                (storage::claim(pod, volume), figures.get(&volume.name))
            {
                let name = (claim.namespace, claim.name);
                claims.entry(name).or_insert(figures);
            }
        }
    }
    claims
}
