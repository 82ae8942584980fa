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

pub(crate) fn declare() {
    LazyLock::force(&DURATION);
    LazyLock::force(&VERSION);
}
