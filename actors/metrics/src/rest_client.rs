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

/// Seconds that a request waited for its lane, by verb and host.
pub static RATE_LIMITER_DURATION: LazyLock<HistogramVec> = LazyLock::new(|| {
    histograms(
        "rest_client_rate_limiter_duration_seconds",
        "Client side rate limiter latency in seconds. Broken down by verb, and host.",
        &["verb", "host"],
        &[
            0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0,
        ],
    )
});

/// Requests sent again, by status code, verb and host.
pub static RETRIES: LazyLock<IntCounterVec> = LazyLock::new(|| {
    counters(
        "rest_client_request_retries_total",
        "Number of request retries, partitioned by status code, verb, and host.",
        &["code", "verb", "host"],
    )
});

pub(crate) fn declare() {
    LazyLock::force(&RATE_LIMITER_DURATION);
    LazyLock::force(&RETRIES);
    LazyLock::force(&REQUESTS);
    LazyLock::force(&DURATION);
}
