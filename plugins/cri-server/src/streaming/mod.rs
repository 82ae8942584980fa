//! The streaming server: it serves the URLs that Exec, Attach and PortForward return.
//!
//! It speaks what CRI's streaming servers speak: the remote command protocol up to version 4 and port
//! forwarding over SPDY/3.1; and over WebSockets the remote command protocol up to version 5, port
//! forwarding, and SPDY through a tunnel. WebSocket messages are binary: base64 channels are not spoken. A URL is good
//! once, and for a minute.
//!
//! Everything that belongs to a connection lives in that connection's task, and all of them end when the server is
//! dropped.

mod connection;
mod port_forward;
mod relay;
mod remote_command;
mod request_cache;
#[cfg_attr(
    not(feature = "testing"),
    allow(unreachable_pub, reason = "the test clients show its frames")
)]
pub(crate) mod spdy;
mod terminal_size;
#[cfg(test)]
mod tests;
mod upgrade;
mod websocket;

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use accept::Acceptor;
pub use connection::{ClientGone, StreamReader, StreamWriter};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper_util::rt::{TokioIo, TokioTimer};
use proto::cri::{AttachRequest, ExecRequest, PortForwardRequest};
pub use relay::relay;
pub use remote_command::{CommandResult, RemoteStreams};
pub use terminal_size::{TerminalSize, TerminalSizeReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;
use tonic::Status;

use self::request_cache::{RequestCache, RequestCacheError};

/// Connections at a time; each uses one of at most a thousand URLs that wait.
const MAX_CONNECTIONS: usize = 4096;
/// How long a client may take to send its request's head.
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);

/// A request that was made over CRI and is served once over HTTP.
#[derive(Clone, Debug)]
pub enum StreamingRequest {
    /// Runs a command in a container.
    Exec(ExecRequest),
    /// Attaches to a container's own process.
    Attach(AttachRequest),
    /// Connects to ports of a sandbox.
    PortForward(PortForwardRequest),
}

impl StreamingRequest {
    fn path(&self) -> &'static str {
        match self {
            StreamingRequest::Exec(_) => "exec",
            StreamingRequest::Attach(_) => "attach",
            StreamingRequest::PortForward(_) => "portforward",
        }
    }

    /// Answers InvalidArgument to a command without a stream, or with a terminal and a stderr of its own.
    pub fn validate(&self) -> Result<(), Status> {
        let (stdin, stdout, stderr, tty) = match self {
            StreamingRequest::Exec(request) => {
                (request.stdin, request.stdout, request.stderr, request.tty)
            }
            StreamingRequest::Attach(request) => {
                (request.stdin, request.stdout, request.stderr, request.tty)
            }
            StreamingRequest::PortForward(_) => return Ok(()),
        };
        if tty && stderr {
            return Err(Status::invalid_argument(
                "tty and stderr cannot both be true",
            ));
        }
        if !(stdin || stdout || stderr) {
            return Err(Status::invalid_argument(
                "one of stdin, stdout, or stderr must be set",
            ));
        }
        Ok(())
    }
}

/// The runtime behind the streaming server: it connects clients' streams to containers and sandboxes.
///
/// A future is dropped when its client has gone or the connection's idle timeout has passed; it must end what it began.
pub trait StreamingBackend: Send + Sync + 'static {
    /// Runs a command in a container and returns how it ended. The streams it leaves open are closed with the
    /// connection.
    fn exec(
        &self,
        request: &ExecRequest,
        streams: RemoteStreams,
    ) -> impl Future<Output = CommandResult> + Send;

    /// Carries a container's output and input from now on until it ends.
    fn attach(
        &self,
        request: &AttachRequest,
        streams: RemoteStreams,
    ) -> impl Future<Output = CommandResult> + Send;

    /// Connects to a port of a sandbox and carries bytes both ways until the server ends; the error is the reason that
    /// the client reads. `from_client` is closed when the client has ended its half.
    fn port_forward(
        &self,
        sandbox_id: &str,
        port: u16,
        from_client: &mut StreamReader,
        to_client: &StreamWriter,
    ) -> impl Future<Output = Result<(), String>> + Send;
}

/// Requests whose URLs wait for a client.
type PendingRequests = Arc<Mutex<RequestCache<StreamingRequest>>>;

