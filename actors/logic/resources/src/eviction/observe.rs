//! What is left of each signal's resource, from the node's stats.
//!
//! Mirrors upstream's `makeSignalObservations` (eviction/helpers.go) at v1.36.

use std::time::Instant;

use crate::summary::{FsStats, MemoryStats, NodeStats};
use crate::thresholds::{Observation, Observations, Signal, Threshold};

/// The name of the system container of all pods.
const PODS: &str = "pods";

/// The signals of which there are figures; a figure that is missing costs its own signal alone.
pub fn observe(node: &NodeStats, sampled_at: Instant) -> Observations {
    let mut all = Observations::new();
    let mut put = |signal, figures: Option<(u64, u64)>| {
        if let Some((available, capacity)) = figures {
            let observation = Observation {
                capacity,
                available,
                sampled_at,
            };
            all.insert(signal, observation);
        }
    };
    put(Signal::MemoryAvailable, memory(node.memory.as_ref()));
    let pods = node.system_containers.iter().find(|c| c.name == PODS);
    let pods = pods.and_then(|pods| pods.memory.as_ref());
    put(Signal::AllocatableMemoryAvailable, memory(pods));
    let runtime = node.runtime.as_ref();
    let file_systems = [
        (
            Signal::NodeFsAvailable,
            Signal::NodeFsInodesFree,
            node.fs.as_ref(),
        ),
        (
            Signal::ImageFsAvailable,
            Signal::ImageFsInodesFree,
            runtime.and_then(|runtime| runtime.image_fs.as_ref()),
        ),
        (
            Signal::ContainerFsAvailable,
            Signal::ContainerFsInodesFree,
            runtime.and_then(|runtime| runtime.container_fs.as_ref()),
        ),
    ];
    for (bytes, inodes, stats) in file_systems {
        let pair = |of: fn(&FsStats) -> (Option<u64>, Option<u64>)| {
            let (left, whole) = of(stats?);
            left.zip(whole)
        };
        put(bytes, pair(|fs| (fs.available_bytes, fs.capacity_bytes)));
        // A file system that counts no inodes is short of none.
        let counted = pair(|fs| (fs.inodes_free, fs.inodes));
        put(inodes, counted.filter(|(_, inodes)| *inodes > 0));
    }
    let processes = node.rlimit.as_ref();
    let processes = processes.and_then(|limit| limit.maxpid.zip(limit.curproc));
    put(
        Signal::PidAvailable,
        processes.map(|(most, now)| (most.saturating_sub(now), most)),
    );
    all
}

/// The memory left, and all that counts.
fn memory(memory: Option<&MemoryStats>) -> Option<(u64, u64)> {
    let memory = memory?;
    let (left, used) = memory.available_bytes.zip(memory.working_set_bytes)?;
    Some((left, left.saturating_add(used)))
}

/// The usage, in bytes as the kernel counts it, at which so little is left that the threshold is met: capacity less the
/// limit, and what can be reclaimed on top, because the kernel's usage has it and the working set has not. None without
/// figures. Mirrors upstream's `UpdateThreshold` (eviction/memory_threshold_notifier_others.go).
pub fn notify_at(threshold: &Threshold, memory: &MemoryStats) -> Option<u64> {
    let usage = memory.usage_bytes?;
    let (left, used) = memory.available_bytes.zip(memory.working_set_bytes)?;
    let reclaimable = usage.saturating_sub(used);
    let capacity = left.saturating_add(used);
    let limit = threshold.limit.of(capacity);
    Some(capacity.saturating_sub(limit).saturating_add(reclaimable))
}
