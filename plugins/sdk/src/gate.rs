//! The gate before a plugin's services: the base service answers at once, the kind's service from
//! Configure on, and its calls are counted so that Drain can wait for them.

use std::convert::Infallible;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use proto::plugin::plugin_server::{PluginServer, SERVICE_NAME};
use tonic::body::Body;
use tonic::codegen::http::{Request, Response};
use tonic::service::Routes;
use tower::Service;

use crate::base::Base;

/// How long a call of the kind's service waits for Configure: longer than a backend takes to
/// answer, shorter than the timeouts of most callers.
const CONFIGURE_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Clone, Debug)]
pub(crate) struct Gate {
    base: Base,
    service: PluginServer<Base>,
}

impl Gate {
    pub(crate) fn new(base: Base) -> Self {
        Self {
            service: PluginServer::new(base.clone()),
            base,
        }
    }

    async fn pass(base: Base, request: Request<Body>) -> Result<Response<Body>, Infallible> {
        let Some(mut routes) = opened(&base).await else {
            let refusal = format!("plugin {} is not configured yet", base.name());
            return Ok(tonic::Status::failed_precondition(refusal).into_http());
        };
        // The count ends with the answer's head: a unary answer is complete then, a stream is not
        // waited for.
        let _in_flight = base.begin();
        routes.call(request).await
    }
}

async fn opened(base: &Base) -> Option<Routes> {
    let mut routes = base.routes();
    let opened = tokio::time::timeout(CONFIGURE_TIMEOUT, routes.wait_for(Option::is_some)).await;
    opened.ok()?.ok()?.clone()
}

impl Service<Request<Body>> for Gate {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let path = request.uri().path().strip_prefix('/').unwrap_or_default();
        match path.strip_prefix(SERVICE_NAME) {
            Some(method) if method.starts_with('/') => self.service.call(request),
            _ => Box::pin(Self::pass(self.base.clone(), request)),
        }
    }
}
