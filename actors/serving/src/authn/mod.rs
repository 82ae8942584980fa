//! Who calls: a certificate's subject, a token's owner, or nobody in particular.
//!
//! Each way is tried in turn. A credential that is presented and refused is never anonymous.
//!
//! Upstream: staging/src/k8s.io/apiserver/pkg/authentication/authenticatorfactory/delegating.go,
//! request/union, group (1.36).

mod base64;
mod certificates;
mod tokens;

use std::rc::Rc;

use hyper::HeaderMap;
use rustls::pki_types::CertificateDer;

pub(crate) use self::certificates::Authorities;
pub use self::certificates::{AuthoritiesError, CertificateError};
pub use self::tokens::TokenError;
pub(crate) use self::tokens::{Tokens, is_websocket, protocols, strip};
use crate::reviews::{Reviews, User};

const ANONYMOUS: &str = "system:anonymous";
const AUTHENTICATED: &str = "system:authenticated";
const UNAUTHENTICATED: &str = "system:unauthenticated";

/// Why a caller stays outside.
#[derive(Debug, thiserror::Error)]
pub enum Unknown {
    #[error("no credentials")]
    Nobody,
    #[error("{}", sentences(.0))]
    Refused(Vec<Refusal>),
}

/// Why one credential is no good.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    #[error(transparent)]
    Token(#[from] TokenError),
}

fn sentences(refusals: &[Refusal]) -> String {
    let all: Vec<String> = refusals.iter().map(Refusal::to_string).collect();
    all.join("; ")
}

/// The ways in.
#[derive(Debug)]
pub(crate) struct Authentication<R> {
    pub(crate) authorities: Option<Authorities>,
    pub(crate) tokens: Option<Tokens<R>>,
    pub(crate) anonymous: bool,
}

impl<R: Reviews> Authentication<R> {
    /// Returns who calls.
    pub(crate) async fn user(
        &self,
        chain: &[CertificateDer<'static>],
        headers: &HeaderMap,
    ) -> Result<Rc<User>, Unknown> {
        let mut refused = Vec::new();
        if let Some(authorities) = &self.authorities {
            match authorities.user(chain).await {
                Ok(Some(user)) => return Ok(authenticated(user)),
                Ok(None) => {}
                Err(error) => refused.push(error.into()),
            }
        }
        if let Some(tokens) = &self.tokens {
            match tokens.user(headers).await {
                Ok(Some(user)) => return Ok(authenticated(user)),
                Ok(None) => {}
                Err(error) => refused.push(error.into()),
            }
        }
        if !refused.is_empty() {
            return Err(Unknown::Refused(refused));
        }
        match self.anonymous {
            true => Ok(anonymous()),
            false => Err(Unknown::Nobody),
        }
    }
}

fn anonymous() -> Rc<User> {
    Rc::new(User {
        name: ANONYMOUS.to_owned(),
        groups: vec![UNAUTHENTICATED.to_owned()],
        ..User::default()
    })
}

/// Adds the group of all who are known.
pub(crate) fn authenticated(user: Rc<User>) -> Rc<User> {
    let has = |group: &str| user.groups.iter().any(|one| one == group);
    if user.name == ANONYMOUS || has(AUTHENTICATED) || has(UNAUTHENTICATED) {
        return user;
    }
    let mut user = Rc::unwrap_or_clone(user);
    user.groups.push(AUTHENTICATED.to_owned());
    Rc::new(user)
}
