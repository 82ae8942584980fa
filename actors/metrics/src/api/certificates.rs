//! The node's certificates, and its pods'. Upstream: pkg/kubelet/metrics/metrics.go, pkg/kubelet/certificate/kubelet.go
//! and pkg/kubelet/metrics/collectors/podcertificate_metrics.go (1.36).

use std::sync::LazyLock;

use prometheus::{Gauge, GaugeVec, Histogram, IntCounter};

use crate::registry::{counter, gauge, gauges, histogram};

/// Failed renewals of the client certificate.
pub static CLIENT_RENEW_ERRORS: LazyLock<IntCounter> = LazyLock::new(|| {
    counter(
        "kubelet_certificate_manager_client_expiration_renew_errors",
        "Counter of certificate renewal errors.",
    )
});

/// Failed renewals of the serving certificate.
pub static SERVER_RENEW_ERRORS: LazyLock<IntCounter> = LazyLock::new(|| {
    counter(
        "kubelet_server_expiration_renew_errors",
        "Counter of certificate renewal errors.",
    )
});

/// Seconds until the client certificate expires; negative afterwards, infinite without one.
pub static CLIENT_TTL: LazyLock<Gauge> = LazyLock::new(|| {
    gauge(
        "kubelet_certificate_manager_client_ttl_seconds",
        "Gauge of the TTL (time-to-live) of the Kubelet's client certificate. The value is in seconds until certificate expiry (negative if already expired). If client certificate is invalid or unused, the value will be +INF.",
    )
});

/// Seconds until the serving certificate expires; negative afterwards, infinite without one.
pub static SERVER_TTL: LazyLock<Gauge> = LazyLock::new(|| {
    gauge(
        "kubelet_certificate_manager_server_ttl_seconds",
        "Gauge of the shortest TTL (time-to-live) of the Kubelet's serving certificate. The value is in seconds until certificate expiry (negative if already expired). If serving certificate is invalid or unused, the value will be +INF.",
    )
});

/// Seconds that a serving certificate was used before it was replaced.
pub static SERVER_ROTATION_SECONDS: LazyLock<Histogram> = LazyLock::new(|| {
    // A minute, an hour, four hours, a day, a week; then months of thirty days: one, three, six, twelve, forty-eight.
    let buckets = [
        60.0,
        3_600.0,
        14_400.0,
        86_400.0,
        604_800.0,
        2_592_000.0,
        7_776_000.0,
        15_552_000.0,
        31_104_000.0,
        124_416_000.0,
    ];
    histogram(
        "kubelet_certificate_manager_server_rotation_seconds",
        "Histogram of the number of seconds the previous certificate lived before being rotated.",
        &buckets,
    )
});

static OF_PODS: LazyLock<GaugeVec> = LazyLock::new(|| {
    gauges(
        "kubelet_podcertificate_states",
        "Gauge vector reporting the number of pod certificate projected volume sources, faceted by signer_name and state.",
        &["signer_name", "state"],
    )
});

/// Sets the number of sources of pods' certificates by signer and state, and removes those that are gone.
pub fn of_pods<'a>(states: impl Iterator<Item = (&'a str, &'a str)>) {
    OF_PODS.reset();
    for (signer, state) in states {
        OF_PODS.with_label_values(&[signer, state]).inc();
    }
}

pub(crate) fn declare() {
    LazyLock::force(&OF_PODS);

    LazyLock::force(&CLIENT_RENEW_ERRORS);
    LazyLock::force(&SERVER_RENEW_ERRORS);
    LazyLock::force(&CLIENT_TTL);
    LazyLock::force(&SERVER_TTL);
    LazyLock::force(&SERVER_ROTATION_SECONDS);
}
