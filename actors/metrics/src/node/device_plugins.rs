//! Device plugins. Upstream: pkg/kubelet/metrics (1.36).

use std::sync::LazyLock;

use prometheus::{HistogramVec, IntCounterVec};

use crate::registry::{SECONDS, counters, histograms};

const LABELS: [&str; 1] = ["resource_name"];

pub static REGISTRATIONS: LazyLock<IntCounterVec> = LazyLock::new(|| {
    counters(
        "kubelet_device_plugin_registration_total",
        "Cumulative number of device plugin registrations. Broken down by resource name.",
        &LABELS,
    )
});

pub static ALLOCATION_DURATION: LazyLock<HistogramVec> = LazyLock::new(|| {
    histograms(
        "kubelet_device_plugin_alloc_duration_seconds",
        "Duration in seconds to serve a device plugin Allocation request. Broken down by resource name.",
        &LABELS,
        &SECONDS,
    )
});

pub(crate) fn declare() {
    LazyLock::force(&REGISTRATIONS);
    LazyLock::force(&ALLOCATION_DURATION);
}
