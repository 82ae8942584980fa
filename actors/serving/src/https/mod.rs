//! The kubelet's HTTPS API (`port`, 10250).
//!
//! - **Owns** its listener, and what it remembers of callers.
//! - **Hears** nothing but its own accept loop.
//! - **Tells** nobody; it asks the node, and the API server about callers.
//! - **Never** answers anybody who is not known and permitted, not even that a path does not exist.
//!
//! Upstream: pkg/kubelet/server/server.go, cmd/kubelet/app/auth.go (1.36).

mod accept;
mod answers;
mod conditions;
mod connection;
mod query;
mod route;
mod streams;
#[cfg(test)]
mod tests;
mod tls;
mod websockets;

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use hyper::body::Incoming;
use hyper::{Request, StatusCode};
use kernel::{Actor, Context, Exit};
use tokio_rustls::TlsAcceptor;

pub(crate) use self::answers::{Answering, Open};
use self::connection::{AnswersPeer, Peer};
pub(crate) use self::route::Door;
pub use self::tls::Certificate;
use crate::authn::{Authentication, Authorities, AuthoritiesError, Tokens};
use crate::authz::{Authorization, Barred};
use crate::http::{Answer, Traffic, accept, text};
use crate::listen;
use crate::node::KubeletHost;
use crate::policy::Policy;
use crate::reviews::Reviews;
use crate::server::{Deaf, Msg, Snapshot};

/// At a time: API servers, scrapers, and some people. Beyond them idle ones make room.
const CONNECTIONS: usize = 512;

/// Why the server cannot be what the operator wants.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    #[error("no authentication method configured")]
    NoAuthentication,
    #[error("tlsMinVersion is {0:?}, which is no version")]
    Version(String),
    #[error("tlsCipherSuites has {0:?}, which does not exist")]
    Suite(String),
    #[error("these versions and cipher suites of TLS do not go together")]
    Tls(#[source] rustls::Error),
    #[error("clients cannot be known by their certificates")]
    Authorities(#[source] AuthoritiesError),
}

impl PolicyError {
    /// Returns whether the same policy may do later.
    pub fn transient(&self) -> bool {
        match self {
            PolicyError::NoAuthentication
            | PolicyError::Version(_)
            | PolicyError::Suite(_)
            | PolicyError::Tls(_) => false,
            PolicyError::Authorities(_) => true,
        }
    }
}

/// The HTTPS server.
#[derive(Debug)]
pub struct Https<N, R> {
    policy: Policy,
    certificate: Certificate,

    node: Rc<N>,
    reviews: Rc<R>,

    address: SocketAddr,
    traffic: Rc<Traffic>,
}

impl<N: KubeletHost, R: Reviews> Https<N, R> {
    /// Serves with whatever certificate there is at the moment of a handshake.
    pub fn new(policy: Policy, node: Rc<N>, reviews: Rc<R>, certificate: Certificate) -> Self {
        Https {
            address: policy.address,
            policy,
            certificate,
            node,
            reviews,
            traffic: Rc::default(),
        }
    }

    async fn server(&self) -> Result<Server<N, R>, PolicyError> {
        let wanted = &self.policy.authentication;
        if !wanted.anonymous && wanted.tokens.is_none() && wanted.client_ca.is_none() {
            return Err(PolicyError::NoAuthentication);
        }
        let authorities = match &wanted.client_ca {
            Some(path) => {
                let loaded = Authorities::load(path.clone()).await;
                Some(loaded.map_err(PolicyError::Authorities)?)
            }
            None => None,
        };
        let tokens = wanted
            .tokens
            .map(|ttl| Tokens::new(Rc::clone(&self.reviews), ttl));
        Ok(Server {
            authentication: Authentication {
                authorities,
                tokens,
                anonymous: wanted.anonymous,
            },
            authorization: Authorization::new(&self.policy, Rc::clone(&self.reviews)),
            open: Open::new(&self.policy, Rc::clone(&self.node)),
        })
    }
}

impl<N: KubeletHost, R: Reviews> Actor for Https<N, R> {
    type Msg = Msg;
    type Snapshot = Snapshot;

    async fn start(&mut self, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        let asks_clients = self.policy.authentication.client_ca.is_some();
        let config = tls::config(&self.policy.tls, self.certificate.clone(), asks_clients)?;
        let server = Rc::new(self.server().await?);
        let listener = listen::tcp(self.policy.address).await?;
        self.address = listener.local_addr().unwrap_or(self.policy.address);
        let (traffic, address) = (Rc::clone(&self.traffic), self.address.to_string());
        let acceptor = TlsAcceptor::from(Arc::new(config));
        ctx.run(async move {
            let counted = Rc::clone(&traffic);
            let source = accept(listener, counted, CONNECTIONS, move |stream, guest| {
                let host = connection::Host {
                    tls: acceptor.clone(),
                    answers: Rc::clone(&server),
                    traffic: Rc::clone(&traffic),
                };
                connection::serve(stream, host, guest)
            })
            .await;
            Msg::Deaf(Deaf { address, source })
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

/// Knows callers, and hands them on.
struct Server<N, R> {
    authentication: Authentication<R>,
    authorization: Authorization<R>,
    open: Open<N>,
}

impl<N: KubeletHost, R: Reviews> AnswersPeer for Server<N, R> {
    async fn answer(&self, peer: &Peer, request: Request<Incoming>) -> Answer {
        let counted = metrics::http::begin(
            request.method().as_str(),
            request.uri().path(),
            "readwrite",
            kernel::now,
        );
        let answering = Answering {
            counted,
            from: Some(peer.address.ip()),
            door: Door::ReadWrite,
        };
        match self.known(peer, &request).await {
            Ok(()) => self.open.answer(request, answering).await,
            Err(answer) => answering.with(answer),
        }
    }
}

impl<N: KubeletHost, R: Reviews> Server<N, R> {
    /// Passes who is known and permitted; everybody else has an answer already.
    async fn known(&self, peer: &Peer, request: &Request<Incoming>) -> Result<(), Answer> {
        let headers = request.headers();
        let user = self.authentication.user(&peer.certificates, headers).await;
        let user = user.map_err(|unknown| {
            tracing::debug!("{} is not let in: {unknown}", peer.address);
            text(StatusCode::UNAUTHORIZED, "Unauthorized")
        })?;
        // What is no path has no rights of its own.
        let path = route::meant(request.uri().path());
        let passed = self.authorization.pass(&user, request.method(), &path);
        passed.await.map_err(|barred| {
            let status = match &barred {
                Barred::Forbidden { .. } => StatusCode::FORBIDDEN,
                Barred::Error { source, .. } => {
                    tracing::warn!("{}: {source}", barred.to_string().trim_end());
                    StatusCode::INTERNAL_SERVER_ERROR
                }
            };
            text(status, barred.to_string())
        })
    }
}