/// The streaming server of one runtime; it stops, with all its connections, when it is dropped.
#[derive(Debug)]
pub struct StreamingServer {
    address: SocketAddr,
    waiting: PendingRequests,
    serving: JoinHandle<()>,
}

impl StreamingServer {
    /// Listens on a free port of 127.0.0.1 and serves the backend's streams. Fails as `bind` fails.
    ///
    /// The server owns the backend: one that owns the server in turn must hold it weakly.
    pub async fn start(backend: impl StreamingBackend) -> io::Result<StreamingServer> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let waiting = PendingRequests::default();
        let serving = tokio::spawn(accept(listener, Arc::new(backend), waiting.clone()));
        Ok(StreamingServer {
            address,
            waiting,
            serving,
        })
    }

    /// Returns the URL under which a client may connect for this request, once and within a minute.
    ///
    /// Answers InvalidArgument to streams that CRI forbids, ResourceExhausted while a thousand URLs wait.
    pub fn url(&self, request: StreamingRequest) -> Result<String, Status> {
        request.validate()?;
        let path = request.path();
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let token = waiting
            .insert(Instant::now(), request)
            .map_err(|refused| match refused {
                RequestCacheError::Full => Status::resource_exhausted(refused.to_string()),
                RequestCacheError::Random(_) => Status::internal(refused.to_string()),
            })?;
        Ok(format!("http://{}/{path}/{token}", self.address))
    }
}

impl Drop for StreamingServer {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn accept(
    listener: TcpListener,
    backend: Arc<impl StreamingBackend>,
    waiting: PendingRequests,
) {
    let (mut connections, mut acceptor) = (JoinSet::new(), Acceptor::new("the streaming server"));
    loop {
        // A connection that has ended is forgotten; when there are too many, one must end first.
        while connections.try_join_next().is_some() {}
        if connections.len() >= MAX_CONNECTIONS {
            connections.join_next().await;
        }
        match acceptor.accept(|| listener.accept()).await {
            Ok((stream, _)) => {
                connections.spawn(serve(stream, backend.clone(), waiting.clone()));
            }
            Err(error) => {
                tracing::error!(%error, "the streaming server's socket is gone");
                return;
            }
        }
    }
}

/// Serves one connection: requests that are refused, and at last one that becomes something else.
async fn serve(stream: TcpStream, backend: Arc<impl StreamingBackend>, waiting: PendingRequests) {
    let upgraded: Arc<Mutex<Option<upgrade::UpgradedConnection>>> = Arc::default();
    let service = hyper::service::service_fn(|request: Request<Incoming>| {
        let answered = respond(request, &waiting);
        let (answer, then) = match answered {
            Ok((answer, then)) => (answer, Some(then)),
            Err(refusal) => (*refusal, None),
        };
        *upgraded.lock().unwrap_or_else(PoisonError::into_inner) = then;
        async move { Ok::<_, std::convert::Infallible>(answer) }
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    if let Err(error) = connection.await {
        tracing::debug!(%error, "a streaming connection ended");
        return;
    }
    let then = upgraded
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take();
    if let Some(then) = then {
        then.serve(&*backend).await;
    }
}

type StreamingResponse = Response<Full<Bytes>>;

fn respond(
    http: Request<Incoming>,
    waiting: &PendingRequests,
) -> Result<(StreamingResponse, upgrade::UpgradedConnection), Box<StreamingResponse>> {
    let missing = || refusal(StatusCode::NOT_FOUND, "404 page not found\n");
    if http.method() != Method::GET && http.method() != Method::POST {
        return Err(refusal(
            StatusCode::METHOD_NOT_ALLOWED,
            "405: Method Not Allowed",
        ));
    }
    let mut parts = http.uri().path().trim_start_matches('/').splitn(2, '/');
    let (path, token) = (
        parts.next().unwrap_or_default(),
        parts.next().unwrap_or_default(),
    );
    let mut waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
    let request = waiting.consume(Instant::now(), token).ok_or_else(missing)?;
    if request.path() != path {
        return Err(missing());
    }
    upgrade::begin(http, request)
}

fn refusal(status: StatusCode, text: impl Into<String>) -> Box<StreamingResponse> {
    let mut answer = Response::new(Full::new(Bytes::from(text.into())));
    *answer.status_mut() = status;
    Box::new(answer)
}
