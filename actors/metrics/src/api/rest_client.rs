//! Requests to the API server. Upstream: component-base metrics/prometheus/restclient.

use std::sync::LazyLock;

use prometheus::{Gauge, Histogram, HistogramVec, IntCounterVec};

use crate::registry::{counters, gauge, histogram, histograms};

/// Buckets of a request's duration, in seconds.
const SECONDS: [f64; 12] = [
    0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0,
];
/// Buckets of bodies, in bytes: 64 bytes to 16 MiB.
const BYTES: [f64; 11] = [
    64.0,
    256.0,
    512.0,
    1024.0,
    4096.0,
    16384.0,
    65536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
];
/// Buckets of certificates' ages, in seconds: ten minutes to four years.
const AGES: [f64; 11] = [
    600.0,
    1800.0,
    3600.0,
    14400.0,
    86400.0,
    604_800.0,
    2_592_000.0,
    7_776_000.0,
    15_552_000.0,
    31_104_000.0,
    124_416_000.0,
];

/// Responses by status code (`<error>` where there was none), method and host.
pub static REQUESTS: LazyLock<IntCounterVec> = LazyLock::new(|| {
    counters(
        "rest_client_requests_total",
        "Number of HTTP requests, partitioned by status code, method, and host.",
        &["code", "method", "host"],
    )
});

/// Seconds until the head of a response, by verb and host.
pub static DURATION: LazyLock<HistogramVec> = LazyLock::new(|| {
    histograms(
        "rest_client_request_duration_seconds",
        "Request latency in seconds. Broken down by verb, and host.",
        &["verb", "host"],
        &SECONDS,
    )
});

/// Seconds that a request waited for the rate limit, by verb and host.
pub static RATE_LIMITER_DURATION: LazyLock<HistogramVec> = LazyLock::new(|| {
    histograms(
        "rest_client_rate_limiter_duration_seconds",
        "Client side rate limiter latency in seconds. Broken down by verb, and host.",
        &["verb", "host"],
        &SECONDS,
    )
});

/// Retries, by status code, verb and host.
pub static RETRIES: LazyLock<IntCounterVec> = LazyLock::new(|| {
    counters(
        "rest_client_request_retries_total",
        "Number of request retries, partitioned by status code, verb, and host.",
        &["code", "verb", "host"],
    )
});

/// Bytes of a request's body, by verb and host.
pub static REQUEST_SIZE: LazyLock<HistogramVec> = LazyLock::new(|| {
    histograms(
        "rest_client_request_size_bytes",
        "Request size in bytes. Broken down by verb and host.",
        &["verb", "host"],
        &BYTES,
    )
});

/// Bytes of a response's body, by verb and host; watches are not counted.
pub static RESPONSE_SIZE: LazyLock<HistogramVec> = LazyLock::new(|| {
    histograms(
        "rest_client_response_size_bytes",
        "Response size in bytes. Broken down by verb and host.",
        &["verb", "host"],
        &BYTES,
    )
});

/// Seconds until the certificate of a credential plugin expires.
pub static EXEC_PLUGIN_TTL: LazyLock<Gauge> = LazyLock::new(|| {
    let ttl = gauge(
        "rest_client_exec_plugin_ttl_seconds",
        "Gauge of the shortest TTL (time-to-live) of the client certificate(s) managed by the auth exec plugin. The value is in seconds until certificate expiry (negative if already expired). If auth exec plugins are unused or manage no TLS certificates, the value will be +INF.",
    );
    ttl.set(f64::INFINITY);
    ttl
});

/// Seconds that a plugin's certificate lived until it was replaced.
pub static EXEC_PLUGIN_ROTATION_AGE: LazyLock<Histogram> = LazyLock::new(|| {
    histogram(
        "rest_client_exec_plugin_certificate_rotation_age",
        "Histogram of the number of seconds the last auth exec plugin client certificate lived before being rotated. If auth exec plugin client certificates are unused, histogram will contain no data.",
        &AGES,
    )
});

/// Runs of a credential plugin, by exit code and status.
pub static EXEC_PLUGIN_CALLS: LazyLock<IntCounterVec> = LazyLock::new(|| {
    counters(
        "rest_client_exec_plugin_call_total",
        "Number of calls to an exec plugin, partitioned by the type of event encountered (no_error, plugin_execution_error, plugin_not_found_error, client_internal_error) and an optional exit code. The exit code will be set to 0 if and only if the plugin call was successful.",
        &["code", "call_status"],
    )
});

/// Client identities with open connections.
pub static TRANSPORTS: LazyLock<Gauge> = LazyLock::new(|| {
    gauge(
        "rest_client_transport_cache_entries",
        "Number of transport entries in the internal cache.",
    )
});

/// New connections, because there were none of this identity.
pub static TRANSPORT_CALLS: LazyLock<IntCounterVec> = LazyLock::new(|| {
    counters(
        "rest_client_transport_create_calls_total",
        "Number of calls to get a new transport, partitioned by the result of the operation hit: obtained from the cache, miss: created and added to the cache, miss-gc: recreated and added back to the cache after being garbage collected, uncacheable: created and not cached",
        &["result"],
    )
});

pub(crate) fn declare() {
    LazyLock::force(&REQUESTS);
    LazyLock::force(&DURATION);
    LazyLock::force(&RATE_LIMITER_DURATION);
    LazyLock::force(&RETRIES);
    LazyLock::force(&REQUEST_SIZE);
    LazyLock::force(&RESPONSE_SIZE);
    LazyLock::force(&EXEC_PLUGIN_TTL);
    LazyLock::force(&EXEC_PLUGIN_ROTATION_AGE);
    LazyLock::force(&EXEC_PLUGIN_CALLS);
    LazyLock::force(&TRANSPORTS);
    LazyLock::force(&TRANSPORT_CALLS);
}
