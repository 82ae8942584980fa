//! HTTP/1 for servers with small responses: bounded connections, bounded waits.
//!
//! Request bodies are never read; all parameters are in path and query. hyper answers
//! what is no HTTP with 400 and closes.

use std::cell::Cell;
use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use accept::Acceptor;
use futures_util::Stream;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame, Incoming, SizeHint};
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use percent_encoding::percent_decode_str;
use serde::Serialize;
use tokio::task::{JoinError, JoinSet};

use crate::connection_limiter::{ConnectionLimiter, ConnectionLimits, TrackedConnection};
use crate::listen::Listen;

/// The deadline for the head of a request, and of an idle connection.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// The largest head of a request: far more than the longest path and query that mean anything here.
const HEAD_BYTES: usize = 16 * 1024;

/// A response of a handler.
pub type HandlerResponse = Response<HttpBody>;
/// Its body, which may be produced while it is sent.
pub type HttpBody = UnsyncBoxBody<Bytes, Infallible>;

/// Handles requests.
#[allow(
    async_fn_in_trait,
    reason = "servers stay on their thread, so the futures need no Send"
)]
pub trait RequestHandler: 'static {
    async fn answer(&self, request: Request<Incoming>) -> HandlerResponse;
}

/// Limits of a server's connections.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Connections at a time; beyond them idle ones make room, and without an idle one the next waits in the backlog.
    pub connections: usize,
    /// The longest life of one connection; none is no limit.
    pub life: Option<Duration>,
}

/// A server's counts of connections and requests.
#[derive(Debug, Default)]
pub struct Traffic {
    connections: Cell<usize>,
    requests: Cell<u64>,
}

impl Traffic {
    pub fn connections(&self) -> usize {
        self.connections.get()
    }

    pub fn requests(&self) -> u64 {
        self.requests.get()
    }

    pub(crate) fn count_request(&self) {
        self.requests.set(self.requests.get() + 1);
    }
}

/// Serves until no connection can be accepted any more.
pub async fn serve<L: Listen, A: RequestHandler>(
    listener: L,
    answers: Rc<A>,
    traffic: Rc<Traffic>,
    limits: Limits,
) -> io::Error {
    let counted = Rc::clone(&traffic);
    accept(
        listener,
        counted,
        ConnectionLimits::of_open_port(limits.connections),
        move |stream, guest| {
            let (answers, traffic) = (Rc::clone(&answers), Rc::clone(&traffic));
            let service = ConnectionService {
                answers,
                traffic,
                guest,
            };
            connection(stream, service, limits.life)
        },
    )
    .await
}

/// Gives every connection a task of its own, within these limits, until none can be accepted any more. At a
/// limit another one makes room.
pub(crate) async fn accept<L, F>(
    listener: L,
    traffic: Rc<Traffic>,
    limits: ConnectionLimits,
    serve: impl Fn(L::Stream, Arc<TrackedConnection>) -> F,
) -> io::Error
where
    L: Listen,
    F: Future<Output = ()> + 'static,
{
    let (mut connections, mut guests) = (JoinSet::new(), ConnectionLimiter::new(limits));
    let mut acceptor = Acceptor::new("a server of the agent");
    loop {
        let room = guests.has_room();
        // All arms are cancel-safe: a connection that was not returned is accepted next time.
        tokio::select! {
            accepted = acceptor.accept(|| listener.accept()), if room => match accepted {
                Ok((stream, from)) => {
                    let guest = guests.welcome(from);
                    let task = connections.spawn_local(serve(stream, Arc::clone(&guest)));
                    guests.seat(guest, task);
                }
                Err(error) => return error,
            },
            Some(ended) = connections.join_next() => ended.unwrap_or_else(|error| broke(&error)),
            () = guests.freed(), if !room => {}
        }
        traffic.connections.set(connections.len());
    }
}

/// The handler of a connection's requests, and the connection.
struct ConnectionService<A> {
    answers: Rc<A>,
    traffic: Rc<Traffic>,
    guest: Arc<TrackedConnection>,
}

async fn connection<S, A>(stream: S, service: ConnectionService<A>, life: Option<Duration>)
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + 'static,
    A: RequestHandler,
{
    let service = service_fn(move |request| {
        service.traffic.count_request();
        // The port asks nobody who they are: a complete request is all that there is to know.
        service.guest.permit();
        let (answers, served) = (Rc::clone(&service.answers), service.guest.begin());
        async move {
            let answer = answers.answer(request).await;
            Ok::<_, Infallible>(answer.map(|body| with_guard(body, served)))
        }
    });
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    let ended = match life {
        Some(life) => tokio::time::timeout(life, serving).await.unwrap_or(Ok(())),
        None => serving.await,
    };
    if let Err(error) = ended {
        tracing::debug!("a connection ended early: {error}");
    }
}

