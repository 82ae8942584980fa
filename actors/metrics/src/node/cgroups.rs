//! Pods' cgroups. Upstream: pkg/kubelet/metrics (1.36).

use std::sync::LazyLock;

use prometheus::{Gauge, HistogramVec};

use crate::registry::{SECONDS, gauge, histograms};

/// Seconds of an operation on a pod's cgroup, by `create`, `update`, `destroy`.
pub static DURATION: LazyLock<HistogramVec> = LazyLock::new(|| {
    histograms(
        "kubelet_cgroup_manager_duration_seconds",
        "Duration in seconds for cgroup manager operations. Broken down by method.",
        &["operation_type"],
        &SECONDS,
    )
});

/// The cgroup version of the node: 1 or 2.
pub static VERSION: LazyLock<Gauge> =
    LazyLock::new(|| gauge("kubelet_cgroup_version", "cgroup version on the hosts."));

/// Bytes of `memory.min` of guaranteed pods; there is none without the feature MemoryQoS.
pub static MEMORY_MIN: LazyLock<Gauge> = LazyLock::new(|| {
    gauge(
        "kubelet_memory_qos_node_memory_min_bytes",
        "Total cgroup v2 memory.min in bytes for Guaranteed pods. This memory is hard-reserved and never reclaimed by the kernel.",
    )
});

/// Bytes of `memory.low` of burstable pods; there is none without the feature MemoryQoS.
pub static MEMORY_LOW: LazyLock<Gauge> = LazyLock::new(|| {
    gauge(
        "kubelet_memory_qos_node_memory_low_bytes",
        "Total cgroup v2 memory.low in bytes for Burstable pods. This memory is soft-reserved and may be reclaimed under extreme pressure.",
    )
});

pub(crate) fn declare() {
    LazyLock::force(&DURATION);
    LazyLock::force(&VERSION);
}
