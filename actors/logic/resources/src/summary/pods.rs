//! The pods' part of the summary, from the runtime's lists and stats and from the pods' cgroups. Mirrors
//! pkg/kubelet/stats/cri_stats_provider.go (1.36): where a container has a group on this machine, that one counts.

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
    ProcessStats, SummaryScope, SwapStats, groups,
};
use crate::group_stats::{GroupIndex, GroupStats};

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
    /// It knows only containers, or their groups say the rest: a pod takes what its group says, else what its
    /// containers take together.
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
    /// Files of the agent that its containers have mounted and may write to: its hosts file and its termination messages.
    /// Upstream counts the first alone.
    pub mounted_files: Option<DiskUsage>,
}

/// Everything that is known.
#[derive(Debug)]
pub struct SummaryInput<'a> {
    pub listed: &'a BTreeMap<PodUid, RuntimePod>,
    pub measured: &'a RuntimeMeasurements,
    /// The pods' cgroups on this machine.
    pub groups: &'a GroupIndex<'a>,
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
    let mut pods = match facts.measured {
        RuntimeMeasurements::Sandboxes(all) => {
            of_sandboxes(facts, all, (&shown, &containers), (scope, rates))
        }
        RuntimeMeasurements::Containers(all) => {
            of_containers(facts, all, (&shown, &containers), (scope, rates))
        }
    };
    for stats in &mut pods {
        stats.containers.sort_by(|a, b| a.name.cmp(&b.name));
        // A runtime that tells of one container twice: metrics have each series once.
        stats.containers.dedup_by(|a, b| a.name == b.name);
        if scope == SummaryScope::Everything {
            store(facts, stats);
        }
    }
    let order = |stats: &PodStats| (stats.pod_ref.namespace.clone(), stats.pod_ref.name.clone());
    pods.sort_by_cached_key(order);
    pods
}

/// Every pod as the runtime has measured it.
fn of_sandboxes(
    facts: &SummaryInput<'_>,
    all: &[RuntimeSandboxStats],
    (shown, containers): (&Shown<'_>, &Running<'_>),
    (scope, rates): (SummaryScope, &mut CpuRates),
) -> Vec<PodStats> {
    let mut pods = BTreeMap::new();
    for figures in all {
        if let Some((pod, sandbox)) = shown.get(&figures.id) {
            let mut stats = empty_stats(pod, sandbox);
            whole(&mut stats, figures, scope, rates);
            for figures in &figures.containers {
                let known = containers.get(&figures.id);
                if let Some((_, container)) = known.filter(|(_, one)| one.sandbox == sandbox.id) {
                    let found = (Some(figures), None);
                    let container = one(facts, (pod, container), found, scope, rates);
                    stats.containers.push(container);
                }
            }
            add_swap(&mut stats);
            pods.insert(&figures.id, stats);
        }
    }
    pods.into_values().collect()
}

/// Every pod by its containers, each as its group says, else as the runtime has measured it.
fn of_containers(
    facts: &SummaryInput<'_>,
    all: &[RuntimeContainerStats],
    (shown, containers): (&Shown<'_>, &Running<'_>),
    (scope, rates): (SummaryScope, &mut CpuRates),
) -> Vec<PodStats> {
    let measured: BTreeMap<&ContainerId, &RuntimeContainerStats> =
        all.iter().map(|figures| (&figures.id, figures)).collect();
    let mut pods = BTreeMap::new();
    for (id, (pod, container)) in containers {
        let group = facts.groups.container(id.as_str());
        let found = (measured.get(id).copied(), group);
        let Some((_, sandbox)) = shown.get(&container.sandbox) else {
            continue;
        };
        if found.0.is_none() && found.1.is_none() {
            continue;
        }
        let stats = pods
            .entry(&sandbox.id)
            .or_insert_with(|| empty_stats(pod, sandbox));
        let container = one(facts, (pod, container), found, scope, rates);
        add_to_pod(stats, &container);
        if let Some(group) = group.filter(|_| scope == SummaryScope::Everything) {
            add_processes(stats, group);
            // In place of a sandbox that has no group.
            if let Some(interfaces) = &group.network {
                stats.network = Some(groups::network(interfaces, group.at));
            }
        }
        stats.containers.push(container);
    }
    for (sandbox, stats) in &mut pods {
        let uid = PodUid::from(stats.pod_ref.uid.as_str());
        match facts.groups.pod(&uid) {
            Some(group) => by_group(stats, group, scope, rates),
            None => add_swap(stats),
        }
        let sandbox = facts.groups.container(sandbox.as_str());
        let network = sandbox.and_then(|group| Some((group.network.as_ref()?, group.at)));
        if let Some((interfaces, at)) = network.filter(|_| scope == SummaryScope::Everything) {
            stats.network = Some(groups::network(interfaces, at));
        }
    }
    pods.into_values().collect()
}

