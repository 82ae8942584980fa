//! CRI as the agent calls it: each request goes to the runtime as it came, unless the runtime lacks the method.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use futures_util::stream::{self, StreamExt};
use http::{Request, Response};
use http_body_util::{BodyExt, Collected, Full, Limited};
use hyper::body::{Bytes, Frame};
use proto::cri::{RemoveContainerRequest, StopPodSandboxRequest};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::{Code, Status};
use tower::Service;

use crate::backend::{ConnectedBackend, RuntimeBackend};
use crate::creating::CallKeeper;
use crate::exec_output::EXEC_SYNC;
use crate::left_tasks::REMOVE_CONTAINER;
use crate::quirks::EventSource;
use crate::relay::Relay;
use crate::{creating, events, exec_output, grpc, left_tasks};

/// Ten calls for each of a hundred pods at once; beyond that a caller is sent instead of queued.
const MAX_IN_FLIGHT: usize = 1024;

const STOP_SANDBOX: &str = "/runtime.v1.RuntimeService/StopPodSandbox";
/// What is not asked of the runtime while it cleans up after an end; each names its subject in field 1.
const ENDINGS: [&str; 4] = [
    STOP_SANDBOX,
    "/runtime.v1.RuntimeService/RemovePodSandbox",
    "/runtime.v1.RuntimeService/StopContainer",
    "/runtime.v1.RuntimeService/RemoveContainer",
];
/// Room for an id and a number.
const LONGEST_ENDING: usize = 64 << 10;

/// Forwards calls to the runtime; clones forward to the same one.
#[derive(Clone, Debug)]
pub(crate) struct Passthrough {
    backend: RuntimeBackend,
    keeper: CallKeeper,
    in_flight: Arc<Semaphore>,
}

impl Passthrough {
    pub(crate) fn new(backend: RuntimeBackend, keeper: CallKeeper) -> Self {
        Self {
            backend,
            keeper,
            in_flight: Arc::new(Semaphore::new(MAX_IN_FLIGHT)),
        }
    }

    async fn pass(self, request: Request<Body>) -> Response<Body> {
        self.try_pass(request)
            .await
            .unwrap_or_else(Status::into_http)
    }

    async fn try_pass(self, request: Request<Body>) -> Result<Response<Body>, Status> {
        let permit = Arc::clone(&self.in_flight)
            .try_acquire_owned()
            .map_err(|_| {
                let place = self.backend.place();
                Status::resource_exhausted(format!(
                    "{MAX_IN_FLIGHT} calls are in flight to {place} already"
                ))
            })?;
        if request.uri().path() == events::PATH {
            return self.events(request, permit).await;
        }
        let mut connected = self.backend.connected()?;
        if creating::is_creating(&request) {
            return creating::call(self.backend, self.keeper, request, permit).await;
        }
        if request.uri().path() == EXEC_SYNC {
            return self.exec_sync(connected, request).await;
        }
        let forgives =
            connected.quirks.refuses_to_stop_the_absent && request.uri().path() == STOP_SANDBOX;
        let request = self.settled(request).await?;
        if connected.quirks.leaves_tasks && request.uri().path() == REMOVE_CONTAINER {
            return self.remove_container(connected, request).await;
        }
        let answer = connected
            .connection
            .send(request)
            .await
            .map_err(|error| self.backend.lost(error))?;
        if forgives && grpc::ended(answer.headers()) == Some(Code::NotFound) {
            return Ok(grpc::empty_answer());
        }
        Ok(answer.map(|body| Body::new(Relay::new(body, self.backend.place(), permit))))
    }

    /// Runs a command, and passes on as much of its outputs as the caller reads.
    async fn exec_sync(
        &self,
        mut connected: ConnectedBackend,
        request: Request<Body>,
    ) -> Result<Response<Body>, Status> {
        let wanted = exec_output::wanted(request.headers());
        let lost = |error| self.backend.lost(error);
        let answer = connected.connection.send(request).await.map_err(lost)?;
        if grpc::ended(answer.headers()).is_some() {
            return Ok(answer.map(Body::new));
        }
        let read = exec_output::read(answer, wanted).await;
        let (response, trailers) = read.map_err(|error| error.status(lost))?;
        let frames = match Status::from_header_map(&trailers) {
            Some(status) if status.code() == Code::Ok => {
                vec![Ok(grpc::message(&response)), Ok(Frame::trailers(trailers))]
            }
            Some(_) | None => vec![Ok(Frame::trailers(trailers))],
        };
        Ok(grpc::answer(stream::iter(frames).boxed()))
    }

