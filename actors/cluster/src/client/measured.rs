//! What is counted of the requests, by upstream's names.

use std::time::Duration;

use http::{Method, Response};

use super::body::Answer;
use super::trouble::Trouble;

pub(super) fn latency(host: &str, method: &Method, took: Duration) {
    metrics::rest_client::DURATION
        .with_label_values(&[method.as_str(), host])
        .observe(took.as_secs_f64());
}

pub(super) fn throttled(host: &str, method: &Method, waited: Duration) {
    metrics::rest_client::RATE_LIMITER_DURATION
        .with_label_values(&[method.as_str(), host])
        .observe(waited.as_secs_f64());
}

/// Counts an attempt; every one after the first is a retry as well.
pub(super) fn answered(
    host: &str,
    method: &Method,
    attempt: usize,
    answer: &Result<Response<Answer>, Trouble>,
) {
    let code = match answer {
        Ok(answer) => answer.status().as_u16().to_string(),
        Err(_) => "<error>".to_owned(),
    };
    metrics::rest_client::REQUESTS
        .with_label_values(&[code.as_str(), method.as_str(), host])
        .inc();
    if attempt > 0 {
        metrics::rest_client::RETRIES
            .with_label_values(&[code.as_str(), method.as_str(), host])
            .inc();
    }
}
