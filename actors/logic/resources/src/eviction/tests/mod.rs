//! Rankings, messages, limits and rounds; [`lives`] has a node under pressure for a long time.

mod limits;
mod lives;
mod observe;
mod rank;
mod rounds;

use super::*;
use crate::testing::at;
use crate::thresholds::{Observation, ThresholdLimit, ThresholdPolicy, WrittenAmount};

const MIB: u64 = 1 << 20;

fn hard(signal: Signal, limit: u64) -> Threshold {
    let (limit, min_reclaim) = (ThresholdLimit::amount(limit), ThresholdLimit::amount(0));
    Threshold {
        signal,
        grace: Duration::ZERO,
        limit,
        min_reclaim,
    }
}

fn soft(signal: Signal, limit: u64, grace: u64) -> Threshold {
    Threshold {
        grace: Duration::from_secs(grace),
        ..hard(signal, limit)
    }
}

fn policy(thresholds: &[Threshold]) -> EvictionPolicy {
    EvictionPolicy {
        pressure: ThresholdPolicy {
            thresholds: thresholds.iter().copied().collect(),
            transition: Duration::from_secs(300),
        },
        max_pod_grace: Duration::from_secs(5),
        ..EvictionPolicy::default()
    }
}

fn observed(signal: Signal, (available, capacity): (u64, u64), second: u64) -> Observations {
    let observed = Observation {
        capacity,
        available,
        sampled_at: at(second),
    };
    Observations::from([(signal, observed)])
}

/// So many MiB of memory are left of a thousand.
fn memory(available: u64, second: u64) -> Observations {
    let figures = (available * MIB, 1000 * MIB);
    observed(Signal::MemoryAvailable, figures, second)
}

/// Request and use of memory in MiB.
fn pod(name: &str, priority: i32, request: u64, used: u64) -> PodUsage {
    let (request, used) = (request * MIB, used * MIB);
    PodUsage {
        uid: name.into(),
        name: name.to_owned(),
        standing: EvictionClass::Evictable,
        priority,
        termination_grace: Some(Duration::from_secs(30)),
        requests: PodRequests {
            memory: request,
            ..PodRequests::default()
        },
        used: Some(MeasuredUsage {
            memory: used,
            has_memory: true,
            pids: used / MIB,
            containers: vec![ContainerUsage {
                name: "main".into(),
                memory: Some(used),
                memory_request: WrittenAmount::binary(request),
                ..ContainerUsage::default()
            }],
            ..MeasuredUsage::default()
        }),
        breach: None,
    }
}

/// Request of disk, and use by writable layers, logs and volumes, in MiB; as many inodes are used.
fn on_disk(name: &str, priority: i32, request: u64, [root, logs, volumes]: [u64; 3]) -> PodUsage {
    let amount = |mebibytes| DiskAmount {
        bytes: mebibytes * MIB,
        inodes: mebibytes,
    };
    PodUsage {
        requests: PodRequests {
            ephemeral_storage: request * MIB,
            ..PodRequests::default()
        },
        used: Some(MeasuredUsage {
            root: amount(root),
            logs: amount(logs),
            volumes: amount(volumes),
            ..MeasuredUsage::default()
        }),
        ..pod(name, priority, 0, 0)
    }
}

fn critical(pod: PodUsage) -> PodUsage {
    PodUsage {
        standing: EvictionClass::Critical,
        ..pod
    }
}

fn unmeasured(pod: PodUsage) -> PodUsage {
    PodUsage { used: None, ..pod }
}

fn order_on(layout: FsLayout, signal: Signal, pods: &[PodUsage]) -> Vec<String> {
    let victims = rank(signal, layout, pods).victims.into_iter();
    victims.map(|victim| victim.uid.to_string()).collect()
}

fn order(signal: Signal, pods: &[PodUsage]) -> Vec<String> {
    order_on(FsLayout::Shared, signal, pods)
}
