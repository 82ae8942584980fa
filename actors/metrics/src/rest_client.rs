//! Calls of the API server. Upstream: component-base metrics/prometheus/restclient.

use std::sync::LazyLock;

use prometheus::{HistogramVec, IntCounterVec};

use crate::registry::{counters, histograms};

/// Answers by status code (`<error>` where there was none), method and host.
pub static REQUESTS: LazyLock<IntCounterVec> = LazyLock::new(|| {
    counters(
        "rest_client_requests_total",
        "Number of HTTP requests, partitioned by status code, method, and host.",
        &["code", "method", "host"],
    )
});

/// Seconds until the head of an answer, by verb and host.
pub static DURATION: LazyLock<HistogramVec> = LazyLock::new(|| {
    histograms(
        "rest_client_request_duration_seconds",
        "Request latency in seconds. Broken down by verb, and host.",
        &["verb", "host"],
        &[
            0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0,
        ],
    )
});

pub(crate) fn declare() {
    LazyLock::force(&REQUESTS);
    LazyLock::force(&DURATION);
}
