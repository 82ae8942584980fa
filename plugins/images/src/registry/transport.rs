//! One request and its answer: connected, redirected, and never waited for without end.

use std::sync::Arc;
use std::time::Duration;

use http::header::{AUTHORIZATION, CONTENT_TYPE, LOCATION, PROXY_AUTHORIZATION, RETRY_AFTER};
use http::uri::{Authority, Scheme};
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Full};
use http_proxy::ProxyEnvironment;
use hyper::body::{Bytes, Incoming};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::RootCertStore;
use tokio::time::Instant;

use super::connector::{Connector, proxy_for};
use super::hosts::TlsFiles;
use super::meter::Meter;
use super::words::MAX_ERROR_BYTES;
use super::{Failure, Words, tls};

/// Redirects that one request follows: as many as Go's client, which other runtimes use.
const MAX_REDIRECTS: usize = 10;
/// Bytes of the head of an answer, over HTTP/1.1 and over HTTP/2.
const MAX_HEAD_BYTES: u32 = 64 << 10;
/// Headers of an answer.
const MAX_HEADERS: usize = 200;
/// How long the words of an error may take.
const ERROR_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest `Retry-After` that is believed: a day.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(86_400);
/// What a connection may have under way: enough for 50 ms and 160 Mbit/s, little enough for a small node.
const STREAM_WINDOW_BYTES: u32 = 1 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 2 << 20;

/// How long a host is waited for.
#[derive(Clone, Copy, Debug)]
pub(super) struct HostTimeouts {
    /// For a connection.
    pub(super) connect: Duration,
    /// For the head of an answer, with the connection.
    pub(super) answer: Duration,
    /// For the next bytes of a body.
    pub(super) stall: Duration,
    /// A window of a body, and the bytes that it has to bring.
    pub(super) window: Duration,
    pub(super) least_bytes: u64,
}

/// What all connections of a pull have in common.
#[derive(Clone, Debug)]
pub(super) struct Common {
    pub(super) roots: Arc<RootCertStore>,
    pub(super) proxies: Arc<ProxyEnvironment>,
}

/// Connections with one TLS configuration; they are kept for the next request.
#[derive(Clone, Debug)]
struct Transport {
    client: Client<HttpsConnector<Connector>, Full<Bytes>>,
    proxies: Arc<ProxyEnvironment>,
    timeouts: HostTimeouts,
}

/// A host, and the hosts that it leads to: its token service, and where it redirects.
///
/// The host's authorities hold for those as well, as in containerd. Its client certificate is shown to the host alone.
#[derive(Clone, Debug)]
pub(super) struct HostClient {
    name: String,
    own: Transport,
    others: Transport,
}

/// What is asked.
#[derive(Clone, Debug)]
pub(super) struct Ask {
    pub(super) method: Method,
    pub(super) uri: Uri,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

/// An answer whose head has come.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    body: Incoming,
    stall: Duration,
    meter: Meter,
}

impl Transport {
    fn new(files: &TlsFiles, common: &Common, timeouts: HostTimeouts) -> Result<Self, Failure> {
        let configure =
            |files: &TlsFiles| tls::config(files, &common.roots).map_err(Failure::Configuration);
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_connect_timeout(Some(timeouts.connect));
        tcp.set_nodelay(true);
        let connector = Connector {
            tcp,
            proxies: common.proxies.clone(),
            proxy_tls: Arc::new(configure(&TlsFiles::default())?),
        };
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(configure(files)?)
            .https_or_http()
            .enable_all_versions()
            .wrap_connector(connector);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .http1_max_buf_size(usize::try_from(MAX_HEAD_BYTES).unwrap_or(usize::MAX))
            .http1_max_headers(MAX_HEADERS)
            .http2_max_header_list_size(MAX_HEAD_BYTES)
            .http2_initial_stream_window_size(STREAM_WINDOW_BYTES)
            .http2_initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .build(connector);
        Ok(Self {
            client,
            proxies: common.proxies.clone(),
            timeouts,
        })
    }

    async fn send(&self, ask: &Ask) -> Result<Answer, Failure> {
        let mut request = Request::new(Full::new(ask.body.clone()));
        *request.method_mut() = ask.method.clone();
        *request.uri_mut() = ask.uri.clone();
        *request.headers_mut() = ask.headers.clone();
        // A request that a proxy passes on itself has the proxy's login; a tunnel had it before.
        if ask.uri.scheme() == Some(&Scheme::HTTP)
            && let Ok(Some(proxy)) = proxy_for(&self.proxies, &ask.uri)
            && let Some(login) = proxy.authorization()
        {
            request.headers_mut().insert(PROXY_AUTHORIZATION, login);
        }
        let answering = self.client.request(request);
        let answer = tokio::time::timeout(self.timeouts.answer, answering)
            .await
            .map_err(|_| Failure::Stalled(self.timeouts.answer))?
            .map_err(|error| Failure::Connection(chain(&error)))?;
        let (head, body) = Response::into_parts(answer);
        Ok(Answer {
            status: head.status,
            headers: head.headers,
            body,
            stall: self.timeouts.stall,
            meter: Meter::new(self.timeouts.window, self.timeouts.least_bytes),
        })
    }
}

