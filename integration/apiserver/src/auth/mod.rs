//! Who asks, and whether he may; the TLS of the server.

mod authority;
pub(crate) mod identity;
pub(crate) mod node;
pub(crate) mod rights;
#[cfg(test)]
mod tests;
mod verifier;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use anyhow::Context as _;
use http::{HeaderMap, header};
use rustls::{
    ServerConfig,
    crypto::CryptoProvider,
    pki_types::{CertificateDer, PrivatePkcs8KeyDer},
};

pub(crate) use authority::CertificateAuthority;
pub use authority::CertificateWithKey;
pub use rights::AccessAttributes;

use self::verifier::ClientVerifier;
use crate::{
    answer::StatusError,
    certificates::{SigningPolicy, pods::CertificateValidity},
    options::{AccessControl, Options},
    request_info::{RequestInfo, UserInfo},
    state::State,
    tokens,
};

const ANONYMOUS: &str = "system:anonymous";
const UNAUTHENTICATED: &str = "system:unauthenticated";
const AUTHENTICATED: &str = "system:authenticated";

#[derive(Debug)]
pub(crate) struct AuthState {
    security: AccessControl,
    pub(crate) authority: CertificateAuthority,
    clients: Arc<ClientVerifier>,
    tls: Option<Arc<ServerConfig>>,
    settings: Mutex<AuthSettings>,
    pub(crate) issued: tokens::IssuedTokens,
}

/// What a test may change while the server runs.
pub(crate) struct AuthSettings {
    pub(crate) judge: Option<rights::AuthorizationHook>,
    /// Access reviews that were asked.
    pub(crate) asked: Vec<AccessAttributes>,
    /// Bearer tokens, and whose they are.
    pub(crate) tokens: BTreeMap<String, UserInfo>,
    /// Users who are not let in any more, whatever they show.
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

/// What is known of a connection's other end.
#[derive(Clone, Debug, Default)]
pub(crate) struct ConnectionPeer {
    pub(crate) certificates: Vec<CertificateDer<'static>>,
}

impl AuthState {
    pub(crate) fn new(options: &Options) -> anyhow::Result<AuthState> {
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
            tokens::IssuedTokens::default(),
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

    /// Whether everybody may do everything.
    pub(crate) fn is_open(&self) -> bool {
        self.security != AccessControl::Guarded
    }

    fn known(&self, mut user: UserInfo) -> Result<UserInfo, StatusError> {
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

/// Says who asks: by his certificate, else by his token, else nobody in particular.
pub(crate) fn user(
    state: &State,
    peer: &ConnectionPeer,
    headers: &HeaderMap,
) -> Result<UserInfo, StatusError> {
    let auth = &state.auth;
    if let Some((end, intermediates)) = peer.certificates.split_first() {
        let user = auth
            .clients
            .user(end, intermediates)
            .ok_or_else(StatusError::unauthorized)?;
        return auth.known(user);
    }
    let bearer = headers
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.split_once(' '));
    if let Some((_, token)) = bearer
        .filter(|(scheme, token)| scheme.eq_ignore_ascii_case("bearer") && !token.trim().is_empty())
    {
        return match tokens::owner(state, token.trim(), &[]) {
            Some(found) => auth.known(found.user),
            None if auth.security == AccessControl::Plain => Ok(UserInfo::default()),
            None => Err(StatusError::unauthorized()),
        };
    }
    if !auth.settings().anonymous {
        return Err(StatusError::unauthorized());
    }
    Ok(UserInfo {
        name: ANONYMOUS.to_string(),
        groups: vec![UNAUTHENTICATED.to_string()],
        ..UserInfo::default()
    })
}

/// Says whether he may: everybody everything, but nodes are kept to their own affairs where that is wanted.
pub(crate) fn permit(state: &State, call: &RequestInfo) -> Result<(), StatusError> {
    let node = rights::node_of(&call.user).is_some() && state.auth.guards_nodes();
    if state.auth.is_open() && !node {
        return Ok(());
    }
    rights::check(state, call)?;
    if node {
        node::admit_end(state, call)
    } else {
        Ok(())
    }
}
