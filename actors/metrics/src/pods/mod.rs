//! Numbers of pods by state, and the node's decisions about them. Upstream: pkg/kubelet/metrics
//! (1.36). The gauges are set at each scrape.

pub mod logs;
pub mod placement;
pub mod pod_resources;
pub mod pod_starts;
pub mod pods_api;
pub mod prober;
pub mod resizes;
pub mod status;

use std::sync::LazyLock;

use prometheus::{Gauge, GaugeVec, Histogram, HistogramVec, IntCounter, IntCounterVec};

use crate::registry::{SECONDS, counter, counters, gauge, gauges, histogram, histograms};

/// The value of the label `static` of a pod that the API did not send; else it is empty.
pub const STATIC: &str = "true";

pub static RUNNING_PODS: LazyLock<Gauge> = LazyLock::new(|| {
    gauge(
        "kubelet_running_pods",
        "Number of pods that have a running pod sandbox",
    )
});

pub static RUNNING_CONTAINERS: LazyLock<GaugeVec> = LazyLock::new(|| {
    gauges(
        "kubelet_running_containers",
        "Number of containers currently running",
        &["container_state"],
    )
});

pub static DESIRED: LazyLock<GaugeVec> = LazyLock::new(|| {
    gauges(
        "kubelet_desired_pods",
        "The number of pods the kubelet is being instructed to run. static is true if the pod is not from the apiserver.",
        &["static"],
    )
});

pub static ACTIVE: LazyLock<GaugeVec> = LazyLock::new(|| {
    gauges(
        "kubelet_active_pods",
        "The number of pods the kubelet considers active and which are being considered when admitting new pods. static is true if the pod is not from the apiserver.",
        &["static"],
    )
});

pub static MIRRORS: LazyLock<Gauge> = LazyLock::new(|| {
    gauge(
        "kubelet_mirror_pods",
        "The number of mirror pods the kubelet will try to create (one per admitted static pod)",
    )
});

pub static WORKING: LazyLock<GaugeVec> = LazyLock::new(|| {
    gauges(
        "kubelet_working_pods",
        "Number of pods the kubelet is actually running, broken down by lifecycle phase, whether the pod is desired, orphaned, or runtime only (also orphaned), and whether the pod is static. An orphaned pod has been removed from local configuration or force deleted in the API and consumes resources that are not otherwise visible.",
        &["lifecycle", "config", "static"],
    )
});

pub static ORPHANED: LazyLock<IntCounter> = LazyLock::new(|| {
    counter(
        "kubelet_orphaned_runtime_pods_total",
        "Number of pods that have been detected in the container runtime without being already known to the pod worker. This typically indicates the kubelet was restarted while a pod was force deleted in the API or in the local configuration, which is unusual.",
    )
});

pub static RESTARTED: LazyLock<IntCounterVec> = LazyLock::new(|| {
    counters(
        "kubelet_restarted_pods_total",
        "Number of pods that have been restarted because they were deleted and recreated with the same UID while the kubelet was watching them (common for static pods, extremely uncommon for API pods)",
        &["static"],
    )
});

pub static EPHEMERAL_CONTAINERS: LazyLock<Gauge> = LazyLock::new(|| {
    gauge(
        "kubelet_managed_ephemeral_containers",
        "Current number of ephemeral containers in pods managed by this kubelet.",
    )
});

pub static CONTAINERS_PER_POD: LazyLock<Histogram> = LazyLock::new(|| {
    histogram(
        "kubelet_containers_per_pod_count",
        "The number of containers per pod.",
        &[1.0, 2.0, 4.0, 8.0, 16.0],
    )
});

/// Pods refused at admission, by reason.
pub static REJECTIONS: LazyLock<IntCounterVec> = LazyLock::new(|| {
    counters(
        "kubelet_admission_rejections_total",
        "Cumulative number pod admission rejections by the Kubelet.",
        &["reason"],
    )
});

pub static PREEMPTIONS: LazyLock<IntCounterVec> = LazyLock::new(|| {
    counters(
        "kubelet_preemptions",
        "Cumulative number of pod preemptions by preemption resource",
        &["preemption_signal"],
    )
});

pub static EVICTIONS: LazyLock<IntCounterVec> = LazyLock::new(|| {
    counters(
        "kubelet_evictions",
        "Cumulative number of pod evictions by eviction signal",
        &["eviction_signal"],
    )
});

pub static EVICTION_STATS_AGE: LazyLock<HistogramVec> = LazyLock::new(|| {
    histograms(
        "kubelet_eviction_stats_age_seconds",
        "Time between when stats are collected, and when pod is evicted based on those stats by eviction signal",
        &["eviction_signal"],
        &SECONDS,
    )
});

pub(crate) fn declare() {
    for gauge in [&RUNNING_PODS, &MIRRORS, &EPHEMERAL_CONTAINERS] {
        LazyLock::force(gauge);
    }
    for gauges in [&RUNNING_CONTAINERS, &DESIRED, &ACTIVE, &WORKING] {
        LazyLock::force(gauges);
    }
    for counters in [&RESTARTED, &REJECTIONS, &PREEMPTIONS, &EVICTIONS] {
        LazyLock::force(counters);
    }
    LazyLock::force(&ORPHANED);
    LazyLock::force(&CONTAINERS_PER_POD);
    LazyLock::force(&EVICTION_STATS_AGE);
}
