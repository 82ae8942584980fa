//! Calls of the container runtime. Upstream: pkg/kubelet/kuberuntime/instrumented_services.go (1.36).

pub mod images;
pub mod pleg;

use std::sync::LazyLock;
use std::time::Duration;

use prometheus::{GaugeVec, HistogramVec, IntCounterVec};

use crate::registry::{SECONDS, counters, gauges, histograms};

pub static OPERATIONS: LazyLock<IntCounterVec> = LazyLock::new(|| {
    counters(
        "kubelet_runtime_operations_total",
        "Cumulative number of runtime operations by operation type.",
        &["operation_type"],
    )
});

pub static ERRORS: LazyLock<IntCounterVec> = LazyLock::new(|| {
    counters(
        "kubelet_runtime_operations_errors_total",
        "Cumulative number of runtime operation errors by operation type.",
        &["operation_type"],
    )
});

pub static DURATION: LazyLock<HistogramVec> = LazyLock::new(|| {
    let buckets = prometheus::exponential_buckets(0.005, 2.5, 14);
    histograms(
        "kubelet_runtime_operations_duration_seconds",
        "Duration in seconds of runtime operations. Broken down by operation type.",
        &["operation_type"],
        &buckets.expect("the factor is greater than one"),
    )
});

/// Seconds to run a sandbox, by the runtime class's handler.
pub static SANDBOX_DURATION: LazyLock<HistogramVec> = LazyLock::new(|| {
    histograms(
        "kubelet_run_podsandbox_duration_seconds",
        "Duration in seconds of the run_podsandbox operations. Broken down by RuntimeClass.Handler.",
        &["runtime_handler"],
        &SECONDS,
    )
});

pub static SANDBOX_ERRORS: LazyLock<IntCounterVec> = LazyLock::new(|| {
    counters(
        "kubelet_run_podsandbox_errors_total",
        "Cumulative number of the run_podsandbox operation errors by RuntimeClass.Handler.",
        &["runtime_handler"],
    )
});

/// The Kubernetes version that loses its support of a runtime as old as this one; nothing before it is known.
static LOSING_SUPPORT: LazyLock<GaugeVec> = LazyLock::new(|| {
    gauges(
        "kubelet_cri_losing_support",
        "the Kubernetes version that the currently running CRI implementation will lose support on if not upgraded.",
        &["version"],
    )
});

/// Shows that the runtime will not do for this version of Kubernetes.
pub fn losing_support(version: &str) {
    LOSING_SUPPORT.with_label_values(&[version]).set(1.0);
}

/// Whether a call succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallResult {
    Well,
    InError,
}

/// Counts a CRI call, its duration, and its error.
pub fn called(operation: &str, took: Duration, end: CallResult) {
    OPERATIONS.with_label_values(&[operation]).inc();
    let duration = DURATION.with_label_values(&[operation]);
    duration.observe(took.as_secs_f64());
    if end == CallResult::InError {
        ERRORS.with_label_values(&[operation]).inc();
    }
}

/// Counts a RunPodSandbox call.
pub fn made_sandbox(handler: &str, took: Duration, end: CallResult) {
    let duration = SANDBOX_DURATION.with_label_values(&[handler]);
    duration.observe(took.as_secs_f64());
    if end == CallResult::InError {
        SANDBOX_ERRORS.with_label_values(&[handler]).inc();
    }
}

pub(crate) fn declare() {
    for counters in [&OPERATIONS, &ERRORS, &SANDBOX_ERRORS] {
        LazyLock::force(counters);
    }
    for histograms in [&DURATION, &SANDBOX_DURATION] {
        LazyLock::force(histograms);
    }
}
