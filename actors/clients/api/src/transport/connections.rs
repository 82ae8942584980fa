//! The connections to the API server: one, shared by everything, unless a hundred answers are under way at once.
//!
//! Where the server speaks HTTP/2 (every API server does), a connection is pinged while it is silent, so that a dead
//! one is noticed within 45 s, as upstream's. Where it does not, each request has a connection of its own.

use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::{BoxFuture, Either, select};
use http::{Request, Response};
use http_proxy::Proxy;
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper::rt::{Read, Write};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use kernel::{error_chain, watch};
use kube::client::Body;
use tokio::sync::Notify;

use super::dial::Dial;
use super::proxy;
use super::stream::{self, PING_AFTER, PING_TIMEOUT};
use super::tls::TlsContext;
use crate::RequestLane;
use crate::error::ApiError;

/// The deadline of a connect, after which the next request tries anew.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Answers under way on one connection: what a server that names no number allows.
const STREAMS: usize = 100;
/// How many of these are reserved for the heartbeat.
const KEPT: usize = 4;
/// Connections at most; beyond them answers wait for one another.
const CONNECTIONS: usize = 8;

/// The server's address, and whether TLS is used.
#[derive(Debug)]
pub(super) struct ServerAddress {
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) tls: Option<TlsContext>,
    pub(super) dial: Dial,
    /// None where the server is reached directly.
    pub(super) proxy: Option<Proxy>,
    /// For a proxy that speaks TLS.
    pub(super) proxy_tls: Option<TlsContext>,
}

/// The connections of one identity.
pub(crate) struct ConnectionPool {
    target: ServerAddress,
    /// Held for moments only: nothing waits for another one's connect but [`ConnectionPool::dialled`].
    open: Mutex<Vec<PooledConnection>>,
    dialling: tokio::sync::Mutex<DialOutcome>,
    opened: Notify,
    /// Connects that have failed.
    failures: AtomicUsize,
    wanted: watch::Sender<bool>,
}

/// The last failed connect, for the requests that waited for it.
#[derive(Default)]
struct DialOutcome(Option<ApiError>);

#[derive(Clone)]
struct PooledConnection {
    sender: http2::SendRequest<Body>,
    load: Arc<AtomicUsize>,
}

/// An answer under way, counted until it is dropped.
pub(crate) struct StreamPermit(Arc<AtomicUsize>);

impl StreamPermit {
    fn on(load: &Arc<AtomicUsize>) -> StreamPermit {
        load.fetch_add(1, Ordering::Relaxed);
        StreamPermit(Arc::clone(load))
    }
}

impl Drop for StreamPermit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The sending half of a connection.
enum RequestSender {
    Shared(http2::SendRequest<Body>),
    Own(http1::SendRequest<Body>),
}

/// Why a request has no head of an answer.
#[allow(
    clippy::large_enum_variant,
    reason = "one at a time, and taken apart at once"
)]
pub(crate) enum RequestSendError {
    /// No connection could be made.
    Unconnected(ApiError),
    /// The connection ended before the request went out: it may be sent again, whatever its method.
    Unsent(Request<Body>),
    /// The connection ended after that.
    Broken(ApiError),
}

impl ConnectionPool {
    pub(super) fn new(target: ServerAddress) -> ConnectionPool {
        ConnectionPool {
            target,
            open: Mutex::default(),
            dialling: tokio::sync::Mutex::default(),
            opened: Notify::new(),
            failures: AtomicUsize::new(0),
            wanted: watch::Sender::new(true),
        }
    }

    /// Lets what is under way come to its end, but for the watches, which end now and are taken up elsewhere.
    pub(super) fn retire(&self) {
        self.wanted.send_replace(false);
    }

