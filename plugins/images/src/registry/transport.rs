//! One request and its answer: connected, redirected, and never waited for without end.

use std::time::Duration;

use http::header::{AUTHORIZATION, LOCATION};
use http::uri::{Authority, Scheme};
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};

use super::Failure;
use super::hosts::TlsFiles;
use super::tls;

const REDIRECTS_MAX: usize = 10;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// What a connection may have under way: enough for 50 ms and 160 Mbit/s, little enough for a small node.
const STREAM_WINDOW_BYTES: u32 = 1 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 2 << 20;
const READ_BUFFER_BYTES: usize = 64 << 10;

/// Connections with one TLS configuration; they are kept for the next request.
#[derive(Clone, Debug)]
pub(super) struct Transport {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    stall: Duration,
}

/// What is asked.
#[derive(Clone, Debug)]
pub(super) struct Ask {
    pub(super) method: Method,
    pub(super) uri: Uri,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl Transport {
    pub(super) fn new(files: &TlsFiles, stall: Duration) -> Result<Self, Failure> {
        let config = tls::config(files).map_err(Failure::Configuration)?;
        let mut http = HttpConnector::new();
        http.enforce_http(false);
        http.set_connect_timeout(Some(CONNECT_TIMEOUT));
        http.set_nodelay(true);
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(config)
            .https_or_http()
            .enable_all_versions()
            .wrap_connector(http);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .http1_max_buf_size(READ_BUFFER_BYTES)
            .http2_initial_stream_window_size(STREAM_WINDOW_BYTES)
            .http2_initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .build(connector);
        Ok(Self { client, stall })
    }

    /// Sends one request and waits for the head of the answer.
    pub(super) async fn send(&self, ask: &Ask) -> Result<Response<Incoming>, Failure> {
        let mut request = Request::new(Full::new(ask.body.clone()));
        *request.method_mut() = ask.method.clone();
        *request.uri_mut() = ask.uri.clone();
        *request.headers_mut() = ask.headers.clone();
        let answer = tokio::time::timeout(self.stall, self.client.request(request)).await;
        let answer = answer.map_err(|_| Failure::Stalled(self.stall))?;
        answer.map_err(|error| Failure::Connection(chain(&error)))
    }

    /// Sends a GET and follows redirects; on another host than the first one only by `foreign`, and without what was
    /// meant for the first one.
    pub(super) async fn get(
        &self,
        mut ask: Ask,
        foreign: &Self,
    ) -> Result<Response<Incoming>, Failure> {
        let first = origin(&ask.uri);
        for _ in 0..=REDIRECTS_MAX {
            let at_home = origin(&ask.uri) == first;
            let transport = if at_home { self } else { foreign };
            let answer = transport.send(&ask).await?;
            let redirects = matches!(answer.status().as_u16(), 301 | 302 | 303 | 307 | 308);
            if !redirects {
                return Ok(answer);
            }
            let next = target(&ask.uri, answer.headers())?;
            if ask.uri.scheme() == Some(&Scheme::HTTPS) && next.scheme() != Some(&Scheme::HTTPS) {
                return Err(Failure::Redirect("from https to http"));
            }
            if origin(&next) != first {
                // Not the credentials, and not the headers of hosts.toml either, which may be some.
                ask.headers.remove(AUTHORIZATION);
                ask.headers = super::fetch::harmless(&ask.headers);
            }
            ask.uri = next;
        }
        Err(Failure::Redirect("too many"))
    }

    /// Reads a body of at most `max` bytes.
    pub(super) async fn document(
        &self,
        answer: Response<Incoming>,
        max: usize,
    ) -> Result<Vec<u8>, Failure> {
        let mut body = answer.into_body();
        let mut content = Vec::new();
        while let Some(piece) = self.piece(&mut body).await? {
            if content.len() + piece.len() > max {
                return Err(Failure::TooLong(max));
            }
            content.extend_from_slice(&piece);
        }
        Ok(content)
    }

    /// Returns the next bytes of a body; none at its end.
    pub(super) async fn piece(&self, body: &mut Incoming) -> Result<Option<Bytes>, Failure> {
        loop {
            let frame = tokio::time::timeout(self.stall, body.frame()).await;
            match frame.map_err(|_| Failure::Stalled(self.stall))? {
                None => return Ok(None),
                Some(Err(error)) => return Err(Failure::Connection(chain(&error))),
                Some(Ok(frame)) => match frame.into_data() {
                    // A registry that sends nothing in many frames is bound by the pull's deadline.
                    Ok(data) if !data.is_empty() => return Ok(Some(data)),
                    _ => {}
                },
            }
        }
    }
}

/// Returns the failure that an answer's status is, if it is one.
pub(super) fn status(answer: &Response<Incoming>) -> Result<(), Failure> {
    match answer.status() {
        StatusCode::OK | StatusCode::PARTIAL_CONTENT => Ok(()),
        StatusCode::NOT_FOUND => Err(Failure::NotFound),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            Err(Failure::Denied(answer.status().as_u16()))
        }
        other => Err(Failure::Status(other.as_u16())),
    }
}

/// Scheme, host and port: what credentials belong to.
pub(super) fn origin(uri: &Uri) -> (Option<Scheme>, Option<String>, Option<u16>) {
    let default = match uri.scheme_str() {
        Some("https") => 443,
        _ => 80,
    };
    let host = uri.host().map(str::to_ascii_lowercase);
    (
        uri.scheme().cloned(),
        host,
        uri.port_u16().or(Some(default)),
    )
}

fn target(from: &Uri, headers: &HeaderMap) -> Result<Uri, Failure> {
    let location = headers
        .get(LOCATION)
        .and_then(|location| location.to_str().ok());
    let location = location.ok_or(Failure::Redirect("it has no location"))?;
    let next: Uri = location
        .parse()
        .map_err(|_| Failure::Redirect("its location is no URL"))?;
    if next.scheme().is_some() && next.authority().is_some() {
        return match next.scheme_str() {
            Some("http" | "https") => Ok(next),
            _ => Err(Failure::Redirect("neither to http nor to https")),
        };
    }
    if !location.starts_with('/') || location.starts_with("//") {
        return Err(Failure::Redirect("its location is relative to a folder"));
    }
    let mut parts = next.into_parts();
    parts.scheme = from.scheme().cloned();
    parts.authority = from
        .authority()
        .cloned()
        .or_else(|| Authority::try_from("").ok());
    Uri::from_parts(parts).map_err(|_| Failure::Redirect("its location is no URL"))
}

/// Returns an error's text with those of its causes: hyper's own says little.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
