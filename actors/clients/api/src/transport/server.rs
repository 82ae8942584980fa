//! The server that all clients share: its address, our identity, and the open connections.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::{HeaderMap, Uri};
use http_proxy::{Proxy, ProxyProtocol};
use kernel::{error_chain, watch};
use rustls::pki_types::ServerName;
use rustls::sign::CertifiedKey;

use super::address::place;
use super::connections::{ConnectionPool, ServerAddress};
use super::dial::Dial;
use super::tls::{ClientIdentity, TlsContext, Trust};
use crate::auth::client_certificate::ClientCertificateSource;
use crate::auth::credentials::AuthCredentials;
use crate::error::ApiError;
use crate::request::measured;

/// The server's address, our credentials and the open connections.
pub(crate) struct ServerEndpoint {
    pub(crate) base: Uri,
    /// The host label of the metrics.
    pub(crate) host: String,
    /// On every request: user agent and impersonation.
    pub(crate) headers: HeaderMap,
    pub(crate) credentials: AuthCredentials,
    pub(crate) heartbeat_within: Duration,
    pub(crate) secured: Option<ConnectionSecurity>,
    /// Set by the certificate manager; it goes before the kubeconfig's own.
    pub(crate) identity: watch::Receiver<Option<Arc<CertifiedKey>>>,
    pub(crate) own: ClientCertificateSource,
    pub(crate) dial: Dial,
    /// None where the server is reached directly.
    pub(crate) proxy: Option<Proxy>,
    pub(crate) open: Mutex<Option<Generation>>,
}

/// The TLS side of a connection, apart from the client's identity.
pub(crate) struct ConnectionSecurity {
    pub(crate) trust: Trust,
    pub(crate) name: ServerName<'static>,
}

/// The connections of one identity.
pub(crate) struct Generation {
    identity: Option<Arc<CertifiedKey>>,
    connections: Arc<ConnectionPool>,
}

impl ServerEndpoint {
    /// The connections of the current identity. Those of an earlier one are drained.
    pub(crate) async fn connections(&self) -> Result<Arc<ConnectionPool>, ApiError> {
        let identity = self.identity().await?;
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(held) = open.as_ref().filter(|held| held.is_of(identity.as_ref())) {
            return Ok(Arc::clone(&held.connections));
        }
        let connections = Arc::new(ConnectionPool::new(self.target(identity.clone())?));
        let before = open.replace(Generation {
            identity,
            connections: Arc::clone(&connections),
        });
        measured::begun_anew();
        if let Some(before) = before {
            tracing::info!("another client certificate: connections to the API server begin anew");
            before.connections.retire();
        }
        Ok(connections)
    }

    async fn identity(&self) -> Result<Option<Arc<CertifiedKey>>, ApiError> {
        if self.secured.is_none() {
            return Ok(None);
        }
        if let Some(given) = self.identity.borrow().clone() {
            return Ok(Some(given));
        }
        if let Some(lent) = self.credentials.certificate().await? {
            return Ok(Some(lent));
        }
        Ok(self.own.key(kernel::now()))
    }

    fn target(&self, identity: Option<Arc<CertifiedKey>>) -> Result<ServerAddress, ApiError> {
        let tls = self.secured.as_ref().map(|secured| {
            let identity = Arc::new(ClientIdentity(identity));
            TlsContext::new(&secured.trust, secured.name.clone(), identity)
        });
        let unusable = |error: rustls::Error| ApiError::unreachable(error_chain(&error));
        let (host, port) = place(&self.base);
        Ok(ServerAddress {
            host,
            port,
            tls: tls.transpose().map_err(unusable)?,
            dial: self.dial.clone(),
            proxy: self.proxy.clone(),
            proxy_tls: self.proxy_tls().transpose().map_err(unusable)?,
        })
    }

    /// For a proxy that speaks TLS: it is trusted as the server is, and sees no client certificate.
    fn proxy_tls(&self) -> Option<Result<TlsContext, rustls::Error>> {
        let proxy = self.proxy.as_ref()?;
        if proxy.protocol != ProxyProtocol::Https {
            return None;
        }
        let name = ServerName::try_from(proxy.host().to_owned())
            .map_err(|_| rustls::Error::General("the proxy's name is no host name".to_owned()));
        let trust = self.secured.as_ref().map(|secured| &secured.trust);
        Some(name.and_then(|name| TlsContext::for_proxy(trust.unwrap_or(&Trust::Anybody), name)))
    }
}

impl Generation {
    fn is_of(&self, identity: Option<&Arc<CertifiedKey>>) -> bool {
        match (&self.identity, identity) {
            (None, None) => true,
            (Some(held), Some(now)) => Arc::ptr_eq(held, now),
            (Some(_), None) | (None, Some(_)) => false,
        }
    }
}
