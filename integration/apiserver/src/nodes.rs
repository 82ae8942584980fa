//! What is carried to the kubelets: logs, exec, attach, port-forward, the proxy of nodes, and metrics.

use std::sync::Arc;

use http::Request;
use hyper::body::Incoming;

use crate::{
    answer::{Failure, Response},
    call::Call,
    state::State,
};

/// Carries a call that `Call::for_a_kubelet` says is one.
pub(crate) async fn carry(_state: Arc<State>, _call: Call, _request: Request<Incoming>) -> Response {
    Failure::no_such_path().response()
}
