//! The kubelet's HTTPS API (`port`, 10250).
//!
//! - **Owns** its listener, and the caches of decisions about callers.
//! - **Hears** nothing but its own accept loop.
//! - **Tells** no actor; it asks the node, and the API server about callers.
//! - **Never** answers a caller that is not authenticated and authorized, not even that a path does not exist.
//!
//! Upstream: pkg/kubelet/server/server.go, cmd/kubelet/app/auth.go (1.36).

mod accept;
mod conditions;
mod connection;
mod handlers;
mod progress;
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
use hyper::header::{CONNECTION, HeaderValue, RETRY_AFTER};
use hyper::{Request, StatusCode, Version};
use kernel::{Actor, ComputeThread, Context, Exit};
use tokio_rustls::TlsAcceptor;

use self::connection::{AnswersPeer, TlsPeer};
pub(crate) use self::handlers::{KubeletHandlers, RequestContext};
pub(crate) use self::route::ServerPort;
pub use self::tls::CertificateReceiver;
use crate::authn::{
    AuthenticationError, Authenticator, Authorities, AuthoritiesError, TokenAuthenticator,
};
use crate::authz::{AuthorizationError, Authorizer};
use crate::connection_limiter::ConnectionLimits;
use crate::http::{HandlerResponse, Traffic, accept, text};
use crate::listen;
use crate::node::KubeletHost;
use crate::policy::Policy;
use crate::reviews::Reviews;
use crate::server::{AcceptError, Msg, Snapshot};

/// Connections at a time: API servers, scrapers, and some people. Beyond them idle ones make room.
///
/// A connection holds up to a head of 64 KiB and its TLS buffers before it is known whose it is.
const CONNECTIONS: ConnectionLimits = ConnectionLimits {
    all: 512,
    unknown: 128,
    unknown_of_source: 64,
};

/// Why the server cannot start with the operator's policy.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    #[error("no authentication method configured")]
    NoAuthentication,
    #[error("tlsMinVersion is {0:?}, which is no version")]
    Version(String),
    #[error("tlsCipherSuites has {0:?}, which does not exist")]
    Suite(String),
    #[error("tlsCurvePreferences: {0}")]
    Curve(String),
    #[error("these versions and cipher suites of TLS do not go together")]
    Tls(#[source] rustls::Error),
    #[error("clients cannot be known by their certificates")]
    Authorities(#[source] AuthoritiesError),
}

impl PolicyError {
    /// Returns whether the same policy may work later.
    pub fn transient(&self) -> bool {
        match self {
            PolicyError::NoAuthentication
            | PolicyError::Version(_)
            | PolicyError::Suite(_)
            | PolicyError::Curve(_)
            | PolicyError::Tls(_) => false,
            PolicyError::Authorities(_) => true,
        }
    }
}

/// The HTTPS server.
#[derive(Debug)]
pub struct Https<N, R> {
    policy: Policy,
    certificate: CertificateReceiver,

    node: Rc<N>,
    reviews: Rc<R>,

    address: SocketAddr,
    traffic: Rc<Traffic>,
}

impl<N: KubeletHost, R: Reviews> Https<N, R> {
    /// Serves with whatever certificate there is at the moment of a handshake.
    pub fn new(
        policy: Policy,
        node: Rc<N>,
        reviews: Rc<R>,
        certificate: CertificateReceiver,
    ) -> Self {
        Https {
            address: policy.address,
            policy,
            certificate,
            node,
            reviews,
            traffic: Rc::default(),
        }
    }

    async fn server(&self) -> Result<SecureHandlers<N, R>, PolicyError> {
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
            .map(|ttl| TokenAuthenticator::new(Rc::clone(&self.reviews), ttl));
        Ok(SecureHandlers {
            authentication: Authenticator {
                authorities,
                tokens,
                anonymous: wanted.anonymous,
            },
            authorization: Authorizer::new(&self.policy, Rc::clone(&self.reviews)),
            open: KubeletHandlers::new(&self.policy, Rc::clone(&self.node)),
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
        let handshakes = Rc::new(ComputeThread::start("tls-handshakes")?);
        ctx.run(async move {
            let counted = Rc::clone(&traffic);
            let source = accept(listener, counted, CONNECTIONS, move |stream, guest| {
                let host = connection::ConnectionContext {
                    tls: acceptor.clone(),
                    handshakes: Rc::clone(&handshakes),
                    answers: Rc::clone(&server),
                    traffic: Rc::clone(&traffic),
                };
                connection::serve(stream, host, guest)
            })
            .await;
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

/// Authenticates and authorizes callers, then hands their requests on.
struct SecureHandlers<N, R> {
    authentication: Authenticator<R>,
    authorization: Authorizer<R>,
    open: KubeletHandlers<N>,
}

impl<N: KubeletHost, R: Reviews> AnswersPeer for SecureHandlers<N, R> {
    async fn answer(&self, peer: &TlsPeer, request: Request<Incoming>) -> HandlerResponse {
        let from = Some(peer.address.ip());
        let answering = RequestContext::new(&request, from, ServerPort::ReadWrite);
        if peer.connection.is_refused() {
            // Nothing is decided for a caller who was refused here: each decision costs a signature or a review.
            return answering.with(later(StatusCode::SERVICE_UNAVAILABLE, "Closing"));
        }
        match self.known(peer, &request).await {
            Ok(()) => {
                peer.connection.permit();
                self.open.answer(request, answering).await
            }
            Err(mut answer) => {
                peer.connection.refuse();
                if peer.connection.is_refused() && request.version() < Version::HTTP_2 {
                    let close = HeaderValue::from_static("close");
                    answer.headers_mut().insert(CONNECTION, close);
                }
                answering.with(answer)
            }
        }
    }
}

impl<N: KubeletHost, R: Reviews> SecureHandlers<N, R> {
    /// Returns the user if it is authenticated and authorized; every other caller gets its response here.
    async fn known(
        &self,
        peer: &TlsPeer,
        request: &Request<Incoming>,
    ) -> Result<(), HandlerResponse> {
        let headers = request.headers();
        let source = peer.address.ip().into();
        let user = self
            .authentication
            .user(source, &peer.certificates, headers)
            .await;
        let user = user.map_err(|unknown| {
            tracing::debug!("{} is not let in: {unknown}", peer.address);
            match unknown {
                AuthenticationError::Crowded(_) => {
                    later(StatusCode::TOO_MANY_REQUESTS, "Too Many Requests")
                }
                AuthenticationError::Nobody | AuthenticationError::Refused(_) => {
                    text(StatusCode::UNAUTHORIZED, "Unauthorized")
                }
            }
        })?;
        // A malformed path has no rights of its own.
        let path = route::meant(request.uri().path());
        let passed = self.authorization.pass(&user, request.method(), &path);
        passed.await.map_err(|barred| {
            let status = match &barred {
                AuthorizationError::Forbidden { .. } => StatusCode::FORBIDDEN,
                AuthorizationError::Error { source, .. } => {
                    tracing::warn!("{}: {source}", barred.to_string().trim_end());
                    StatusCode::INTERNAL_SERVER_ERROR
                }
            };
            text(status, barred.to_string())
        })
    }
}

/// A refusal of a request that may be made again.
fn later(status: StatusCode, why: &'static str) -> HandlerResponse {
    let mut answer = text(status, why);
    let second = HeaderValue::from_static("1");
    answer.headers_mut().insert(RETRY_AFTER, second);
    answer
}
