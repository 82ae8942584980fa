//! How pods and containers start and end, and how long it takes. Upstream: pkg/kubelet/metrics (1.36).

use std::sync::LazyLock;

use prometheus::{Gauge, Histogram, HistogramVec, IntCounter, IntCounterVec};

use crate::registry::{SECONDS, counter, counters, gauge, histogram, histograms};

/// Buckets of pods' starts, in seconds.
pub(crate) const START: [f64; 25] = [
    0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 20.0, 30.0, 45.0, 60.0, 120.0, 180.0, 240.0,
    300.0, 360.0, 480.0, 600.0, 900.0, 1200.0, 1800.0, 2700.0, 3600.0,
];

/// Seconds from the first sight of a pod to its phase Running.
pub static START_DURATION: LazyLock<Histogram> = LazyLock::new(|| {
    histogram(
        "kubelet_pod_start_duration_seconds",
        "Duration in seconds from kubelet seeing a pod for the first time to the pod starting to run",
        &START,
    )
});

/// Seconds without image pulls and init containers. Upstream's has no labels and shows only once a pod has started.
pub static START_SLI_DURATION: LazyLock<HistogramVec> = LazyLock::new(|| {
    histograms(
        "kubelet_pod_start_sli_duration_seconds",
        "Duration in seconds to start a pod, excluding time to pull images and run init containers, measured from pod creation timestamp to when all its containers are reported as started and observed via watch",
        &[],
        &START,
    )
});

pub static START_TOTAL_DURATION: LazyLock<HistogramVec> = LazyLock::new(|| {
    histograms(
        "kubelet_pod_start_total_duration_seconds",
        "Duration in seconds to start a pod since creation, including time to pull images and run init containers, measured from pod creation timestamp to when all its containers are reported as started and observed via watch",
        &[],
        &START,
    )
});

/// Seconds of the first pod with a network of its own; later ones do not change it.
pub static FIRST_NETWORK_POD: LazyLock<Gauge> = LazyLock::new(|| {
    gauge(
        "kubelet_first_network_pod_start_sli_duration_seconds",
        "[INTERNAL] Duration in seconds to start the first network pod, excluding time to pull images and run init containers, measured from pod creation timestamp to when all its containers are reported as started and observed via watch",
    )
});

/// Seconds of one sync, by `create`, `update`, `sync`, `kill`, `terminated`.
pub static WORKER_DURATION: LazyLock<HistogramVec> = LazyLock::new(|| {
    histograms(
        "kubelet_pod_worker_duration_seconds",
        "Duration in seconds to sync a single pod. Broken down by operation type: create, update, or sync",
        &["operation_type"],
        &SECONDS,
    )
});

pub static WORKER_START_DURATION: LazyLock<Histogram> = LazyLock::new(|| {
    histogram(
        "kubelet_pod_worker_start_duration_seconds",
        "Duration in seconds from kubelet seeing a pod to starting a worker.",
        &SECONDS,
    )
});

pub static STARTED_PODS: LazyLock<IntCounter> = LazyLock::new(|| {
    counter(
        "kubelet_started_pods_total",
        "Cumulative number of pods started",
    )
});

pub static STARTED_PODS_ERRORS: LazyLock<IntCounter> = LazyLock::new(|| {
    counter(
        "kubelet_started_pods_errors_total",
        "Cumulative number of errors when starting pods",
    )
});

pub static STARTED_USER_NAMESPACED: LazyLock<IntCounter> = LazyLock::new(|| {
    counter(
        "kubelet_started_user_namespaced_pods_total",
        "Cumulative number of pods with user namespaces started. This metric will only be collected on Linux.",
    )
});

pub static STARTED_USER_NAMESPACED_ERRORS: LazyLock<IntCounter> = LazyLock::new(|| {
    counter(
        "kubelet_started_user_namespaced_pods_errors_total",
        "Cumulative number of errors when starting pods with user namespaces. This metric will only be collected on Linux.",
    )
});

/// By type: `container`, `init_container`, `ephemeral_container`.
pub static STARTED_CONTAINERS: LazyLock<IntCounterVec> = LazyLock::new(|| {
    counters(
        "kubelet_started_containers_total",
        "Cumulative number of containers started",
        &["container_type"],
    )
});

/// By type, and by the reason in the container's status.
pub static STARTED_CONTAINERS_ERRORS: LazyLock<IntCounterVec> = LazyLock::new(|| {
    counters(
        "kubelet_started_containers_errors_total",
        "Cumulative number of errors when starting containers",
        &["container_type", "code"],
    )
});

pub static TERMINATED_CONTAINERS: LazyLock<IntCounterVec> = LazyLock::new(|| {
    counters(
        "kubelet_terminated_containers_total",
        "Cumulative number of container terminations.",
        &["container_type", "exit_code", "reason"],
    )
});

/// Sleep actions of lifecycle hooks that ended early.
pub static SLEEPS_CUT: LazyLock<IntCounter> = LazyLock::new(|| {
    counter(
        "kubelet_sleep_action_terminated_early_total",
        "The number of times lifecycle sleep handler got terminated before it finishes",
    )
});

pub static HOOK_HTTP_FALLBACKS: LazyLock<IntCounter> = LazyLock::new(|| {
    counter(
        "kubelet_lifecycle_handler_http_fallbacks_total",
        "The number of times lifecycle handlers successfully fell back to http from https.",
    )
});

pub(crate) fn declare() {
    for histogram in [&START_DURATION, &WORKER_START_DURATION] {
        LazyLock::force(histogram);
    }
    for histograms in [&START_SLI_DURATION, &START_TOTAL_DURATION, &WORKER_DURATION] {
        LazyLock::force(histograms);
    }
    for counter in [
        &STARTED_PODS,
        &STARTED_PODS_ERRORS,
        &STARTED_USER_NAMESPACED,
        &STARTED_USER_NAMESPACED_ERRORS,
        &SLEEPS_CUT,
        &HOOK_HTTP_FALLBACKS,
    ] {
        LazyLock::force(counter);
    }
    for counters in [
        &STARTED_CONTAINERS,
        &STARTED_CONTAINERS_ERRORS,
        &TERMINATED_CONTAINERS,
    ] {
        LazyLock::force(counters);
    }
    LazyLock::force(&FIRST_NETWORK_POD);
}
