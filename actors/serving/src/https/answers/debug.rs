//! `/statusz`, `/flagz` and `/debug/flags/v`.
//!
//! Upstream: staging/src/k8s.io/component-base/zpages, apiserver/pkg/server/routes/flags.go (1.36).

use std::fmt::Write;
use std::time::Duration;

use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::header::ACCEPT;
use hyper::{Method, Request, StatusCode};
use jiff::Timestamp;

use super::Open;
use crate::http::{Answer, text};
use crate::node::Node;

const WARNING: &str = "Warning: This endpoint is not meant to be machine parseable, has no formatting \
                       compatibility guarantees and is for debugging purposes only.";
/// A number.
const LEVEL_BYTES: usize = 64;
const LEVEL_WITHIN: Duration = Duration::from_secs(10);

impl<N: Node> Open<N> {
    pub(super) fn statusz(&self, request: &Request<Incoming>) -> Answer {
        if !takes_text(request) {
            return unacceptable();
        }
        let about = self.node.about();
        let up = kernel::wall().duration_since(about.started);
        let up = up.unwrap_or_default().as_secs();
        let started = Timestamp::try_from(about.started).unwrap_or_default();
        text(
            StatusCode::OK,
            format!(
                "\nkubelet statusz\n{WARNING}\n\nStarted: {started}\nUp: {} hr {:02} min {:02} sec\n\
                 Binary version: {}\nEmulation version: {}\n\
                 Paths: /configz /flagz /healthz /metrics\n",
                up / 3600,
                up / 60 % 60,
                up % 60,
                about.version,
                about.emulates,
            ),
        )
    }

    pub(super) fn flagz(&self, request: &Request<Incoming>) -> Answer {
        if !takes_text(request) {
            return unacceptable();
        }
        let mut said = format!("\nkubelet flags\n{WARNING}\n\n");
        for (name, value) in self.node.flags() {
            writeln!(said, "{name}={value}").expect("a string takes everything");
        }
        text(StatusCode::OK, said)
    }

    pub(super) async fn verbosity(&self, request: Request<Incoming>) -> Answer {
        if request.method() != Method::PUT {
            return text(StatusCode::NOT_ACCEPTABLE, "unsupported http method\n");
        }
        let body = Limited::new(request.into_body(), LEVEL_BYTES).collect();
        let Ok(Ok(body)) = tokio::time::timeout(LEVEL_WITHIN, body).await else {
            return text(
                StatusCode::BAD_REQUEST,
                "error reading request body: found none that ends, expected a number\n",
            );
        };
        let body = String::from_utf8_lossy(&body.to_bytes()).trim().to_owned();
        let set = match body.parse::<u32>() {
            Ok(level) => self.node.set_verbosity(level),
            Err(error) => Err(error.to_string()),
        };
        match set {
            Ok(()) => text(
                StatusCode::OK,
                format!("successfully set klog.logging.verbosity to {body}\n"),
            ),
            Err(why) => text(
                StatusCode::BAD_REQUEST,
                format!("failed set klog.logging.verbosity {body}: {why}\n"),
            ),
        }
    }
}

/// Whether whoever asks takes plain text. Who does not say takes everything.
fn takes_text(request: &Request<Incoming>) -> bool {
    let mut values = request.headers().get_all(ACCEPT).into_iter().peekable();
    if values.peek().is_none() {
        return true;
    }
    let texts = values.filter_map(|value| value.to_str().ok());
    let mut kinds = texts.flat_map(|text| text.split(','));
    kinds.any(|kind| {
        let kind = kind.split(';').next().unwrap_or_default().trim();
        matches!(kind, "text/plain" | "text/*" | "*/*")
    })
}

fn unacceptable() -> Answer {
    text(
        StatusCode::NOT_ACCEPTABLE,
        "media type not acceptable, must be: text/plain\n",
    )
}
