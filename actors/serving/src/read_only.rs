//! The read-only port (`readOnlyPort`, 10255): what the node runs, without authentication.
//!
//! - **Owns** its listener.
//! - **Hears** nothing but its own accept loop.
//! - **Tells** no actor; it asks the node.
//! - **Never** changes anything: what could is not served here.
//!
//! Upstream: pkg/kubelet/server/server.go (ListenAndServeKubeletReadOnlyServer), 1.36.

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use hyper::Request;
use hyper::body::Incoming;
use kernel::{Actor, Context, Exit};

use crate::http::{HandlerResponse, Limits, RequestHandler, Traffic, serve};
use crate::https::{KubeletHandlers, RequestContext, ServerPort};
use crate::listen;
use crate::node::KubeletHost;
use crate::policy::Policy;
use crate::server::{AcceptError, Msg, Snapshot};

const LIMITS: Limits = Limits {
    connections: 64,
    life: Some(Duration::from_secs(300)),
};

/// The read-only server.
#[derive(Debug)]
pub struct ReadOnly<N> {
    address: SocketAddr,

    server: Rc<ReadOnlyHandlers<N>>,

    traffic: Rc<Traffic>,
}

#[derive(Debug)]
struct ReadOnlyHandlers<N>(KubeletHandlers<N>);

impl<N: KubeletHost> RequestHandler for ReadOnlyHandlers<N> {
    async fn answer(&self, request: Request<Incoming>) -> HandlerResponse {
        let counted = metrics::api::http::begin(
            request.method().as_str(),
            request.uri().path(),
            "readonly",
            kernel::now,
        );
        let answering = RequestContext {
            counted,
            from: None,
            door: ServerPort::ReadOnly,
        };
        self.0.answer(request, answering).await
    }
}

impl<N: KubeletHost> Actor for ReadOnly<N> {
    type Msg = Msg;
    type Snapshot = Snapshot;

    async fn start(&mut self, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        let listener = listen::tcp(self.address).await?;
        self.address = listener.local_addr().unwrap_or(self.address);
        let (server, traffic, address) = (
            Rc::clone(&self.server),
            Rc::clone(&self.traffic),
            self.address.to_string(),
        );
        ctx.run(async move {
            let source = serve(listener, server, traffic, LIMITS).await;
            Msg::Deaf(AcceptError { address, source })
        });
        Ok(())
    }

    async fn handle(&mut self, msg: Msg, _ctx: &mut Context<Msg>) -> Result<(), Exit> {
        match msg {
            Msg::Deaf(deaf) => Err(deaf.into()),
        }
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot::new(self.address.to_string(), &self.traffic)
    }
}

impl<N: KubeletHost> ReadOnly<N> {
    /// Serves at its own address; of the policy it uses the paths alone.
    pub fn new(address: SocketAddr, policy: &Policy, node: Rc<N>) -> Self {
        ReadOnly {
            address,
            server: Rc::new(ReadOnlyHandlers(KubeletHandlers::new(policy, node))),
            traffic: Rc::default(),
        }
    }
}