    /// Ends when these connections are no longer wanted.
    pub(crate) fn retired(&self) -> BoxFuture<'static, ()> {
        let mut wanted = self.wanted.subscribe();
        Box::pin(async move {
            // An error means that the sender is gone: the connections are not wanted either.
            drop(wanted.wait_for(|wanted| !wanted).await);
        })
    }

    /// Sends a request, and waits for the head of its answer.
    pub(crate) async fn send(
        &self,
        lane: RequestLane,
        request: Request<Body>,
    ) -> Result<(Response<Incoming>, StreamPermit), RequestSendError> {
        let (sender, place) = self
            .sender(lane)
            .await
            .map_err(RequestSendError::Unconnected)?;
        let sent = match sender {
            RequestSender::Shared(mut sender) => sender.try_send_request(request).await,
            RequestSender::Own(mut sender) => sender.try_send_request(origin_form(request)).await,
        };
        let mut error = match sent {
            Ok(response) => return Ok((response, place)),
            Err(error) => error,
        };
        Err(match error.take_message() {
            Some(request) => RequestSendError::Unsent(request),
            None => RequestSendError::Broken(ApiError::unreachable(error_chain(error.error()))),
        })
    }

    /// A connection with room, or a new one.
    async fn sender(&self, lane: RequestLane) -> Result<(RequestSender, StreamPermit), ApiError> {
        if let Some(open) = self.with_room(lane) {
            return Ok(open);
        }
        match lane {
            // The lease waits for no other request's connect.
            RequestLane::Heartbeat => self.connected().await,
            RequestLane::Work | RequestLane::Events | RequestLane::UnknownTokens => {
                self.dialled(lane).await
            }
        }
    }

    /// An open connection with room.
    fn with_room(&self, lane: RequestLane) -> Option<(RequestSender, StreamPermit)> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|line| !line.sender.is_closed());
        let most = match lane {
            RequestLane::Heartbeat => STREAMS,
            RequestLane::Work | RequestLane::Events | RequestLane::UnknownTokens => STREAMS - KEPT,
        };
        let load = |line: &&PooledConnection| line.load.load(Ordering::Relaxed);
        let least = open.iter().min_by_key(load);
        let line = least.filter(|line| load(line) < most || open.len() >= CONNECTIONS)?;
        let sender = RequestSender::Shared(line.sender.clone());
        Some((sender, StreamPermit::on(&line.load)))
    }

    /// A connection that opens meanwhile is as good as one's own.
    async fn dialled(&self, lane: RequestLane) -> Result<(RequestSender, StreamPermit), ApiError> {
        loop {
            let opened = pin!(self.opened.notified());
            if let Some(open) = self.with_room(lane) {
                return Ok(open);
            }
            if let Either::Left((dialled, _)) = select(pin!(self.dial_in_turn(lane)), opened).await
            {
                return dialled;
            }
        }
    }

    /// One request makes a connection; the others wait for it, and share its failure, rather than make their own.
    async fn dial_in_turn(
        &self,
        lane: RequestLane,
    ) -> Result<(RequestSender, StreamPermit), ApiError> {
        let failures = self.failures.load(Ordering::Relaxed);
        let mut dialling = self.dialling.lock().await;
        if let Some(open) = self.with_room(lane) {
            return Ok(open);
        }
        let has_failed = self.failures.load(Ordering::Relaxed) != failures;
        if let Some(error) = dialling.0.as_ref().filter(|_| has_failed) {
            return Err(error.clone());
        }
        let connected = self.connected().await;
        if let Err(error) = &connected {
            self.failures.fetch_add(1, Ordering::Relaxed);
            dialling.0 = Some(error.clone());
        }
        connected
    }

    async fn connected(&self) -> Result<(RequestSender, StreamPermit), ApiError> {
        let connecting = connect(&self.target);
        let sender = tokio::time::timeout(CONNECT_TIMEOUT, connecting)
            .await
            .map_err(|_| ApiError::unreachable(format!("no connection to {}", self.target)))??;
        let load = Arc::default();
        let place = StreamPermit::on(&load);
        if let RequestSender::Shared(sender) = &sender {
            let sender = sender.clone();
            let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
            open.push(PooledConnection { sender, load });
            drop(open);
            self.opened.notify_waiters();
        }
        Ok((sender, place))
    }
}

impl std::fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

/// HTTP/1.1 wants the path alone, and the host as a header.
fn origin_form(mut request: Request<Body>) -> Request<Body> {
    let authority = request.uri().authority().map(ToString::to_string);
    if let Some(host) = authority.and_then(|host| http::HeaderValue::try_from(host).ok()) {
        request.headers_mut().insert(http::header::HOST, host);
    }
    if let Some(path) = request.uri().path_and_query() {
        *request.uri_mut() = http::Uri::from(path.clone());
    }
    request
}

async fn connect(target: &ServerAddress) -> Result<RequestSender, ApiError> {
    let no_way = |error: &dyn std::error::Error| {
        ApiError::unreachable(format!("no connection to {target}: {}", error_chain(error)))
    };
    if let Dial::Pipe(dial) = &target.dial {
        let stream = dial().map_err(|error| no_way(&error))?;
        // h2 remembers a stream that was reset for a second of the machine's clock, which is not the pipe's.
        return http2(TokioIo::new(stream), Some(0)).await;
    }
    let stream = match &target.proxy {
        Some(way) => proxy::connect(way, &target.host, target.port, target.proxy_tls.as_ref())
            .await
            .map_err(|error| no_way(&error))?,
        None => stream::connect(&target.host, target.port)
            .await
            .map_err(|error| no_way(&error))?,
    };
    let Some(tls) = &target.tls else {
        return shake(TokioIo::new(stream), HttpVersion::Http1).await;
    };
    let stream = tls.connect(stream).await.map_err(|error| no_way(&error))?;
    let protocol = match stream.get_ref().1.alpn_protocol() {
        Some(b"h2") => HttpVersion::Http2,
        Some(_) | None => HttpVersion::Http1,
    };
    shake(TokioIo::new(stream), protocol).await
}

/// The protocol that both sides agreed on (ALPN).
enum HttpVersion {
    Http1,
    Http2,
}

async fn shake<IO>(io: IO, protocol: HttpVersion) -> Result<RequestSender, ApiError>
where
    IO: Read + Write + Unpin + Send + 'static,
{
    match protocol {
        HttpVersion::Http2 => http2(io, None).await,
        HttpVersion::Http1 => {
            let (sender, connection) = http1::handshake(io)
                .await
                .map_err(|error| ApiError::unreachable(error_chain(&error)))?;
            tokio::spawn(async move { ended(connection.await) });
            Ok(RequestSender::Own(sender))
        }
    }
}

/// Begins HTTP/2; h2 remembers at most so many streams that were reset, or its own number.
async fn http2<IO>(io: IO, resets: Option<usize>) -> Result<RequestSender, ApiError>
where
    IO: Read + Write + Unpin + Send + 'static,
{
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_AFTER)
        .keep_alive_timeout(PING_TIMEOUT)
        .keep_alive_while_idle(true);
    if let Some(resets) = resets {
        builder.max_concurrent_reset_streams(resets);
    }
    let shaken = builder.handshake(io).await;
    let (sender, connection) =
        shaken.map_err(|error| ApiError::unreachable(error_chain(&error)))?;
    tokio::spawn(async move { ended(connection.await) });
    Ok(RequestSender::Shared(sender))
}

fn ended(end: hyper::Result<()>) {
    if let Err(error) = end {
        tracing::debug!(
            "connection to the API server ended: {}",
            error_chain(&error)
        );
    }
}
