//! The read-only port (`readOnlyPort`, 10255): what the node runs, without authentication.
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

/// Answers at the read-only port.
#[derive(Debug)]
pub struct ReadOnlyHandlers<N>(KubeletHandlers<N>);

impl<N: KubeletHost> RequestHandler for ReadOnlyHandlers<N> {
    async fn answer(&self, request: Request<Incoming>) -> HandlerResponse {
        let answering = RequestContext::new(&request, None, ServerPort::ReadOnly);
        self.0.answer(request, answering).await
    }
}

impl<N: KubeletHost> ReadOnlyHandlers<N> {
    /// Of the policy it uses the paths alone.
    pub fn new(policy: &Policy, node: Rc<N>) -> Self {
        ReadOnlyHandlers(KubeletHandlers::new(policy, node))
    }
}