/// What the pod's own group says, in place of the sum of its containers.
fn by_group(stats: &mut PodStats, group: &GroupStats, scope: SummaryScope, rates: &mut CpuRates) {
    stats.cpu = Some(rated(group, rates));
    stats.memory = Some(groups::memory(group));
    stats.swap = groups::swap(group);
    if scope == SummaryScope::Everything {
        stats.io = groups::io(group);
    }
}

/// A group's CPU usage with its rate; upstream says zero until there is one.
fn rated(group: &GroupStats, rates: &mut CpuRates) -> CpuStats {
    let mut cpu = groups::cpu(group);
    rates.rate(&group.name, &mut cpu);
    cpu.usage_nano_cores.get_or_insert(0);
    cpu
}

fn add_processes(stats: &mut PodStats, group: &GroupStats) {
    let sum = stats.processes.get_or_insert_default();
    sum.process_count = plus(sum.process_count, Some(group.tasks.processes));
}

type Shown<'a> = BTreeMap<SandboxId, (&'a RuntimePod, &'a RuntimeSandbox)>;
type Running<'a> = BTreeMap<ContainerId, (&'a RuntimePod, &'a RuntimeContainer)>;

/// The sandboxes that count: of pods of one name the ready ones, and the newest where none is.
fn shown(listed: &BTreeMap<PodUid, RuntimePod>) -> Shown<'_> {
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

fn running(listed: &BTreeMap<PodUid, RuntimePod>) -> Running<'_> {
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

/// A container by what the runtime has measured, and what its group says in place of that.
fn one(
    facts: &SummaryInput<'_>,
    (pod, container): (&RuntimePod, &RuntimeContainer),
    (figures, group): (Option<&RuntimeContainerStats>, Option<&GroupStats>),
    scope: SummaryScope,
    rates: &mut CpuRates,
) -> ContainerStats {
    let figures = figures.cloned().unwrap_or_default();
    let mut stats = ContainerStats {
        name: container.name.clone(),
        start_time: container.created_at,
        cpu: figures.cpu,
        memory: figures.memory,
        swap: figures.swap,
        io: figures.io,
        ..ContainerStats::default()
    };
    if let Some(group) = group {
        stats.cpu = Some(rated(group, rates));
        stats.memory = Some(groups::memory(group));
        stats.swap = groups::swap(group).or(stats.swap);
        stats.io = groups::io(group).or(stats.io);
    } else if let Some(cpu) = &mut stats.cpu {
        rates.rate(container.id.as_str(), cpu);
    }
    if scope == SummaryScope::CpuAndMemory {
        stats.io = None;
        return stats;
    }
    let layer = figures.layer.as_ref();
    stats.rootfs = layer.map(|layer| layer_of(facts, layer));
    let disk = facts.disks.get(&pod.uid);
    let logs = disk.and_then(|disk| disk.container_logs.get(&container.name));
    stats.logs = logs.map(|amount| storage::logs(*amount, facts.root));
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
