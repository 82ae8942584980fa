//! Requests at the kubelet's own servers. Upstream: pkg/kubelet/server/metrics.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use prometheus::{GaugeVec, HistogramVec, IntCounterVec};

use crate::registry::{SECONDS, counters, gauges, histograms};

const LABELS: [&str; 4] = ["method", "path", "server_type", "long_running"];

/// Requests since the start, by method, path, server type and whether it runs long.
pub static REQUESTS: LazyLock<IntCounterVec> = LazyLock::new(|| {
    counters(
        "kubelet_http_requests_total",
        "Number of the http requests received since the server started",
        &LABELS,
    )
});

/// Seconds until a request was answered.
pub static DURATION: LazyLock<HistogramVec> = LazyLock::new(|| {
    histograms(
        "kubelet_http_requests_duration_seconds",
        "Duration in seconds to serve http requests",
        &LABELS,
        &SECONDS,
    )
});

/// Requests that are being answered.
pub static INFLIGHT: LazyLock<GaugeVec> = LazyLock::new(|| {
    gauges(
        "kubelet_http_inflight_requests",
        "Number of the inflight http requests",
        &LABELS,
    )
});

/// Streams over WebSockets: `exec`, `attach`, `portforward`.
pub static WEBSOCKETS: LazyLock<IntCounterVec> = LazyLock::new(|| {
    counters(
        "kubelet_websocket_streaming_requests_total",
        "Total number of WebSocket streaming requests (exec/attach/portforward) received by the kubelet.",
        &["subresource"],
    )
});

/// A request while it is answered.
#[derive(Debug)]
pub struct RequestTimer {
    labels: [&'static str; 4],
    began: Instant,
    clock: fn() -> Instant,
}

/// Counts a request at a server of this type (`readwrite` or `readonly`) as under way until the value is dropped.
pub fn begin(
    method: &str,
    path: &str,
    server_type: &'static str,
    clock: fn() -> Instant,
) -> RequestTimer {
    let path = bucket(path);
    let long_running = match path {
        "exec" | "attach" | "portforward" | "debug" => "true",
        _ => "false",
    };
    let labels = [method_bucket(method), path, server_type, long_running];
    REQUESTS.with_label_values(&labels).inc();
    INFLIGHT.with_label_values(&labels).inc();
    RequestTimer {
        labels,
        began: clock(),
        clock,
    }
}

impl Drop for RequestTimer {
    fn drop(&mut self) {
        let taken = (self.clock)().saturating_duration_since(self.began);
        INFLIGHT.with_label_values(&self.labels).dec();
        DURATION
            .with_label_values(&self.labels)
            .observe(Duration::as_secs_f64(&taken));
    }
}

fn method_bucket(method: &str) -> &'static str {
    let known = [
        "OPTIONS", "GET", "HEAD", "POST", "PUT", "DELETE", "TRACE", "CONNECT",
    ];
    let found = known.into_iter().find(|known| *known == method);
    found.unwrap_or("other")
}

/// Returns the root of a path; `other` if it is none of the server's.
fn bucket(path: &str) -> &'static str {
    let known = [
        "healthz",
        "pods",
        "stats",
        "metrics",
        "metrics/cadvisor",
        "metrics/probes",
        "metrics/resource",
        "run",
        "exec",
        "attach",
        "portForward",
        "containerLogs",
        "configz",
        "runningpods",
        "checkpoint",
        "pprof",
        "logs",
        "debug",
        "statusz",
        "flagz",
    ];
    let path = path.strip_prefix('/').unwrap_or(path);
    let mut parts = path.splitn(3, '/');
    let (first, second) = (parts.next().unwrap_or_default(), parts.next());
    let is_it = |known: &&str| match (first, second) {
        ("metrics", Some(second)) => known.strip_prefix("metrics/") == Some(second),
        (first, _) => *known == first,
    };
    known.into_iter().find(is_it).unwrap_or("other")
}

pub(crate) fn declare() {
    for counters in [&REQUESTS, &WEBSOCKETS] {
        LazyLock::force(counters);
    }
    LazyLock::force(&DURATION);
    LazyLock::force(&INFLIGHT);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Upstream's TestMetricBuckets, TestMetricMethodBuckets, TestTrimURLPath.
    #[test]
    fn paths_and_methods_are_counted_by_their_roots() {
        let cases = [
            ("/healthz", "healthz"),
            ("/healthz/", "healthz"),
            ("/healthz/log", "healthz"),
            ("/healthz/ping", "healthz"),
            ("/healthz/syncloop", "healthz"),
            ("/attach/podNamespace/podID/containerName", "attach"),
            ("/attach/podNamespace/podID/uid/containerName", "attach"),
            ("/attach/a/b/c?x", "attach"),
            ("/configz", "configz"),
            (
                "/containerLogs/podNamespace/podID/containerName",
                "containerLogs",
            ),
            ("/debug/flags/v", "debug"),
            ("/debug/pprof/subpath", "debug"),
            ("/exec/podNamespace/podID/containerName", "exec"),
            ("/exec/podNamespace/podID/uid/containerName", "exec"),
            ("/logs/", "logs"),
            ("/logs/logpath", "logs"),
            ("/metrics", "metrics"),
            ("/metrics/", "other"),
            ("/metrics/cadvisor", "metrics/cadvisor"),
            ("/metrics/probes", "metrics/probes"),
            ("/metrics/resource", "metrics/resource"),
            ("/metrics/resource/sub", "metrics/resource"),
            ("/metrics/hello", "other"),
            ("/pods", "pods"),
            ("/pods/", "pods"),
            ("pods", "pods"),
            ("pods/probes", "pods"),
            ("/portForward/podNamespace/podID", "portForward"),
            ("/portForward/podNamespace/podID/uid", "portForward"),
            ("/run/podNamespace/podID/containerName", "run"),
            ("/run/podNamespace/podID/uid/containerName", "run"),
            ("/runningpods/", "runningpods"),
            ("/stats/", "stats"),
            ("/stats/summary", "stats"),
            ("/statusz", "statusz"),
            ("/flagz", "flagz"),
            ("/junk", "other"),
            ("/healthzjunk", "other"),
            ("/", "other"),
            ("//", "other"),
            ("", "other"),
        ];
        for (path, expected) in cases {
            assert_eq!(bucket(path), expected, "{path}");
        }
        assert_eq!(method_bucket("GET"), "GET");
        assert_eq!(method_bucket("POST"), "POST");
        assert_eq!(method_bucket("WEIRD"), "other");
        assert_eq!(method_bucket("PATCH"), "other");
        assert_eq!(method_bucket("get"), "other");
    }
}
