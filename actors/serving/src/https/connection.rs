//! One connection: its handshake, its requests, and how long it may do nothing, or take nothing.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use hyper::Request;
use hyper::body::Incoming;
use hyper::rt::Executor;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use kernel::ComputeThread;
use rustls::pki_types::CertificateDer;
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::io::InspectReader;

use super::progress::{BodyProgress, ResponseBody};
use crate::connection_limiter::TrackedConnection;
use crate::http::{HandlerResponse, Traffic};

/// How long a client may take for its TLS handshake: two round trips on a slow network.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// The deadline from the first byte of a request's head to its last.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a connection may be idle between requests, as upstream's.
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);
/// How long a refused caller has to read the refusal.
const REFUSED_TIMEOUT: Duration = Duration::from_secs(5);
/// Between two looks whether the peer takes what it is sent.
const LOOK_EVERY: Duration = Duration::from_secs(15);
/// The largest head of a request: room for a token of some kilobytes and a long command. Upstream takes 1 MiB.
const HEAD_BYTES: usize = 64 * 1024;
/// The time between pings. A peer that does not answer for two of these is gone, whatever it was sent.
const ALIVE_EVERY: Duration = Duration::from_secs(30);
/// Streams at a time of one HTTP/2 connection.
const STREAMS: u32 = 100;

/// The other end of a connection.
#[derive(Debug)]
pub(super) struct TlsPeer {
    pub(super) address: SocketAddr,
    pub(super) certificates: Vec<CertificateDer<'static>>,
    /// Learns how the peer's requests are decided.
    pub(super) connection: Arc<TrackedConnection>,
}

/// Handles a peer's requests.
pub(super) trait AnswersPeer: 'static {
    async fn answer(&self, peer: &TlsPeer, request: Request<Incoming>) -> HandlerResponse;
}

/// What every connection is served with.
pub(super) struct ConnectionContext<A> {
    pub(super) handshakes: Rc<ComputeThread>,
    pub(super) tls: TlsAcceptor,
    pub(super) answers: Rc<A>,
    pub(super) traffic: Rc<Traffic>,
}

/// HTTP/2 with bounds for all that a caller may have kept for it.
fn http2_server() -> http2::Builder<ConnectionExecutor> {
    let mut server = http2::Builder::new(ConnectionExecutor);
    server
        .timer(TokioTimer::new())
        .keep_alive_interval(Some(ALIVE_EVERY))
        .keep_alive_timeout(ALIVE_EVERY)
        .max_concurrent_streams(STREAMS)
        .max_header_list_size(u32::try_from(HEAD_BYTES).unwrap_or(u32::MAX))
        .max_send_buf_size(64 * 1024);
    server
}

/// Serves a connection to its end.
pub(super) async fn serve<A: AnswersPeer>(
    stream: TcpStream,
    host: ConnectionContext<A>,
    guest: Arc<TrackedConnection>,
) {
    let Some((stream, peer)) = handshake(stream, &host, &guest).await else {
        return;
    };
    let ConnectionContext {
        answers, traffic, ..
    } = host;
    let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let (address, peer) = (peer.address, Rc::new(peer));
    let pulse = Arc::new(ConnectionActivity::of(Arc::clone(&guest)));
    let reading = Arc::clone(&pulse);
    let watched = TokioIo::new(InspectReader::new(stream, move |bytes: &[u8]| {
        if !bytes.is_empty() {
            reading.has_read();
        }
    }));
    let busy = Arc::clone(&pulse);
    let service = service_fn(move |request| {
        traffic.count_request();
        let (answers, peer) = (Rc::clone(&answers), Rc::clone(&peer));
        let answering = (busy.begin(), guest.begin());
        async move {
            let answer = answers.answer(&peer, request).await;
            let progress = answering.0.0.responds(&answer);
            Ok::<_, Infallible>(answer.map(|body| ResponseBody::new(body, progress, answering)))
        }
    });
    let ended = match is_http2 {
        true => {
            let connection = http2_server().serve_connection(watched, service);
            let end = http2::Connection::graceful_shutdown;
            while_patient(connection, &pulse, end, false).await
        }
        false => {
            let connection = http1::Builder::new()
                .max_buf_size(HEAD_BYTES)
                .serve_connection(watched, service)
                .with_upgrades();
            let end = http1::UpgradeableConnection::graceful_shutdown;
            while_patient(connection, &pulse, end, true).await
        }
    };
    if let Some(Err(error)) = ended {
        tracing::debug!("a connection with {address} ended early: {error}");
    }
}

