//! Authentication of callers: by a certificate, by a token, or as the anonymous user.
//!
//! Each authenticator is tried in turn. A credential that is presented and refused is never anonymous.
//!
//! Upstream: staging/src/k8s.io/apiserver/pkg/authentication/authenticatorfactory/delegating.go,
//! request/union, group (1.36).

mod certificates;
mod tokens;

use std::rc::Rc;

use hyper::HeaderMap;
use rustls::pki_types::CertificateDer;

pub(crate) use self::certificates::Authorities;
pub use self::certificates::{AuthoritiesError, CertificateError};
pub use self::tokens::TokenError;
pub(crate) use self::tokens::{TokenAuthenticator, is_websocket, protocols, strip};
use crate::connection_limiter::Source;
use crate::reviews::{AuthenticatedUser, Reviews};

const ANONYMOUS: &str = "system:anonymous";
const AUTHENTICATED: &str = "system:authenticated";
const UNAUTHENTICATED: &str = "system:unauthenticated";

/// Why a caller is not authenticated.
#[derive(Debug, thiserror::Error)]
pub enum AuthenticationError {
    #[error("no credentials")]
    Nobody,
    #[error("{}", sentences(.0))]
    Refused(Vec<CredentialError>),
    /// The same credentials may be good later.
    #[error(transparent)]
    Crowded(TokenError),
}

/// Why one credential is refused.
#[derive(Debug, thiserror::Error)]
pub enum CredentialError {
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    #[error(transparent)]
    Token(#[from] TokenError),
}

fn sentences(refusals: &[CredentialError]) -> String {
    let all: Vec<String> = refusals.iter().map(CredentialError::to_string).collect();
    all.join("; ")
}

/// The authenticators, in their order.
#[derive(Debug)]
pub(crate) struct Authenticator<R> {
    pub(crate) authorities: Option<Authorities>,
    pub(crate) tokens: Option<TokenAuthenticator<R>>,
    pub(crate) anonymous: bool,
}

impl<R: Reviews> Authenticator<R> {
    /// Returns the caller's user.
    pub(crate) async fn user(
        &self,
        source: Source,
        chain: &[CertificateDer<'static>],
        headers: &HeaderMap,
    ) -> Result<Rc<AuthenticatedUser>, AuthenticationError> {
        let mut refused = Vec::new();
        if let Some(authorities) = &self.authorities {
            match authorities.user(chain).await {
                Ok(Some(user)) => return Ok(authenticated(user)),
                Ok(None) => {}
                Err(error) => refused.push(error.into()),
            }
        }
        if let Some(tokens) = &self.tokens {
            match tokens.user(source, headers).await {
                Ok(Some(user)) => return Ok(authenticated(user)),
                Ok(None) => {}
                Err(crowded @ TokenError::Crowded) => {
                    return Err(AuthenticationError::Crowded(crowded));
                }
                Err(error) => refused.push(error.into()),
            }
        }
        if !refused.is_empty() {
            return Err(AuthenticationError::Refused(refused));
        }
        match self.anonymous {
            true => Ok(anonymous()),
            false => Err(AuthenticationError::Nobody),
        }
    }
}

fn anonymous() -> Rc<AuthenticatedUser> {
    Rc::new(AuthenticatedUser {
        name: ANONYMOUS.to_owned(),
        groups: vec![UNAUTHENTICATED.to_owned()],
        ..AuthenticatedUser::default()
    })
}

/// Adds the group `system:authenticated`.
pub(crate) fn authenticated(user: Rc<AuthenticatedUser>) -> Rc<AuthenticatedUser> {
    let has = |group: &str| user.groups.iter().any(|one| one == group);
    if user.name == ANONYMOUS || has(AUTHENTICATED) || has(UNAUTHENTICATED) {
        return user;
    }
    let mut user = Rc::unwrap_or_clone(user);
    user.groups.push(AUTHENTICATED.to_owned());
    Rc::new(user)
}
