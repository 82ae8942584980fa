//! HTTP/1 for servers that answer small questions: bounded connections, bounded patience.
//!
//! Request bodies are never read; what a question needs stands in its path and query. hyper answers
//! what is no HTTP with 400 and closes.

use std::cell::Cell;
use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::Stream;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame, Incoming, SizeHint};
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustix::io::Errno;
use serde::Serialize;
use tokio::task::{JoinError, JoinSet};

use crate::listen::Listen;

/// For the head of a request, and for an idle connection.
const HEAD_WITHIN: Duration = Duration::from_secs(10);
/// Far more than the longest path and query that mean anything here.
const HEAD_BYTES: usize = 16 * 1024;
/// Before accepting again, when the system lacks what a connection needs.
const SCARCE: Duration = Duration::from_millis(100);

/// What is sent back.
pub type Answer = Response<Body>;
/// Its body, which may be made while it is sent.
pub type Body = UnsyncBoxBody<Bytes, Infallible>;

/// Who answers.
#[allow(
    async_fn_in_trait,
    reason = "servers stay on their thread, so the futures need no Send"
)]
pub trait Answers: 'static {
    async fn answer(&self, request: Request<Incoming>) -> Answer;
}

/// How much of the node its clients may take.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// At a time; more wait in the listener's backlog.
    pub connections: usize,
    /// How long one connection lives at most, whatever its client does.
    pub life: Option<Duration>,
}

/// What a server counts.
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

    pub(crate) fn asked(&self) {
        self.requests.set(self.requests.get() + 1);
    }
}

/// Serves until no connection can be accepted any more.
pub async fn serve<L: Listen, A: Answers>(
    listener: L,
    answers: Rc<A>,
    traffic: Rc<Traffic>,
    limits: Limits,
) -> io::Error {
    let counted = Rc::clone(&traffic);
    accept(listener, counted, limits.connections, move |stream| {
        connection(
            stream,
            Rc::clone(&answers),
            Rc::clone(&traffic),
            limits.life,
        )
    })
    .await
}

/// Gives every connection a task of its own, at most so many at a time, until none can be accepted any more.
pub async fn accept<L, F>(
    listener: L,
    traffic: Rc<Traffic>,
    most: usize,
    serve: impl Fn(L::Stream) -> F,
) -> io::Error
where
    L: Listen,
    F: Future<Output = ()> + 'static,
{
    let mut connections = JoinSet::new();
    loop {
        // Both arms are cancel-safe: a connection that was not returned is accepted next time.
        tokio::select! {
            accepted = listener.accept(), if connections.len() < most => match accepted {
                Ok(stream) => {
                    connections.spawn_local(serve(stream));
                }
                Err(error) if is_scarcity(&error) => {
                    tracing::warn!("a connection waits: {error}");
                    tokio::time::sleep(SCARCE).await;
                }
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => return error,
            },
            Some(ended) = connections.join_next() => ended.unwrap_or_else(|error| broke(&error)),
        }
        traffic.connections.set(connections.len());
    }
}

async fn connection<S, A>(stream: S, answers: Rc<A>, traffic: Rc<Traffic>, life: Option<Duration>)
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + 'static,
    A: Answers,
{
    let service = service_fn(move |request| {
        traffic.asked();
        let answers = Rc::clone(&answers);
        async move { Ok::<_, Infallible>(answers.answer(request).await) }
    });
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WITHIN)
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
    tracing::error!("answering a request broke: {error}");
}

/// The system is short of something now, and may have it later.
fn is_scarcity(error: &io::Error) -> bool {
    let scarce = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
    scarce
        .iter()
        .any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

/// Plain text, as Go's servers send it.
pub fn text(status: StatusCode, body: impl Into<Bytes>) -> Answer {
    let mut answer = whole(status, "text/plain; charset=utf-8", body.into());
    let nosniff = HeaderValue::from_static("nosniff");
    answer
        .headers_mut()
        .insert(HeaderName::from_static("x-content-type-options"), nosniff);
    answer
}

/// The JSON of a value.
pub fn json<T: Serialize>(status: StatusCode, value: &T) -> Answer {
    match serde_json::to_vec(value) {
        Ok(body) => whole(status, "application/json", body.into()),
        Err(error) => refusal(
            StatusCode::INTERNAL_SERVER_ERROR,
            &format!("the answer has no JSON: {error}"),
        ),
    }
}

/// A sentence about what was refused, as JSON.
pub fn refusal(status: StatusCode, sentence: &str) -> Answer {
    let body = serde_json::json!({ "error": sentence }).to_string();
    whole(status, "application/json", body.into())
}

/// Go's words for a path that leads nowhere.
pub fn not_found() -> Answer {
    text(StatusCode::NOT_FOUND, "404 page not found\n")
}

/// The method is not one of these.
pub fn wrong_method(allowed: &'static str) -> Answer {
    let mut answer = text(
        StatusCode::METHOD_NOT_ALLOWED,
        format!("405 method not allowed, expected {allowed}\n"),
    );
    answer
        .headers_mut()
        .insert(ALLOW, HeaderValue::from_static(allowed));
    answer
}

/// JSON that is made while it is sent.
pub fn streamed(body: impl Stream<Item = Bytes> + Send + 'static) -> Answer {
    use futures_util::StreamExt;
    let frames = body.map(|data| Ok(Frame::data(data)));
    with_type(
        StatusCode::OK,
        "application/json",
        StreamBody::new(frames).boxed_unsync(),
    )
}

pub(crate) fn whole(status: StatusCode, content_type: &'static str, body: Bytes) -> Answer {
    with_type(status, content_type, Full::new(body).boxed_unsync())
}

fn with_type(status: StatusCode, content_type: &'static str, body: Body) -> Answer {
    let mut answer = Response::new(body);
    *answer.status_mut() = status;
    answer
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    answer
}

/// Keeps something for as long as the body is being sent.
pub(crate) fn kept<K: Send + Unpin + 'static>(body: Body, keep: K) -> Body {
    Kept { body, _keep: keep }.boxed_unsync()
}

struct Kept<K> {
    body: Body,
    _keep: K,
}

impl<K: Unpin> hyper::body::Body for Kept<K> {
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

/// Percent-encoding undone; what is none stays as it is.
pub fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let code = after.get(..2).filter(|_| *first == b'%');
        let byte =
            code.and_then(|code| u8::from_str_radix(std::str::from_utf8(code).ok()?, 16).ok());
        bytes.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &after[2..] } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
