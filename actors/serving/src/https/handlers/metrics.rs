//! `/metrics` and what is beneath it: the node's metrics as text, compressed for clients that prefer it.
//!
//! It is the text format 0.0.4 whatever the caller accepts, as upstream's without OpenMetrics is; its binary form is
//! not supported.
//!
//! Upstream: component-base/metrics/http.go (1.36), promhttp and expfmt of client_golang.

use std::io::{self, Write};
use std::time::UNIX_EPOCH;

use ::metrics::slis;
use flate2::Compression;
use flate2::write::GzEncoder;
use hyper::body::Incoming;
use hyper::header::{CONTENT_ENCODING, HeaderName, HeaderValue};
use hyper::{HeaderMap, Method, Request, StatusCode};

use super::KubeletHandlers;
use crate::http::{HandlerResponse, text, whole};
use crate::https::accept::{clauses, header, likes_gzip};
use crate::node::{KubeletHost, Metrics};

const STARTED: HeaderName = HeaderName::from_static("process-start-time-unix");

impl<N: KubeletHost> KubeletHandlers<N> {
    pub(super) async fn metrics(
        &self,
        which: Metrics,
        request: &Request<Incoming>,
    ) -> Result<HandlerResponse, HandlerResponse> {
        if which == Metrics::Slis && request.method() == Method::DELETE {
            slis::reset();
            return Ok(text(StatusCode::OK, "metrics reset\n"));
        }
        let metrics = self.node.metrics(which).await.map_err(|trouble| {
            let why = format!("An error has occurred while serving metrics:\n\n{trouble}\n");
            text(StatusCode::INTERNAL_SERVER_ERROR, why)
        })?;
        let packed = match likes_gzip(request.headers()) {
            true => packed(&metrics).ok(),
            false => None,
        };
        let kind = kind(request.headers());
        let mut answer = match packed {
            None => whole(StatusCode::OK, kind, metrics.into()),
            Some(packed) => {
                let mut answer = whole(StatusCode::OK, kind, packed.into());
                let gzip = HeaderValue::from_static("gzip");
                answer.headers_mut().insert(CONTENT_ENCODING, gzip);
                answer
            }
        };
        let started = self.node.about().started.duration_since(UNIX_EPOCH);
        let started = HeaderValue::from(started.unwrap_or_default().as_secs());
        answer.headers_mut().insert(STARTED, started);
        Ok(answer)
    }
}

fn packed(text: &str) -> io::Result<Vec<u8>> {
    let mut packed = GzEncoder::new(Vec::with_capacity(text.len() / 8), Compression::fast());
    packed.write_all(text.as_bytes())?;
    packed.finish()
}

/// The content type. No name in the text needs an escape, so the requested escaping scheme is kept.
fn kind(headers: &HeaderMap) -> &'static str {
    let mut kind = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores";
    for clause in clauses(header(headers).unwrap_or_default()) {
        match clause.param("escaping") {
            Some("allow-utf-8") => {
                kind = "text/plain; version=0.0.4; charset=utf-8; escaping=allow-utf-8";
            }
            Some("underscores") => {
                kind = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores";
            }
            Some("dots") => kind = "text/plain; version=0.0.4; charset=utf-8; escaping=dots",
            Some("values") => kind = "text/plain; version=0.0.4; charset=utf-8; escaping=values",
            Some(_) | None => {}
        }
        let is_text = (clause.kind, clause.inner) == ("text", "plain");
        if is_text && matches!(clause.param("version"), None | Some("" | "0.0.4")) {
            break;
        }
    }
    kind
}

#[cfg(test)]
mod tests {
    use hyper::header::ACCEPT;

    use super::*;

    /// Upstream's TestNegotiate of expfmt, the cases that end in text.
    #[test]
    fn the_text_is_called_by_the_escaping_that_is_asked_for() {
        let cases = [
            ("", "underscores"),
            (
                "application/openmetrics-text;version=1.0.0;q=0.5,*/*;q=0.1",
                "underscores",
            ),
            (
                "text/plain;version=0.0.4;escaping=allow-utf-8;q=0.5,*/*;escaping=dots;q=0.1",
                "allow-utf-8",
            ),
            ("text/plain;version=1.0.0;escaping=values", "values"),
            ("text/plain;escaping=dots", "dots"),
            ("text/plain;escaping=nope", "underscores"),
        ];
        for (accept, escaping) in cases {
            let headers = [(ACCEPT, HeaderValue::from_static(accept))];
            let kind = kind(&headers.into_iter().collect());
            let expected = format!("text/plain; version=0.0.4; charset=utf-8; escaping={escaping}");
            assert_eq!(kind, expected, "{accept}");
        }
    }
}
