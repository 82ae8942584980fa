//! Authentication and authorization of requests; the TLS of the server.

pub(crate) mod attributes;
pub(crate) mod auth_state;
mod authority;
pub(crate) mod identity;
pub(crate) mod node;
pub(crate) mod rights;
#[cfg(test)]
mod tests;
pub(crate) mod tokens;
mod verifier;

pub use attributes::AccessAttributes;
pub(crate) use authority::CertificateAuthority;
pub use authority::CertificateWithKey;
use http::{HeaderMap, header};
use rustls::pki_types::CertificateDer;

use crate::endpoints::answer::StatusError;
use crate::endpoints::request_info::{RequestInfo, UserInfo};
use crate::server::options::AccessControl;
use crate::server::state::State;

const ANONYMOUS: &str = "system:anonymous";
const UNAUTHENTICATED: &str = "system:unauthenticated";

/// A connection's peer: the chain of client certificates that it has shown, empty without TLS.
#[derive(Clone, Debug, Default)]
pub(crate) struct ConnectionPeer {
    pub(crate) certificates: Vec<CertificateDer<'static>>,
}

/// Authenticates a request: by its client certificate, else by its token, else as anonymous.
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

/// Authorizes a request. An open server allows all of them, except a node's where nodes are restricted.
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