/// Shakes hands within the timeout; returns the stream and who is at its other end.
///
/// It is the thread of handshakes that computes: the actors' thread waits for no stranger's.
async fn handshake<A>(
    stream: TcpStream,
    host: &ConnectionContext<A>,
    connection: &Arc<TrackedConnection>,
) -> Option<(TlsStream<TcpStream>, TlsPeer)> {
    let address = stream.peer_addr().ok()?;
    let shaken = host.handshakes.run(host.tls.accept(stream));
    let stream = match tokio::time::timeout(HANDSHAKE_TIMEOUT, shaken).await {
        Ok(Some(Ok(stream))) => stream,
        Ok(None) => return None,
        Ok(Some(Err(error))) => {
            tracing::debug!("TLS handshake with {address} failed: {error}");
            return None;
        }
        Err(_) => {
            tracing::debug!("TLS handshake with {address} took too long");
            return None;
        }
    };
    let certificates = stream.get_ref().1.peer_certificates();
    let peer = TlsPeer {
        address,
        certificates: certificates.unwrap_or_default().to_vec(),
        connection: Arc::clone(connection),
    };
    Some((stream, peer))
}

/// Drives a connection until it ends, has been idle for too long, or does not take what it is sent.
async fn while_patient<C, T>(
    connection: C,
    pulse: &ConnectionActivity,
    shut_down: impl Fn(Pin<&mut C>),
    heads: bool,
) -> Option<T>
where
    C: Future<Output = T>,
{
    let mut connection = pin!(connection);
    let mut closes: Option<Instant> = None;
    loop {
        let now = kernel::now();
        if closes.is_none() && pulse.connection.is_refused() {
            shut_down(connection.as_mut());
            closes = Some(now + REFUSED_TIMEOUT);
        }
        let patience = match (closes, pulse.take()) {
            (Some(at), _) => at.saturating_duration_since(now),
            // A handler may take as long as it takes; the connection notes when its response was sent.
            (None, (true, _)) => LOOK_EVERY,
            (None, (false, true)) if heads => HEAD_TIMEOUT,
            (None, (false, _)) => IDLE_TIMEOUT,
        };
        tokio::select! {
            ended = &mut connection => return Some(ended),
            () = pulse.changed.notified() => {}
            () = tokio::time::sleep(patience) => {
                if closes.is_some() || !pulse.is_busy() || pulse.is_stalled() {
                    return None;
                }
            }
        }
    }
}

/// The current activity of a connection.
#[derive(Debug)]
struct ConnectionActivity {
    connection: Arc<TrackedConnection>,
    answering: AtomicUsize,
    /// Bytes came in that are not a complete request yet.
    reading: AtomicBool,
    /// The responses that are being sent.
    sending: Mutex<Vec<Weak<BodyProgress>>>,
    changed: Notify,
}

impl ConnectionActivity {
    fn of(connection: Arc<TrackedConnection>) -> ConnectionActivity {
        ConnectionActivity {
            connection,
            answering: AtomicUsize::new(0),
            reading: AtomicBool::new(false),
            sending: Mutex::default(),
            changed: Notify::new(),
        }
    }

    /// Takes note of a response.
    fn responds(&self, answer: &HandlerResponse) -> Arc<BodyProgress> {
        let progress = Arc::new(BodyProgress::of(answer));
        let mut sending = self.sending.lock().unwrap_or_else(PoisonError::into_inner);
        sending.retain(|one| one.strong_count() > 0);
        sending.push(Arc::downgrade(&progress));
        self.changed.notify_one();
        progress
    }

    /// Whether the peer has not taken a response for too long.
    fn is_stalled(&self) -> bool {
        let now = kernel::now();
        let sending = self.sending.lock().unwrap_or_else(PoisonError::into_inner);
        let mut sending = sending.iter().filter_map(Weak::upgrade);
        sending.any(|progress| progress.is_stalled(now))
    }

    fn begin(self: &Arc<Self>) -> ActiveRequest {
        self.answering.fetch_add(1, Ordering::Relaxed);
        self.reading.store(false, Ordering::Relaxed);
        self.changed.notify_one();
        ActiveRequest(Arc::clone(self))
    }

    fn is_busy(&self) -> bool {
        self.answering.load(Ordering::Relaxed) > 0
    }

    fn take(&self) -> (bool, bool) {
        (self.is_busy(), self.reading.load(Ordering::Relaxed))
    }

    fn has_read(&self) {
        if !self.is_busy() && !self.reading.swap(true, Ordering::Relaxed) {
            self.changed.notify_one();
        }
    }
}

/// A request that is being answered.
struct ActiveRequest(Arc<ConnectionActivity>);

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        self.0.answering.fetch_sub(1, Ordering::Relaxed);
        self.0.reading.store(false, Ordering::Relaxed);
        self.0.changed.notify_one();
    }
}

/// Runs hyper's own HTTP/2 tasks on this thread.
#[derive(Debug, Clone, Copy)]
struct ConnectionExecutor;

impl<F: Future + 'static> Executor<F> for ConnectionExecutor {
    fn execute(&self, work: F) {
        tokio::task::spawn_local(async move { drop(work.await) });
    }
}