fn broke(error: &JoinError) {
    if error.is_cancelled() {
        return tracing::debug!("a connection made room for another one");
    }
    tracing::error!("answering a request broke: {error}");
}

/// The system is short of something now, and may have it later.
/// Whether the listener itself is no listener any more.
/// A plain text response, as Go's servers send it.
pub fn text(status: StatusCode, body: impl Into<Bytes>) -> HandlerResponse {
    let mut answer = whole(status, "text/plain; charset=utf-8", body.into());
    let nosniff = HeaderValue::from_static("nosniff");
    answer
        .headers_mut()
        .insert(HeaderName::from_static("x-content-type-options"), nosniff);
    answer
}

/// A JSON response.
pub fn json<T: Serialize>(status: StatusCode, value: &T) -> HandlerResponse {
    match serde_json::to_vec(value) {
        Ok(body) => whole(status, "application/json", body.into()),
        Err(error) => refusal(
            StatusCode::INTERNAL_SERVER_ERROR,
            &format!("the answer has no JSON: {error}"),
        ),
    }
}

/// A refusal with its reason, as JSON.
pub fn refusal(status: StatusCode, sentence: &str) -> HandlerResponse {
    let body = serde_json::json!({ "error": sentence }).to_string();
    whole(status, "application/json", body.into())
}

/// Go's response for a path that does not exist.
pub fn not_found() -> HandlerResponse {
    text(StatusCode::NOT_FOUND, "404 page not found\n")
}

/// A JSON response that is produced while it is sent.
pub fn streamed(body: impl Stream<Item = Bytes> + Send + 'static) -> HandlerResponse {
    use futures_util::StreamExt;
    let frames = body.map(|data| Ok(Frame::data(data)));
    with_type(
        StatusCode::OK,
        "application/json",
        StreamBody::new(frames).boxed_unsync(),
    )
}

pub(crate) fn whole(
    status: StatusCode,
    content_type: &'static str,
    body: Bytes,
) -> HandlerResponse {
    with_type(status, content_type, Full::new(body).boxed_unsync())
}

fn with_type(status: StatusCode, content_type: &'static str, body: HttpBody) -> HandlerResponse {
    let mut answer = Response::new(body);
    *answer.status_mut() = status;
    answer
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    answer
}

/// Keeps a value for as long as the body is being sent.
pub(crate) fn with_guard<K: Send + Unpin + 'static>(body: HttpBody, keep: K) -> HttpBody {
    BodyWithGuard { body, _keep: keep }.boxed_unsync()
}

struct BodyWithGuard<K> {
    body: HttpBody,
    _keep: K,
}

impl<K: Unpin> hyper::body::Body for BodyWithGuard<K> {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The values of a query's key, in their order; a key alone has an empty one.
pub fn query<'a>(
    request: &'a Request<Incoming>,
    key: &'a str,
) -> impl Iterator<Item = String> + 'a {
    let pairs = request.uri().query().unwrap_or_default().split('&');
    let split = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    split
        .filter(move |(name, _)| *name == key)
        .map(|(_, value)| decoded(value))
}

/// Undoes percent-encoding; a broken escape stays as it is.
pub fn decoded(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::VecDeque;
    use std::net::IpAddr;

    use kernel::testing::run_paused;
    use rustix::io::Errno;
    use tokio::io::DuplexStream;

    use super::*;

    #[test]
    fn what_is_no_escape_stays_as_it_is() {
        let cases = [
            ("a%20b%2F", "a b/"),
            ("%C3%a4", "ä"),
            ("%", "%"),
            ("%4", "%4"),
            ("%+1", "%+1"),
            ("%é", "%é"),
        ];
        for (text, plain) in cases {
            assert_eq!(decoded(text), plain, "{text}");
        }
    }

    /// Fails with these errors, then with one that is fatal.
    struct Failing(RefCell<VecDeque<Errno>>);

    impl Listen for Failing {
        type Stream = DuplexStream;

        async fn accept(&self) -> io::Result<(DuplexStream, Option<IpAddr>)> {
            let error = self.0.borrow_mut().pop_front().unwrap_or(Errno::BADF);
            Err(error.into())
        }
    }

    #[test]
    fn only_a_listener_that_is_gone_ends_the_server() {
        run_paused(|| async {
            let errors = [
                Errno::MFILE,
                Errno::PERM,
                Errno::PROTO,
                Errno::CONNABORTED,
                Errno::NETDOWN,
            ];
            let listener = Failing(RefCell::new(errors.into()));
            let ended = accept(
                listener,
                Rc::default(),
                ConnectionLimits::of_open_port(1),
                |_, _| async {},
            )
            .await;
            assert_eq!(ended.raw_os_error(), Some(Errno::BADF.raw_os_error()));
        });
    }
}
