//! Calls that create: each has a connection to itself as long as it lasts ([`pool`]), and outlives its caller and this
//! process.
//!
//! A runtime cancels a call whose connection breaks: a container that is being started then is ended, a sandbox taken
//! down. So the connection of such a call is given to a keeper ([`keep`]), a process that holds it when
//! this one is killed, until the call is through; and the call is not dropped with its caller. It ends by its deadline, which the runtime keeps;
//! a call without a deadline is passed through as any other. Its outcome is looked up by whoever asked for it.

mod frames;
mod keep;
mod keeper;

use std::time::Duration;

use http::{Request, Response};
use http_body_util::{BodyExt, Full, Limited};
use proto::cri::{CreateContainerRequest, CreateContainerResponse, RunPodSandboxResponse};
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tonic::Status;
use tonic::body::Body;

pub use self::keep::{is_keeper, keep_calls};
pub(crate) use self::keeper::CallKeeper;
pub use self::keeper::KeeperProgram;
use crate::backend::RuntimeBackend;
use crate::creations::Creation;
use crate::grpc;

const RUN_SANDBOX: &str = "/runtime.v1.RuntimeService/RunPodSandbox";
const CREATE_CONTAINER: &str = "/runtime.v1.RuntimeService/CreateContainer";
const CREATING: [&str; 3] = [
    RUN_SANDBOX,
    CREATE_CONTAINER,
    "/runtime.v1.RuntimeService/StartContainer",
];
/// gRPC's header.
const DEADLINE: &str = "grpc-timeout";
/// As long as any message that an agent sends.
const LONGEST_REQUEST: usize = 64 << 20;
/// Longer than any deadline of an agent's: a runtime that does not keep them is not waited for.
const LONGEST_CALL: Duration = Duration::from_secs(600);

/// Whether this is a call that creates, and ends by itself.
pub(crate) fn is_creating(request: &Request<Body>) -> bool {
    CREATING.contains(&request.uri().path()) && request.headers().contains_key(DEADLINE)
}

/// Makes the call on a connection that it has to itself; it goes on when the caller is gone.
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
    let making = Making::of(parts.uri.path(), &body, &backend);
    let request = Request::from_parts(parts, Body::new(Full::new(body)));
    let (answered, answer) = oneshot::channel();
    tokio::spawn(async move {
        let carried_out = carry_out(&backend, &keeper, request, making);
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
    making: Option<Making>,
) -> Result<Response<Body>, Status> {
    let opened = backend.pool().take(&backend.configuration().socket).await;
    let mut pooled = opened.map_err(|error| {
        let why = sdk::error_chain(&error);
        Status::unavailable(format!("no {}: {why}", backend.place()))
    })?;
    let kept = keeper.keep(pooled.socket()).await;
    let answer = async {
        let (head, body) = pooled.connection.send(request).await?.into_parts();
        let collected = body.collect().await?;
        let (trailers, body) = (collected.trailers().cloned(), collected.to_bytes());
        if let Some(making) = making {
            making.answered(&body);
        }
        let body = Full::new(body).with_trailers(async move { trailers.map(Ok) });
        Ok(Response::from_parts(head, Body::new(body)))
    };
    let answer = answer.await.map_err(|error| backend.lost(error));
    // At once: a keeper must not hold a connection without a call.
    if let Some(kept) = kept {
        kept.release().await;
    }
    if answer.is_ok() {
        backend.pool().put(pooled);
    }
    answer
}

/// What a call makes that containerd reports by an id before the call is answered.
#[derive(Debug)]
struct Making {
    creation: Creation,
    /// The sandbox of a container; none for a sandbox itself.
    sandbox: Option<String>,
}

impl Making {
    fn of(path: &str, body: &[u8], backend: &RuntimeBackend) -> Option<Making> {
        let sandbox = match path {
            RUN_SANDBOX => None,
            CREATE_CONTAINER => {
                let request: CreateContainerRequest = grpc::read(body)?;
                Some(request.pod_sandbox_id)
            }
            _ => return None,
        };
        let creation = backend.creations().begin();
        Some(Making { creation, sandbox })
    }

    fn answered(self, body: &[u8]) {
        match self.sandbox {
            Some(sandbox) => {
                if let Some(answer) = grpc::read::<CreateContainerResponse>(body) {
                    self.creation.made(answer.container_id, sandbox);
                }
            }
            None => {
                if let Some(answer) = grpc::read::<RunPodSandboxResponse>(body) {
                    let id = answer.pod_sandbox_id;
                    self.creation.made(id.clone(), id);
                }
            }
        }
    }
}
