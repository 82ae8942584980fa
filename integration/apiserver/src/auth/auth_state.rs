//! A server's state of authentication: its authority, its TLS, its tokens, and what a test may change of that.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::Context as _;
use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::PrivatePkcs8KeyDer;

use super::attributes::{AccessAttributes, AuthorizationHook};
use super::authority::CertificateAuthority;
use super::verifier::ClientVerifier;
use crate::auth::tokens::issued::IssuedTokens;
use crate::certificates::signing_policy::{CertificateValidity, SigningPolicy};
use crate::endpoints::answer::StatusError;
use crate::endpoints::request_info::UserInfo;
use crate::server::options::{AccessControl, ServerOptions};

pub(super) const AUTHENTICATED: &str = "system:authenticated";

#[derive(Debug)]
pub(crate) struct AuthState {
    pub(super) security: AccessControl,
    pub(crate) authority: CertificateAuthority,
    pub(super) clients: Arc<ClientVerifier>,
    tls: Option<Arc<ServerConfig>>,
    settings: Mutex<AuthSettings>,
    pub(crate) issued: IssuedTokens,
}

/// What a test may change while the server runs.
pub(crate) struct AuthSettings {
    pub(crate) judge: Option<AuthorizationHook>,
    /// Access reviews that were asked.
    pub(crate) asked: Vec<AccessAttributes>,
    /// Bearer tokens, and whose they are.
    pub(crate) tokens: BTreeMap<String, UserInfo>,
    /// Names of users whose requests are answered 401, whatever their credentials.
    pub(crate) refused: BTreeSet<String>,
    pub(crate) anonymous: bool,
    pub(crate) guards_nodes: bool,
    pub(crate) signing: SigningPolicy,
    pub(crate) pod_signing: SigningPolicy,
    /// None is as asked for.
    pub(crate) pod_validity: Option<CertificateValidity>,
    /// Seconds that certificates and tokens are good for at most.
    pub(crate) seconds: i64,
    pub(crate) carry_websockets: bool,
}

impl std::fmt::Debug for AuthSettings {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Settings")
            .field("signing", &self.signing)
            .field("refused", &self.refused)
            .finish_non_exhaustive()
    }
}

impl AuthState {
    pub(crate) fn new(options: &ServerOptions) -> anyhow::Result<AuthState> {
        let authority = CertificateAuthority::new("kubernetes")?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let clients = Arc::new(ClientVerifier::new(&authority, &provider)?);
        let tls = match options.security {
            AccessControl::Plain => None,
            AccessControl::Open | AccessControl::Guarded => {
                Some(tls(&authority, provider, clients.clone())?)
            }
        };
        let signing = if options.sign_certificates {
            SigningPolicy::Approve
        } else {
            SigningPolicy::Hold
        };
        let settings = AuthSettings {
            judge: None,
            asked: Vec::new(),
            tokens: BTreeMap::new(),
            refused: BTreeSet::new(),
            anonymous: true,
            guards_nodes: options.security == AccessControl::Guarded,
            signing,
            pod_signing: signing,
            pod_validity: None,
            seconds: options.certificate_seconds,
            carry_websockets: false,
        };
        let (security, settings, issued) = (
            options.security,
            Mutex::new(settings),
            IssuedTokens::default(),
        );
        Ok(AuthState {
            security,
            authority,
            clients,
            tls,
            settings,
            issued,
        })
    }

    /// Returns the certificate of the authority that signed the server's, as PEM.
    pub(crate) fn root_certificate(&self) -> String {
        self.authority.pem()
    }

    /// Returns the TLS of the server; none is plain HTTP. It offers h2 and http/1.1.
    pub(crate) fn tls(&self) -> Option<Arc<ServerConfig>> {
        self.tls.clone()
    }

    pub(crate) fn settings(&self) -> MutexGuard<'_, AuthSettings> {
        self.settings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether nodes are kept to their own affairs.
    pub(crate) fn guards_nodes(&self) -> bool {
        self.settings().guards_nodes
    }

    /// Whether every request is allowed.
    pub(crate) fn is_open(&self) -> bool {
        self.security != AccessControl::Guarded
    }

    pub(super) fn known(&self, mut user: UserInfo) -> Result<UserInfo, StatusError> {
        if self.settings().refused.contains(&user.name) {
            return Err(StatusError::unauthorized());
        }
        if !user.groups.iter().any(|group| group == AUTHENTICATED) {
            user.groups.push(AUTHENTICATED.to_string());
        }
        Ok(user)
    }
}

fn tls(
    authority: &CertificateAuthority,
    provider: Arc<CryptoProvider>,
    clients: Arc<ClientVerifier>,
) -> anyhow::Result<Arc<ServerConfig>> {
    let (certificate, key) = authority.serving()?;
    let key = PrivatePkcs8KeyDer::from(key.serialize_der());
    let builder = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .context("no TLS versions")?;
    let chain = vec![certificate.der().clone(), authority.der()];
    let mut config = builder
        .with_client_cert_verifier(clients)
        .with_single_cert(chain, key.into())
        .context("cannot use the server's certificate")?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
