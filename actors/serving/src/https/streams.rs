//! A stream of the runtime, copied byte for byte: whatever protocol both ends speak once they have switched.
//!
//! Upstream: staging/src/k8s.io/apimachinery/pkg/util/proxy/upgradeaware.go (1.36).

use std::any::Any;
use std::cell::Cell;
use std::io;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use http_body_util::{BodyExt, Empty, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::header::{CONNECTION, CONTENT_LENGTH, HeaderValue, TRANSFER_ENCODING, UPGRADE};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper::{Request, Response, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::authn;
use crate::http::HandlerResponse;

/// How long a connection with the runtime's streaming server on this node may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The deadline of the runtime's switch: it may look for the container first.
pub(super) const SWITCH_TIMEOUT: Duration = Duration::from_secs(60);
/// The most bytes of a refusal that are passed on.
pub(super) const REFUSAL_BYTES: usize = 64 * 1024;
/// How long the runtime may take to send the body of a refusal.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(10);
/// The buffer of each direction, in bytes.
pub(super) const BUFFER: usize = 16 * 1024;
/// The deadline for what is left to send once an end reads no more.
pub(super) const GOODBYE_TIMEOUT: Duration = Duration::from_secs(5);

/// What is copied, and for how long.
pub(super) struct StreamForward {
    /// The runtime's URL.
    pub(super) url: String,
    pub(super) from: Option<IpAddr>,
    /// The longest time without a byte in either direction; zero is no limit.
    pub(super) idle: Duration,
    /// Kept until the stream has ended.
    pub(super) keep: Box<dyn Any>,
}

/// Why a stream cannot be carried.
#[derive(Debug, thiserror::Error)]
pub(super) enum CarryError {
    #[error("the runtime's URL {0:?} cannot be called: expected http://HOST:PORT/PATH")]
    Url(String),
    #[error("cannot connect to the runtime's streaming server: {0}")]
    Connect(io::Error),
    #[error("the runtime's streaming server does not answer: {0}")]
    Call(hyper::Error),
    #[error("the runtime's streaming server does not answer in time")]
    Late,
    #[error("invalid upgrade response: status code {0}")]
    Status(u16),
    #[error("unable to upgrade: missing upgrade headers in response")]
    Unswitched,
}

/// Sends the request on to the runtime, and copies both directions after the switch.
pub(super) async fn carry(
    carried: StreamForward,
    mut request: Request<Incoming>,
) -> Result<HandlerResponse, CarryError> {
    let here = hyper::upgrade::on(&mut request);
    let mut answer = dial(onward(&carried, request)?).await?;
    match answer.status() {
        StatusCode::SWITCHING_PROTOCOLS => {
            let there = hyper::upgrade::on(&mut answer);
            tokio::task::spawn_local(exchange(here, there, carried.idle, carried.keep));
            let (head, _) = answer.into_parts();
            Ok(Response::from_parts(head, nothing()))
        }
        _ => passed(answer).await,
    }
}

/// Asks the runtime to speak another protocol; it switches, or refuses.
pub(super) async fn dial(onward: Request<Empty<Bytes>>) -> Result<Response<Incoming>, CarryError> {
    let host = host(onward.uri())?;
    let there = tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(host)).await;
    let there = there
        .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
        .map_err(CarryError::Connect)?;
    drop(there.set_nodelay(true));
    let (mut sender, connection) = http1::handshake(TokioIo::new(there))
        .await
        .map_err(CarryError::Call)?;
    tokio::task::spawn_local(async move { drop(connection.with_upgrades().await) });
    let answer = sender.send_request(to_path(onward));
    let answer = tokio::time::timeout(SWITCH_TIMEOUT, answer)
        .await
        .map_err(|_| CarryError::Late)?
        .map_err(CarryError::Call)?;
    match answer.status() {
        StatusCode::SWITCHING_PROTOCOLS => Ok(answer),
        status if status.as_u16() < 400 => Err(CarryError::Status(status.as_u16())),
        _ => Ok(answer),
    }
}

/// The request that the runtime gets: without secrets, and with the caller's address.
pub(super) fn onward(
    carried: &StreamForward,
    request: Request<Incoming>,
) -> Result<Request<Empty<Bytes>>, CarryError> {
    let bad = || CarryError::Url(carried.url.clone());
    let uri: Uri = carried.url.parse().map_err(|_| bad())?;
    if uri.scheme_str() != Some("http") || uri.authority().is_none() {
        return Err(bad());
    }
    let (mut head, _) = request.into_parts();
    authn::strip(&mut head.headers);
    head.headers.remove(CONTENT_LENGTH);
    head.headers.remove(TRANSFER_ENCODING);
    if let Some(from) = carried.from {
        let before = head.headers.get_all("x-forwarded-for").into_iter();
        let mut all: Vec<String> = before
            .filter_map(|value| value.to_str().ok().map(str::to_owned))
            .collect();
        all.push(from.to_string());
        if let Ok(value) = HeaderValue::try_from(all.join(", ")) {
            head.headers.insert("x-forwarded-for", value);
        }
    }
    let mut onward = Request::new(Empty::new());
    *onward.method_mut() = head.method;
    *onward.uri_mut() = uri;
    *onward.headers_mut() = head.headers;
    Ok(onward)
}

fn host(uri: &Uri) -> Result<String, CarryError> {
    let authority = uri.authority();
    let authority = authority.ok_or_else(|| CarryError::Url(uri.to_string()))?;
    let port = authority.port_u16().unwrap_or(80);
    Ok(format!("{}:{port}", authority.host()))
}

/// The request target is the path alone, as a server gets it.
fn to_path(mut request: Request<Empty<Bytes>>) -> Request<Empty<Bytes>> {
    let path = request.uri().path_and_query().cloned();
    let path = path.map_or_else(|| Uri::from_static("/"), Uri::from);
    *request.uri_mut() = path;
    request
}

/// A refusal, as the runtime words it.
pub(super) async fn passed(answer: Response<Incoming>) -> Result<HandlerResponse, CarryError> {
    let (mut head, body) = answer.into_parts();
    let body = Limited::new(body, REFUSAL_BYTES).collect();
    let body = tokio::time::timeout(REFUSAL_TIMEOUT, body).await;
    let body = match body {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(_)) | Err(_) => Bytes::new(),
    };
    for name in [CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING, UPGRADE] {
        head.headers.remove(name);
    }
    Ok(Response::from_parts(head, Full::new(body).boxed_unsync()))
}

