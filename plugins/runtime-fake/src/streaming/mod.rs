//! The streaming server: where clients come to with the URL that Exec, Attach and PortForward answer.
//!
//! It speaks what CRI's streaming servers speak: the remote command protocol up to version 4 and port
//! forwarding over SPDY/3.1; and over WebSockets the remote command protocol up to version 5, port
//! forwarding, and SPDY through a tunnel. A URL is good once, and for a minute.
//!
//! Everything that belongs to a connection lives in that connection's task, and all of them end with the node.

mod archive;
mod attach;
mod command;
mod forward;
mod remote;
mod session;
mod spdy;
mod terminal;
#[cfg(test)]
mod tests;
mod tickets;
mod upgrade;
mod websocket;

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper_util::rt::{TokioIo, TokioTimer};
use proto::cri::{AttachRequest, ExecRequest, PortForwardRequest};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;
use tonic::Status;

use self::tickets::{Refused, Tickets};
use crate::shared::Shared;

pub(crate) use forward::Target;

/// Connections at a time; each has one URL of at most a thousand that are out.
const CONNECTIONS: usize = 4096;
/// How long a client may take to say what it wants.
const HEADERS: Duration = Duration::from_secs(30);

/// What a client may ask for, once.
#[derive(Clone, Debug)]
pub(crate) enum Asked {
    Exec(ExecRequest),
    Attach(AttachRequest),
    PortForward(PortForwardRequest),
}

impl Asked {
    fn path(&self) -> &'static str {
        match self {
            Asked::Exec(_) => "exec",
            Asked::Attach(_) => "attach",
            Asked::PortForward(_) => "portforward",
        }
    }
}

type Waiting = Arc<Mutex<Tickets<Asked>>>;

/// The server. It begins with the first URL that is asked for.
#[derive(Debug)]
pub(crate) struct Streaming {
    address: SocketAddr,
    waiting: Waiting,
    serving: JoinHandle<()>,
}

impl Streaming {
    /// Begins to listen on the loopback address.
    pub(crate) async fn start(node: Weak<Shared>) -> io::Result<Streaming> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let waiting = Waiting::default();
        let serving = tokio::spawn(accept(listener, node, waiting.clone()));
        Ok(Streaming {
            address,
            waiting,
            serving,
        })
    }

    /// Returns the URL under which somebody may do this, once.
    pub(crate) fn url(&self, asked: Asked) -> Result<String, Status> {
        let path = asked.path();
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let token = waiting
            .issue(Instant::now(), asked)
            .map_err(|refused| match refused {
                Refused::TooMany => Status::resource_exhausted(refused.to_string()),
                Refused::NoChance(_) => Status::internal(refused.to_string()),
            })?;
        Ok(format!("http://{}/{path}/{token}", self.address))
    }
}

impl Drop for Streaming {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn accept(listener: TcpListener, node: Weak<Shared>, waiting: Waiting) {
    let mut connections = JoinSet::new();
    loop {
        // A connection that has ended is forgotten; when there are too many, one must end first.
        while connections.try_join_next().is_some() {}
        if connections.len() >= CONNECTIONS {
            connections.join_next().await;
        }
        match listener.accept().await {
            Ok((stream, _)) => {
                connections.spawn(serve(stream, node.clone(), waiting.clone()));
            }
            Err(error) => {
                tracing::warn!(%error, "the streaming server cannot take a connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// Serves one connection: requests that are refused, and at last one that becomes something else.
async fn serve(stream: TcpStream, node: Weak<Shared>, waiting: Waiting) {
    let upgraded: Arc<Mutex<Option<upgrade::Upgraded>>> = Arc::default();
    let service = hyper::service::service_fn(|request: Request<Incoming>| {
        let answered = answer(request, &waiting);
        let (answer, then) = match answered {
            Ok((answer, then)) => (answer, Some(then)),
            Err(refusal) => (*refusal, None),
        };
        *upgraded.lock().unwrap_or_else(PoisonError::into_inner) = then;
        async move { Ok::<_, std::convert::Infallible>(answer) }
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS)
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
        then.serve(&node).await;
    }
}

type Answer = Response<Full<Bytes>>;

fn answer(
    request: Request<Incoming>,
    waiting: &Waiting,
) -> Result<(Answer, upgrade::Upgraded), Box<Answer>> {
    let missing = || refusal(StatusCode::NOT_FOUND, "404 page not found\n");
    if request.method() != Method::GET && request.method() != Method::POST {
        return Err(refusal(
            StatusCode::METHOD_NOT_ALLOWED,
            "405: Method Not Allowed",
        ));
    }
    let mut parts = request.uri().path().trim_start_matches('/').splitn(2, '/');
    let (path, token) = (
        parts.next().unwrap_or_default(),
        parts.next().unwrap_or_default(),
    );
    let mut waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
    let asked = waiting.redeem(Instant::now(), token).ok_or_else(missing)?;
    if asked.path() != path {
        return Err(missing());
    }
    upgrade::begin(request, asked)
}

fn refusal(status: StatusCode, text: impl Into<String>) -> Box<Answer> {
    let mut answer = Response::new(Full::new(Bytes::from(text.into())));
    *answer.status_mut() = status;
    Box::new(answer)
}
