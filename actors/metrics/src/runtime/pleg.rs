//! Relists of the runtime, and its stream of events. Upstream: pkg/kubelet/metrics (1.36).

use std::sync::LazyLock;

use prometheus::{Gauge, Histogram, IntCounter};

use crate::registry::{SECONDS, counter, gauge, histogram};

pub static RELIST_DURATION: LazyLock<Histogram> = LazyLock::new(|| {
    histogram(
        "kubelet_pleg_relist_duration_seconds",
        "Duration in seconds for relisting pods in PLEG.",
        &SECONDS,
    )
});

/// Seconds to inspect one pod.
pub static POD_RELIST_DURATION: LazyLock<Histogram> = LazyLock::new(|| {
    histogram(
        "kubelet_pleg_pod_relist_duration_seconds",
        "Duration in seconds for relisting a single pod in PLEG.",
        &SECONDS,
    )
});

/// Seconds from the start of one relist to the next.
pub static RELIST_INTERVAL: LazyLock<Histogram> = LazyLock::new(|| {
    histogram(
        "kubelet_pleg_relist_interval_seconds",
        "Interval in seconds between relisting in PLEG.",
        &SECONDS,
    )
});

/// Events that were dropped because the channel was full.
pub static DISCARD_EVENTS: LazyLock<IntCounter> = LazyLock::new(|| {
    counter(
        "kubelet_pleg_discard_events",
        "The number of discard events in PLEG.",
    )
});

/// When PLEG was last seen active, in seconds since the epoch.
pub static LAST_SEEN: LazyLock<Gauge> = LazyLock::new(|| {
    gauge(
        "kubelet_pleg_last_seen_seconds",
        "Timestamp in seconds when PLEG was last seen active.",
    )
});

pub static STREAM_ERRORS: LazyLock<IntCounter> = LazyLock::new(|| {
    counter(
        "kubelet_evented_pleg_connection_error_count",
        "The number of errors encountered during the establishment of streaming connection with the CRI runtime.",
    )
});

pub static STREAMS: LazyLock<IntCounter> = LazyLock::new(|| {
    counter(
        "kubelet_evented_pleg_connection_success_count",
        "The number of times a streaming client was obtained to receive CRI Events.",
    )
});

/// Seconds from the runtime's time of an event to its arrival.
pub static EVENT_LATENCY: LazyLock<Histogram> = LazyLock::new(|| {
    histogram(
        "kubelet_evented_pleg_connection_latency_seconds",
        "The latency of streaming connection with the CRI runtime, measured in seconds.",
        &SECONDS,
    )
});

pub(crate) fn declare() {
    for histogram in [
        &RELIST_DURATION,
        &POD_RELIST_DURATION,
        &RELIST_INTERVAL,
        &EVENT_LATENCY,
    ] {
        LazyLock::force(histogram);
    }
    for counter in [&DISCARD_EVENTS, &STREAM_ERRORS, &STREAMS] {
        LazyLock::force(counter);
    }
    LazyLock::force(&LAST_SEEN);
}