impl HostClient {
    /// Makes the connections of the host `name` with these TLS files.
    pub(super) fn new(
        name: &str,
        files: &TlsFiles,
        common: &Common,
        timeouts: HostTimeouts,
    ) -> Result<Self, Failure> {
        let own = Transport::new(files, common, timeouts)?;
        let others = match files.client.is_empty() {
            true => own.clone(),
            false => {
                let files = TlsFiles {
                    client: Vec::new(),
                    ..files.clone()
                };
                Transport::new(&files, common, timeouts)?
            }
        };
        Ok(Self {
            name: name.to_ascii_lowercase(),
            own,
            others,
        })
    }

    /// Sends one request and waits for the head of the answer.
    pub(super) async fn send(&self, ask: &Ask) -> Result<Answer, Failure> {
        let host = ask.uri.host().map(str::to_ascii_lowercase);
        let is_own = host.as_deref() == Some(self.name.as_str());
        let transport = if is_own { &self.own } else { &self.others };
        transport.send(ask).await
    }

    /// Sends a GET and follows redirects; to another host than the first one without what was meant for the first one.
    pub(super) async fn get(&self, mut ask: Ask) -> Result<Answer, Failure> {
        let first = origin(&ask.uri);
        for _ in 0..=MAX_REDIRECTS {
            let answer = self.send(&ask).await?;
            let redirects = matches!(answer.status.as_u16(), 301 | 302 | 303 | 307 | 308);
            if !redirects {
                return Ok(answer);
            }
            let next = target(&ask.uri, &answer.headers)?;
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
}

impl Answer {
    /// Reads a body of at most `max` bytes.
    pub(super) async fn document(mut self, max: usize) -> Result<Vec<u8>, Failure> {
        let mut content = Vec::new();
        while let Some(piece) = self.piece().await? {
            if content.len() + piece.len() > max {
                return Err(Failure::TooLong(max));
            }
            content.extend_from_slice(&piece);
        }
        Ok(content)
    }

    /// Returns the next bytes of a body; none at its end.
    pub(super) async fn piece(&mut self) -> Result<Option<Bytes>, Failure> {
        loop {
            let since = Instant::now();
            let frame = tokio::time::timeout(self.stall, self.body.frame())
                .await
                .map_err(|_| Failure::Stalled(self.stall))?;
            let data = match frame {
                None => return Ok(None),
                Some(Err(error)) => return Err(Failure::Connection(chain(&error))),
                Some(Ok(frame)) => frame.into_data().unwrap_or_default(),
            };
            // Empty frames are no progress: the meter ends them.
            self.meter.count(since.elapsed(), data.len())?;
            if !data.is_empty() {
                return Ok(Some(data));
            }
        }
    }

    /// Returns a header, if it is text.
    pub(super) fn header(&self, name: impl http::header::AsHeaderName) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// Reads what the registry says with an error; what it does not say in time, or at length, is not waited for.
    async fn words(mut self) -> Words {
        let kind = self.header(CONTENT_TYPE).unwrap_or_default().to_owned();
        let mut content = Vec::new();
        let reading = async {
            while let Ok(Some(piece)) = self.piece().await {
                let room = MAX_ERROR_BYTES - content.len();
                content.extend_from_slice(&piece[..piece.len().min(room)]);
                if content.len() == MAX_ERROR_BYTES {
                    return;
                }
            }
        };
        // What has come until then counts.
        drop(tokio::time::timeout(ERROR_TIMEOUT, reading).await);
        Words::read(&kind, &content)
    }
}

/// Returns the answer, or the failure that its status is.
pub(super) async fn check_status(answer: Answer) -> Result<Answer, Failure> {
    let status = answer.status;
    if matches!(status, StatusCode::OK | StatusCode::PARTIAL_CONTENT) {
        return Ok(answer);
    }
    let retry_after = answer.header(RETRY_AFTER).and_then(seconds);
    let words = answer.words().await;
    Err(match status {
        StatusCode::NOT_FOUND => Failure::NotFound(words),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Failure::Denied {
            status: status.as_u16(),
            words,
        },
        other => Failure::Status {
            status: other.as_u16(),
            words,
            retry_after,
        },
    })
}

/// Reads `Retry-After` in seconds; as a date it would hang on two clocks, and is not believed.
pub(super) fn seconds(value: &str) -> Option<Duration> {
    let seconds: u64 = value.trim().parse().ok()?;
    Some(Duration::from_secs(seconds).min(MAX_RETRY_AFTER))
}

/// Scheme, host and port: what credentials belong to.
fn origin(uri: &Uri) -> (Option<Scheme>, Option<String>, Option<u16>) {
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

pub(super) fn target(from: &Uri, headers: &HeaderMap) -> Result<Uri, Failure> {
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

/// Characters of an error of the connection.
const MAX_ERROR_CHARACTERS: usize = 1_000;

/// Returns an error's text with those of its causes: hyper's own says little.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text.chars().take(MAX_ERROR_CHARACTERS).collect()
}
