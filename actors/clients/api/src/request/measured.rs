//! Metrics of the requests, under upstream's names.

use std::time::Duration;

use http::{Method, StatusCode};
use rustls::sign::CertifiedKey;
use x509_parser::parse_x509_certificate;

pub(super) fn latency(host: &str, method: &Method, took: Duration) {
    metrics::api::rest_client::DURATION
        .with_label_values(&[method.as_str(), host])
        .observe(took.as_secs_f64());
}

pub(super) fn throttled(host: &str, method: &Method, waited: Duration) {
    metrics::api::rest_client::RATE_LIMITER_DURATION
        .with_label_values(&[method.as_str(), host])
        .observe(waited.as_secs_f64());
}

/// Counts an attempt; every one after the first is a retry as well.
pub(super) fn answered(host: &str, method: &Method, attempt: usize, code: Option<StatusCode>) {
    let code = code.map_or("<error>".to_owned(), |code| code.as_u16().to_string());
    metrics::api::rest_client::REQUESTS
        .with_label_values(&[code.as_str(), method.as_str(), host])
        .inc();
    if attempt > 0 {
        metrics::api::rest_client::RETRIES
            .with_label_values(&[code.as_str(), method.as_str(), host])
            .inc();
    }
}

/// Notes the size of a request's body.
pub(super) fn sent(host: &str, method: &Method, bytes: usize) {
    let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
    metrics::api::rest_client::REQUEST_SIZE
        .with_label_values(&[method.as_str(), host])
        .observe(bytes.into());
}

/// Notes the size of an answer's body, when it has been read.
pub(super) fn size(host: &str, method: &Method) -> ResponseSizeObserver {
    let sizes =
        metrics::api::rest_client::RESPONSE_SIZE.with_label_values(&[method.as_str(), host]);
    Box::new(move |bytes| sizes.observe(u32::try_from(bytes).unwrap_or(u32::MAX).into()))
}

/// Called with the size of an answer, in bytes.
pub(super) type ResponseSizeObserver = Box<dyn Fn(usize) + Send>;

/// Counts a run of a plugin.
pub(crate) fn plugin_ran(code: i32, how: &str) {
    metrics::api::rest_client::EXEC_PLUGIN_CALLS
        .with_label_values(&[code.to_string().as_str(), how])
        .inc();
}

/// Counts connections that begin anew for another identity.
pub(crate) fn begun_anew() {
    metrics::api::rest_client::TRANSPORTS.set(1.0);
    metrics::api::rest_client::TRANSPORT_CALLS
        .with_label_values(&["miss"])
        .inc();
}

/// Notes how long a plugin's certificate has to live.
pub(crate) fn plugin_certificate(key: Option<&CertifiedKey>) {
    if let Some((_, end)) = key.and_then(life) {
        let left = end.saturating_sub(now());
        metrics::api::rest_client::EXEC_PLUGIN_TTL.set(seconds(left));
    }
}

/// Notes how long a plugin's certificate has lived.
pub(crate) fn plugin_certificate_replaced(key: &CertifiedKey) {
    if let Some((begin, _)) = life(key) {
        let age = now().saturating_sub(begin);
        metrics::api::rest_client::EXEC_PLUGIN_ROTATION_AGE.observe(seconds(age));
    }
}

/// From when until when a certificate is good, in seconds of Unix time.
fn life(key: &CertifiedKey) -> Option<(i64, i64)> {
    let (_, certificate) = parse_x509_certificate(key.cert.first()?).ok()?;
    let validity = certificate.validity();
    Some((
        validity.not_before.timestamp(),
        validity.not_after.timestamp(),
    ))
}

fn now() -> i64 {
    kernel::timestamp().as_second()
}

#[allow(
    clippy::cast_precision_loss,
    reason = "seconds of a certificate's life are far below 2^52"
)]
fn seconds(seconds: i64) -> f64 {
    seconds as f64
}
