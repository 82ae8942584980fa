//! One connection for each call, as upstream has it: a driver that comes back is simply there again.

use std::io;
use std::path::Path;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tokio::time::{Instant, sleep, timeout_at};
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Code, Request, Response, Status};
use tower::service_fn;

pub use crate::failure::Failure;

/// Between tries while the server's backlog is full, or, for one that is just starting, while it does not listen yet.
const RETRY_BACKOFF_INITIAL: Duration = Duration::from_millis(10);
const RETRY_BACKOFF_MAX: Duration = Duration::from_secs(1);

/// A driver's error comes in one header, and may quote a log.
const HEADERS_LIMIT: u32 = 256 << 10;

/// Whether a refused connection is retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectRetry {
    /// A refused connection is a failure.
    None,
    /// The socket has only just appeared: its server may not listen yet.
    Starting,
}

/// Connects to what serves gRPC at a socket; its caller has the deadline.
pub async fn connect(socket: &Path, patience: ConnectRetry) -> Result<Channel, Failure> {
    let stream = open(socket, patience).await.map_err(|error| {
        let (socket, words) = (socket.display(), os_error_text(&error));
        Failure::unreachable(format!(
            "Error while dialing: dial unix {socket}: connect: {words}"
        ))
    })?;
    let mut stream = Some(TokioIo::new(stream));
    // Servers in Go refuse the socket's path as authority: any valid name will do.
    Endpoint::from_static("http://localhost")
        .http2_max_header_list_size(HEADERS_LIMIT)
        .connect_with_connector(service_fn(move |_: Uri| {
            let stream = stream.take();
            async move { stream.ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected)) }
        }))
        .await
        .map_err(Failure::unreachable)
}

/// The system's own words in lower case and without a number, as Go prints them.
pub(crate) fn os_error_text(cause: &io::Error) -> String {
    let text = cause.to_string();
    let text = text
        .split_once(" (os error ")
        .map_or(&*text, |(words, _)| words);
    let mut letters = text.chars();
    match letters.next() {
        Some(first) if cause.raw_os_error().is_some() => {
            first.to_lowercase().chain(letters).collect()
        }
        Some(_) | None => text.to_owned(),
    }
}

async fn open(socket: &Path, patience: ConnectRetry) -> io::Result<UnixStream> {
    let mut pause = RETRY_BACKOFF_INITIAL;
    loop {
        let error = match UnixStream::connect(socket).await {
            Ok(stream) => return Ok(stream),
            Err(error) => error,
        };
        // A full backlog is the server's load, not its absence.
        let again = error.kind() == io::ErrorKind::WouldBlock
            || patience == ConnectRetry::Starting
                && error.kind() == io::ErrorKind::ConnectionRefused;
        if !again {
            return Err(error);
        }
        sleep(pause).await;
        pause = (2 * pause).min(RETRY_BACKOFF_MAX);
    }
}

/// Makes a request that tells the server how long it is waited for.
pub fn request<T>(message: T, within: Duration) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(within);
    request
}

/// Waits for a call's answer until its deadline.
///
/// # Errors
/// The server's status, or DEADLINE_EXCEEDED.
pub async fn finish<T>(
    within: Duration,
    call: impl Future<Output = Result<Response<T>, Status>>,
) -> Result<T, Failure> {
    let end = Instant::now() + within;
    match timeout_at(end, call).await {
        Ok(Ok(response)) => Ok(response.into_inner()),
        // The server watches the same deadline, and may be the first to say so.
        Ok(Err(status)) if status.code() == Code::Cancelled && Instant::now() >= end => {
            Err(Failure::late())
        }
        Ok(Err(status)) => Err(status.into()),
        Err(_) => Err(Failure::late()),
    }
}
