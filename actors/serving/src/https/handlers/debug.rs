//! `/debug/flags/v`: the verbosity of the log, set while the agent runs.
//!
//! Upstream: staging/src/k8s.io/apiserver/pkg/server/routes/flags.go, component-base/logs/logs.go (1.36).

use std::time::Duration;

use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::{Method, Request, StatusCode};

use super::KubeletHandlers;
use crate::http::{HandlerResponse, text};
use crate::node::KubeletHost;

/// The longest body in bytes: it is a number.
const LEVEL_BYTES: usize = 64;
/// How long a client may take to send the body; after that its connection is not worth a slot.
const LEVEL_TIMEOUT: Duration = Duration::from_secs(10);

impl<N: KubeletHost> KubeletHandlers<N> {
    pub(super) async fn verbosity(&self, request: Request<Incoming>) -> HandlerResponse {
        if request.method() != Method::PUT {
            return text(StatusCode::NOT_ACCEPTABLE, "unsupported http method\n");
        }
        let body = Limited::new(request.into_body(), LEVEL_BYTES).collect();
        let Ok(Ok(body)) = tokio::time::timeout(LEVEL_TIMEOUT, body).await else {
            return text(
                StatusCode::BAD_REQUEST,
                "error reading request body: found none that ends, expected a number\n",
            );
        };
        let body = String::from_utf8_lossy(&body.to_bytes()).trim().to_owned();
        let Ok(level) = body.parse::<u32>() else {
            let is_number = !body.is_empty() && body.bytes().all(|byte| byte.is_ascii_digit());
            let why = match is_number {
                true => "value out of range",
                false => "invalid syntax",
            };
            let why = format!("strconv.ParseUint: parsing {body:?}: {why}\n");
            return text(StatusCode::BAD_REQUEST, why);
        };
        match self.node.set_verbosity(level) {
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