    /// Removes a container; with the task that the runtime has left, where it refuses because of that.
    async fn remove_container(
        &self,
        mut connected: ConnectedBackend,
        request: Request<Body>,
    ) -> Result<Response<Body>, Status> {
        let (parts, body) = whole(request).await?;
        let again = || Request::from_parts(parts.clone(), Body::new(Full::new(body.clone())));
        let (head, answer) = self.collected(&mut connected, again()).await?;
        let refusal = Status::from_header_map(&head.headers)
            .or_else(|| Status::from_header_map(answer.trailers()?));
        let subject = grpc::read::<RemoveContainerRequest>(&body);
        if let (Some(refusal), Some(subject)) = (refusal, subject)
            && left_tasks::is_left(&refusal)
        {
            let (container, namespace) = (
                subject.container_id,
                &self.backend.configuration().namespace,
            );
            tracing::warn!(
                container,
                "its task was left by a start that was broken off: ended"
            );
            match left_tasks::end(&connected.connection, namespace, &container).await {
                Ok(()) => {
                    let (head, answer) = self.collected(&mut connected, again()).await?;
                    return Ok(Response::from_parts(head, Body::new(answer)));
                }
                Err(error) => tracing::warn!(container, %error, "its task cannot be ended"),
            }
        }
        Ok(Response::from_parts(head, Body::new(answer)))
    }

    async fn collected(
        &self,
        connected: &mut ConnectedBackend,
        request: Request<Body>,
    ) -> Result<(http::response::Parts, Collected<Bytes>), Status> {
        let answer = async {
            let (head, body) = connected.connection.send(request).await?.into_parts();
            Ok((head, body.collect().await?))
        };
        answer.await.map_err(|error| self.backend.lost(error))
    }

    /// Holds a call that ends something until the runtime shows the end that was sent of it already.
    async fn settled(&self, request: Request<Body>) -> Result<Request<Body>, Status> {
        let unsettled = self.backend.unsettled();
        if unsettled.is_empty() || !ENDINGS.contains(&request.uri().path()) {
            return Ok(request);
        }
        let (parts, body) = whole(request).await?;
        // What cannot be read is the runtime's to refuse.
        if let Some(subject) = grpc::read::<StopPodSandboxRequest>(&body) {
            unsettled.settled(&subject.pod_sandbox_id).await;
        }
        Ok(Request::from_parts(parts, Body::new(Full::new(body))))
    }

    async fn events(
        &self,
        request: Request<Body>,
        permit: OwnedSemaphorePermit,
    ) -> Result<Response<Body>, Status> {
        let connected = self.backend.connected()?;
        match connected.quirks.events {
            EventSource::FromContainerd => {
                events::translated(&self.backend, connected, permit).await
            }
            EventSource::Native => events::native(&self.backend, connected, request, permit).await,
            EventSource::Absent => Err(Status::unimplemented(format!(
                "{} has no container events",
                self.backend.place()
            ))),
        }
    }
}

/// Reads the whole request of a call that ends something.
async fn whole(request: Request<Body>) -> Result<(http::request::Parts, Bytes), Status> {
    let (parts, body) = request.into_parts();
    let body = Limited::new(body, LONGEST_ENDING).collect().await;
    let body = body.map_err(|error| {
        let path = parts.uri.path();
        Status::invalid_argument(format!("{path} of at most {LONGEST_ENDING} bytes: {error}"))
    })?;
    Ok((parts, body.to_bytes()))
}

/// `runtime.v1.RuntimeService`, passed through.
#[derive(Clone, Debug)]
pub(crate) struct RuntimePassthrough(pub(crate) Passthrough);

/// `runtime.v1.ImageService`, passed through.
#[derive(Clone, Debug)]
pub(crate) struct ImagePassthrough(pub(crate) Passthrough);

impl NamedService for RuntimePassthrough {
    const NAME: &'static str = "runtime.v1.RuntimeService";
}

impl NamedService for ImagePassthrough {
    const NAME: &'static str = "runtime.v1.ImageService";
}

impl Service<Request<Body>> for RuntimePassthrough {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let passing = self.0.clone().pass(request);
        Box::pin(async move { Ok(passing.await) })
    }
}

impl Service<Request<Body>> for ImagePassthrough {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let passing = self.0.clone().pass(request);
        Box::pin(async move { Ok(passing.await) })
    }
}
