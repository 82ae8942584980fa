//! Addresses, authorization and TLS of the servers.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::FieldErrors;
use crate::feature_gates::FeatureGates;
use crate::kubelet_configuration::KubeletConfiguration;

/// The names of Go's crypto/tls.
const CIPHER_SUITES: [&str; 27] = [
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA",
    "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_RSA_WITH_RC4_128_SHA",
    "TLS_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA",
    "TLS_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_RSA_WITH_RC4_128_SHA",
];
/// Go's numbers of P-256, P-384, P-521, X25519 and the three that join them with ML-KEM.
const CURVES: [i32; 7] = [23, 24, 25, 29, 4587, 4588, 4589];

pub(super) fn check(c: &KubeletConfiguration, gates: &FeatureGates, checks: &mut FieldErrors) {
    for (field, address) in [
        ("address", &c.address),
        ("healthzBindAddress", &c.healthz_bind_address),
    ] {
        if address.parse::<IpAddr>().is_err() {
            checks.refuse(field, format!("is {address:?}; expected an IP address"));
        }
    }
    checks.one_of(
        "authorization.mode",
        &c.authorization.mode,
        &["AlwaysAllow", "Webhook"],
    );
    check_tls(c, gates, checks);
    if c.enable_system_log_query {
        checks.require(
            gates.enabled("NodeLogQuery"),
            "enableSystemLogQuery",
            "requires feature gate NodeLogQuery",
        );
        checks.require(
            c.enable_system_log_handler,
            "enableSystemLogQuery",
            "requires enableSystemLogHandler",
        );
    }
    let hidden = &c.show_hidden_metrics_for_version;
    checks.one_of("showHiddenMetricsForVersion", hidden, &["", "1.35"]);
}

fn check_tls(c: &KubeletConfiguration, gates: &FeatureGates, checks: &mut FieldErrors) {
    if c.server_tls_bootstrap && !gates.enabled("RotateKubeletServerCertificate") {
        checks.refuse(
            "serverTLSBootstrap",
            "requires feature gate RotateKubeletServerCertificate",
        );
    }
    for suite in &c.tls_cipher_suites {
        if !CIPHER_SUITES.contains(&suite.as_str()) {
            checks.refuse(
                "tlsCipherSuites",
                format!("has {suite:?}, which does not exist"),
            );
        }
    }
    let versions = [
        "",
        "VersionTLS10",
        "VersionTLS11",
        "VersionTLS12",
        "VersionTLS13",
    ];
    checks.one_of("tlsMinVersion", &c.tls_min_version, &versions);
    let mut seen = BTreeSet::new();
    for curve in &c.tls_curve_preferences {
        if !CURVES.contains(curve) {
            checks.refuse(
                "tlsCurvePreferences",
                format!("has {curve}, which is not supported"),
            );
        } else if !seen.insert(curve) {
            checks.refuse("tlsCurvePreferences", format!("has {curve} twice"));
        }
    }
}
