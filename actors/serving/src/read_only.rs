//! What is served without authentication: what the node runs, at the read-only port (`readOnlyPort`, 10255); summaries and the
//! logs of containers, at the admin socket.
//!
//! Never changes anything: what could is not served here.
//!
//! Upstream: pkg/kubelet/server/server.go (ListenAndServeKubeletReadOnlyServer), 1.36.

use std::rc::Rc;

use hyper::Request;
use hyper::body::Incoming;

use crate::http::{HandlerResponse, RequestHandler};
use crate::https::{KubeletHandlers, RequestContext, ServerPort};
use crate::node::KubeletHost;
use crate::policy::Policy;

/// Answers at the read-only port, or at the admin socket.
#[derive(Debug)]
pub struct ReadOnlyHandlers<N> {
    door: ServerPort,
    handlers: KubeletHandlers<N>,
}

impl<N: KubeletHost> RequestHandler for ReadOnlyHandlers<N> {
    async fn answer(&self, request: Request<Incoming>) -> HandlerResponse {
        let answering = RequestContext::new(&request, None, self.door);
        self.handlers.answer(request, answering).await
    }
}

impl<N: KubeletHost> ReadOnlyHandlers<N> {
    /// Those of the read-only port. Of the policy it uses the paths alone.
    pub fn new(policy: &Policy, node: Rc<N>) -> Self {
        ReadOnlyHandlers {
            door: ServerPort::ReadOnly,
            handlers: KubeletHandlers::new(policy, node),
        }
    }

    /// Those of the admin socket, whose owner may read any log.
    pub fn of_admin_socket(policy: &Policy, node: Rc<N>) -> Self {
        ReadOnlyHandlers {
            door: ServerPort::Admin,
            handlers: KubeletHandlers::new(policy, node),
        }
    }
}
