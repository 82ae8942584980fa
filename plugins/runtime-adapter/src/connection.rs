//! One HTTP/2 connection to the runtime's socket: raw requests go out, raw answers come back.

use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use http::uri::{Authority, Scheme};
use http::{Request, Response, Uri, Version};
use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::UnixStream;
use tokio::task::JoinHandle;
use tonic::body::Body;
use tower::Service;

/// A list of a thousand containers in a few round trips; a connection's buffers grow only as they are used.
const WINDOW: u32 = 1 << 20;
/// An error of runc's comes back as one header and quotes its log.
const LONGEST_HEADERS: u32 = 256 << 10;

/// A connection; clones share it.
#[derive(Clone, Debug)]
pub(crate) struct RuntimeConnection {
    sender: SendRequest<Body>,
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectError {
    #[error("cannot connect")]
    Socket(#[source] io::Error),
    #[error("it is {found}, expected a socket")]
    NoSocket { found: &'static str },
    #[error("no HTTP/2 there")]
    Http(#[source] hyper::Error),
}

impl RuntimeConnection {
    /// Connects; the handle resolves when the connection ends.
    pub(crate) async fn open(
        socket: &Path,
    ) -> Result<(Self, JoinHandle<Result<(), hyper::Error>>), ConnectError> {
        let stream = UnixStream::connect(socket)
            .await
            .map_err(|error| refused(socket, error))?;
        Self::over(stream).await
    }

    /// Speaks HTTP/2 on a connected socket; the handle resolves when the connection ends.
    pub(crate) async fn over(
        stream: UnixStream,
    ) -> Result<(Self, JoinHandle<Result<(), hyper::Error>>), ConnectError> {
        let mut builder = Builder::new(TokioExecutor::new());
        builder
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(4 * WINDOW)
            .max_header_list_size(LONGEST_HEADERS);
        let (sender, driver) = builder
            .handshake(TokioIo::new(stream))
            .await
            .map_err(ConnectError::Http)?;
        Ok((Self { sender }, tokio::spawn(driver)))
    }

    /// Whether no request can be sent any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// Sends a request; everything but its scheme and authority stays as it is.
    pub(crate) async fn send(
        &mut self,
        mut request: Request<Body>,
    ) -> Result<Response<Incoming>, hyper::Error> {
        let mut parts = request.uri().clone().into_parts();
        parts.scheme = Some(Scheme::HTTP);
        // Servers in Go refuse a socket's path as authority: any valid name will do.
        parts.authority = Some(Authority::from_static("localhost"));
        if let Ok(uri) = Uri::from_parts(parts) {
            *request.uri_mut() = uri;
        }
        *request.version_mut() = Version::HTTP_2;
        self.sender.send_request(request).await
    }
}

/// The system says "connection refused" of anything that is no socket.
fn refused(socket: &Path, error: io::Error) -> ConnectError {
    let Ok(found) = socket.metadata().map(|metadata| metadata.file_type()) else {
        return ConnectError::Socket(error);
    };
    let found = if found.is_socket() {
        return ConnectError::Socket(error);
    } else if found.is_dir() {
        "a folder"
    } else if found.is_file() {
        "a regular file"
    } else if found.is_fifo() {
        "a FIFO"
    } else {
        "a device"
    };
    ConnectError::NoSocket { found }
}

/// For the generated clients, where the adapter itself asks.
impl Service<Request<Body>> for RuntimeConnection {
    type Response = Response<Incoming>;
    type Error = hyper::Error;
    type Future = BoxFuture<'static, Result<Response<Incoming>, hyper::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), hyper::Error>> {
        self.sender.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let mut connection = self.clone();
        Box::pin(async move { connection.send(request).await })
    }
}
