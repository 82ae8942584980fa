//! CRI as the agent calls it: each request goes to the runtime as it came, unless the runtime lacks the method.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use http::{Request, Response};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::{Code, Status};
use tower::Service;

use crate::backend::Backend;
use crate::quirks::Events;
use crate::relay::Relay;
use crate::{events, grpc};

/// Ten calls for each of a hundred pods at once; beyond that a caller is told instead of queued.
const MOST_IN_FLIGHT: usize = 1024;

const STOP_SANDBOX: &str = "/runtime.v1.RuntimeService/StopPodSandbox";

/// Forwards calls to the runtime; clones forward to the same one.
#[derive(Clone, Debug)]
pub(crate) struct Passthrough {
    backend: Backend,
    in_flight: Arc<Semaphore>,
}

impl Passthrough {
    pub(crate) fn new(backend: Backend) -> Self {
        Self {
            backend,
            in_flight: Arc::new(Semaphore::new(MOST_IN_FLIGHT)),
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
                    "{MOST_IN_FLIGHT} calls are in flight to {place} already"
                ))
            })?;
        if request.uri().path() == events::PATH {
            return self.events(request, permit).await;
        }
        let mut connected = self.backend.connected()?;
        let forgives =
            connected.quirks.refuses_to_stop_the_absent && request.uri().path() == STOP_SANDBOX;
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

    async fn events(
        &self,
        request: Request<Body>,
        permit: OwnedSemaphorePermit,
    ) -> Result<Response<Body>, Status> {
        let connected = self.backend.connected()?;
        match connected.quirks.events {
            Events::FromContainerd => events::translated(&self.backend, connected, permit).await,
            Events::Native => events::native(&self.backend, connected, request, permit).await,
            Events::Absent => Err(Status::unimplemented(format!(
                "{} has no container events",
                self.backend.place()
            ))),
        }
    }
}

/// `runtime.v1.RuntimeService`, passed through.
#[derive(Clone, Debug)]
pub(crate) struct Runtime(pub(crate) Passthrough);

/// `runtime.v1.ImageService`, passed through.
#[derive(Clone, Debug)]
pub(crate) struct Images(pub(crate) Passthrough);

impl NamedService for Runtime {
    const NAME: &'static str = "runtime.v1.RuntimeService";
}

impl NamedService for Images {
    const NAME: &'static str = "runtime.v1.ImageService";
}

impl Service<Request<Body>> for Runtime {
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

impl Service<Request<Body>> for Images {
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