pub(super) fn nothing() -> crate::http::HttpBody {
    Empty::new().boxed_unsync()
}

async fn exchange(here: OnUpgrade, there: OnUpgrade, idle: Duration, keep: Box<dyn Any>) {
    let switched = tokio::time::timeout(SWITCH_TIMEOUT, async { tokio::try_join!(here, there) });
    match switched.await {
        Ok(Ok((here, there))) => both_ways(here, there, idle).await,
        Ok(Err(error)) => tracing::debug!("a stream did not begin: {error}"),
        Err(_) => tracing::debug!("a stream did not begin in time"),
    }
    drop(keep);
}

async fn both_ways(here: Upgraded, there: Upgraded, idle: Duration) {
    let (here_in, here_out) = tokio::io::split(TokioIo::new(here));
    let (there_in, there_out) = tokio::io::split(TokioIo::new(there));
    let last = Rc::new(Cell::new(kernel::now()));
    let to_runtime = one_way(here_in, there_out, Rc::clone(&last));
    let to_caller = one_way(there_in, here_out, Rc::clone(&last));
    let both = async { tokio::try_join!(to_runtime, to_caller).map(drop) };
    tokio::select! {
        ended = both => {
            if let Err(error) = ended {
                tracing::debug!("a stream was cut: {error}");
            }
        }
        () = silent(&last, idle) => tracing::info!("a stream was idle for {idle:?} and is ended"),
    }
}

/// Copies one direction to its end, and passes the end on: the other direction may go on.
async fn one_way(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    last: Rc<Cell<Instant>>,
) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER];
    loop {
        let read = from.read(&mut buffer).await?;
        last.set(kernel::now());
        if read == 0 {
            break;
        }
        to.write_all(&buffer[..read]).await?;
        to.flush().await?;
        last.set(kernel::now());
    }
    drop(buffer);
    let closed = tokio::time::timeout(GOODBYE_TIMEOUT, to.shutdown()).await;
    closed.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

/// Waits until the stream has been idle for too long.
pub(super) async fn silent(last: &Cell<Instant>, idle: Duration) {
    if idle.is_zero() {
        return std::future::pending().await;
    }
    loop {
        let quiet = kernel::now().saturating_duration_since(last.get());
        match idle.checked_sub(quiet) {
            Some(left) if !left.is_zero() => tokio::time::sleep(left).await,
            _ => return,
        }
    }
}
