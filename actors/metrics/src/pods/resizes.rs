//! In-place resizes of running pods' CPU and memory. Upstream: pkg/kubelet/metrics, pkg/kubelet/allocation,
//! pkg/kubelet/status, pkg/kubelet/kuberuntime (1.36).

use std::sync::LazyLock;

use prometheus::{Gauge, GaugeVec, HistogramVec, IntCounterVec};

use crate::registry::{counters, gauge, gauges, histograms};

/// Buckets in milliseconds: ten milliseconds to ten minutes.
pub(crate) const MILLISECONDS: [f64; 14] = [
    10.0, 50.0, 100.0, 500.0, 1000.0, 2000.0, 5000.0, 10_000.0, 20_000.0, 30_000.0, 60_000.0,
    120_000.0, 300_000.0, 600_000.0,
];

/// Requested resizes, by `cpu` or `memory`, `limits` or `requests`, and `add`, `remove`, `increase` or `decrease`.
pub static REQUESTED: LazyLock<IntCounterVec> = LazyLock::new(|| {
    counters(
        "kubelet_container_requested_resizes_total",
        "Number of requested resizes, counted at the container level. Different resources on the same container are counted separately. The 'requirement' label refers to 'memory' or 'limits'; the 'operation' label can be one of 'add', 'remove', 'increase' or 'decrease'.",
        &["resource", "requirement", "operation"],
    )
});

/// Deferred resizes that were accepted, by trigger: `periodic_retry`, `pod_resized`, `pod_updated`, `pods_added`,
/// `pods_removed`, `pod_terminated`.
pub static DEFERRED_ACCEPTED: LazyLock<IntCounterVec> = LazyLock::new(|| {
    counters(
        "kubelet_pod_deferred_accepted_resizes_total",
        "Cumulative number of resizes that were accepted after being deferred.",
        &["retry_trigger"],
    )
});

/// Infeasible resizes, by reason.
pub static INFEASIBLE: LazyLock<IntCounterVec> = LazyLock::new(|| {
    counters(
        "kubelet_pod_infeasible_resizes_total",
        "Number of infeasible resizes for pods.",
        &["reason_detail"],
    )
});

pub static IN_PROGRESS: LazyLock<Gauge> = LazyLock::new(|| {
    gauge(
        "kubelet_pod_in_progress_resizes",
        "Number of in-progress resizes for pods.",
    )
});

/// Pods with a pending resize: `deferred` or `infeasible`.
pub static PENDING: LazyLock<GaugeVec> = LazyLock::new(|| {
    gauges(
        "kubelet_pod_pending_resizes",
        "Number of pending resizes for pods.",
        &["reason"],
    )
});

/// Milliseconds of a resize, by whether it succeeded.
pub static DURATION: LazyLock<HistogramVec> = LazyLock::new(|| {
    histograms(
        "kubelet_pod_resize_duration_milliseconds",
        "Duration in milliseconds to actuate a pod resize",
        &["success"],
        &MILLISECONDS,
    )
});

pub(crate) fn declare() {
    for counters in [&REQUESTED, &DEFERRED_ACCEPTED, &INFEASIBLE] {
        LazyLock::force(counters);
    }
    LazyLock::force(&IN_PROGRESS);
    LazyLock::force(&PENDING);
    LazyLock::force(&DURATION);
}
