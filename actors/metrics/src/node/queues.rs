//! Queues of work. Upstream: component-base/metrics/prometheus/workqueue (1.36).
//!
//! The kubelet has a queue for each CA file that it follows: its items are the next checks of the file. Here
//! a check begins when it is due, so no item ever waits.

use std::sync::LazyLock;
use std::time::Duration;

use prometheus::{GaugeVec, HistogramVec, IntCounterVec};

use crate::registry::{counters, gauges, histograms};

const LABELS: [&str; 1] = ["name"];
/// Buckets in seconds: ten nanoseconds to ten seconds, in Go's rounding of steps by ten.
pub(crate) const SECONDS: [f64; 10] = [
    1e-8,
    1e-7,
    1e-6,
    9.999_999_999_999_999e-6,
    9.999_999_999_999_999e-5,
    1e-3,
    1e-2,
    0.1,
    1.0,
    10.0,
];

/// The queue of checks of `clientCAFile`.
pub const CLIENT_AUTHORITIES: &str = "DynamicCABundle-client-ca-bundle";

static ADDS: LazyLock<IntCounterVec> = LazyLock::new(|| {
    counters(
        "workqueue_adds_total",
        "[BETA] Total number of adds handled by workqueue",
        &LABELS,
    )
});

static DEPTH: LazyLock<GaugeVec> = LazyLock::new(|| {
    gauges(
        "workqueue_depth",
        "[BETA] Current depth of workqueue",
        &LABELS,
    )
});

static LONGEST: LazyLock<GaugeVec> = LazyLock::new(|| {
    gauges(
        "workqueue_longest_running_processor_seconds",
        "[BETA] How many seconds has the longest running processor for workqueue been running.",
        &LABELS,
    )
});

static WAITED: LazyLock<HistogramVec> = LazyLock::new(|| {
    histograms(
        "workqueue_queue_duration_seconds",
        "[BETA] How long in seconds an item stays in workqueue before being requested.",
        &LABELS,
        &SECONDS,
    )
});

static RETRIES: LazyLock<IntCounterVec> = LazyLock::new(|| {
    counters(
        "workqueue_retries_total",
        "[BETA] Total number of retries handled by workqueue",
        &LABELS,
    )
});

static UNFINISHED: LazyLock<GaugeVec> = LazyLock::new(|| {
    gauges(
        "workqueue_unfinished_work_seconds",
        "[BETA] How many seconds of work has done that is in progress and hasn't been observed by work_duration. Large values indicate stuck threads. One can deduce the number of stuck threads by observing the rate at which this increases.",
        &LABELS,
    )
});

static WORKED: LazyLock<HistogramVec> = LazyLock::new(|| {
    histograms(
        "workqueue_work_duration_seconds",
        "[BETA] How long in seconds processing an item from workqueue takes.",
        &LABELS,
        &SECONDS,
    )
});

/// The result of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkResult {
    Done,
    /// The item is retried.
    Again,
}

/// Counts an item of a queue.
pub fn worked(name: &str, took: Duration, end: WorkResult) {
    for gauge in [&DEPTH, &LONGEST, &UNFINISHED] {
        gauge.with_label_values(&[name]).set(0.0);
    }
    ADDS.with_label_values(&[name]).inc();
    WAITED.with_label_values(&[name]).observe(0.0);
    WORKED
        .with_label_values(&[name])
        .observe(took.as_secs_f64());
    let retries = RETRIES.with_label_values(&[name]);
    if end == WorkResult::Again {
        retries.inc();
    }
}

pub(crate) fn declare() {
    for counters in [&ADDS, &RETRIES] {
        LazyLock::force(counters);
    }
    for gauges in [&DEPTH, &LONGEST, &UNFINISHED] {
        LazyLock::force(gauges);
    }
    for histograms in [&WAITED, &WORKED] {
        LazyLock::force(histograms);
    }
}
