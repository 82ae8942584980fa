//! Calls that create: each has a connection of its own, and outlives its caller and this process.
//!
//! A runtime cancels a call whose connection breaks: a container that is being started then is ended, a sandbox taken
//! down. So the connection of such a call is given to a keeper ([`keep`]), a process that holds it when
//! this one is killed, and the call is not dropped with its caller. It ends by its deadline, which the runtime keeps;
//! a call without a deadline is passed through as any other. Its outcome is looked up by whoever asked for it.

mod frames;
mod keep;
mod keeper;

use std::time::Duration;

use http::{Request, Response};
use http_body_util::{BodyExt, Full, Limited};
use tokio::net::UnixStream;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tonic::Status;
use tonic::body::Body;

pub use self::keep::{is_keeper, keep_calls};
pub(crate) use self::keeper::CallKeeper;
pub use self::keeper::KeeperProgram;
use crate::backend::RuntimeBackend;
use crate::connection::RuntimeConnection;

const CREATING: [&str; 3] = [
    "/runtime.v1.RuntimeService/RunPodSandbox",
    "/runtime.v1.RuntimeService/CreateContainer",
    "/runtime.v1.RuntimeService/StartContainer",
];
/// gRPC's header.
const DEADLINE: &str = "grpc-timeout";
/// As long as any message that an agent sends.
const LONGEST_REQUEST: usize = 64 << 20;
/// Longer than any deadline of an agent's: a runtime that does not keep them is not waited for.
const LONGEST_CALL: Duration = Duration::from_secs(600);
/// How long the end of a connection whose call is through may take.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Whether this is a call that creates, and ends by itself.
pub(crate) fn is_creating(request: &Request<Body>) -> bool {
    CREATING.contains(&request.uri().path()) && request.headers().contains_key(DEADLINE)
}

/// Makes the call on a connection of its own; it goes on when the caller is gone.
pub(crate) async fn call(
    backend: RuntimeBackend,
    keeper: CallKeeper,
    request: Request<Body>,
    permit: OwnedSemaphorePermit,
) -> Result<Response<Body>, Status> {
    // Whole, before the runtime hears of it: a caller that breaks off while it sends has asked for nothing.
    let (parts, body) = request.into_parts();
    let body = Limited::new(body, LONGEST_REQUEST).collect().await;
    let body = body
        .map_err(|error| Status::invalid_argument(format!("{}: {error}", parts.uri.path())))?
        .to_bytes();
    let request = Request::from_parts(parts, Body::new(Full::new(body)));
    let (answered, answer) = oneshot::channel();
    tokio::spawn(async move {
        let carried_out = carry_out(&backend, &keeper, request);
        let outcome = tokio::time::timeout(LONGEST_CALL, carried_out).await;
        let silent = |_| {
            Err(Status::deadline_exceeded(format!(
                "no answer from {}",
                backend.place()
            )))
        };
        // A caller that is gone looks the outcome up.
        drop(answered.send(outcome.unwrap_or_else(silent)));
        drop(permit);
    });
    answer
        .await
        .unwrap_or_else(|_| Err(Status::unavailable("the adapter is ending")))
}

async fn carry_out(
    backend: &RuntimeBackend,
    keeper: &CallKeeper,
    request: Request<Body>,
) -> Result<Response<Body>, Status> {
    let unreachable = |error: &dyn std::error::Error| {
        let why = sdk::error_chain(error);
        Status::unavailable(format!("no {}: {why}", backend.place()))
    };
    let socket = &backend.configuration().socket;
    let stream = UnixStream::connect(socket).await;
    let stream = stream.map_err(|error| unreachable(&error))?;
    let kept = keeper.keep(&stream).await;
    let opened = RuntimeConnection::over(stream).await;
    let (mut connection, ended) = opened.map_err(|error| unreachable(&error))?;
    let answer = async {
        let (head, body) = connection.send(request).await?.into_parts();
        Ok(Response::from_parts(head, Body::new(body.collect().await?)))
    };
    let answer = answer.await.map_err(|error| backend.lost(error));
    drop(connection);
    tokio::spawn(async move {
        // Until then the keeper's copy would keep the connection open.
        drop(tokio::time::timeout(CLOSE_TIMEOUT, ended).await);
        drop(kept);
    });
    answer
}
