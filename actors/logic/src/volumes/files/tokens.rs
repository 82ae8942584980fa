//! Tokens of the pod's service account.

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::ServiceAccountTokenProjection;

use super::problem::Problem;
use super::projected::Rights;
use super::refresh::look_at;
use super::{Draft, Ground};
use crate::objects::{ServiceAccountToken, TokenWanted};

/// Upstream's `maxJitter`.
const JITTER: SignedDuration = SignedDuration::from_secs(10);

pub(super) fn collect(
    draft: &mut Draft<'_>,
    source: &ServiceAccountTokenProjection,
    rights: Rights,
) {
    let wanted = TokenWanted::projected(draft.pod, source);
    draft.uses("TokenRequest", &wanted.namespace, &wanted.service_account);
    match find(&wanted, draft.ground) {
        Ok(token) => {
            let jitter = draft.jitter(&source.path, JITTER);
            let renew_at = token.renew_at(wanted.expiration_seconds, jitter);
            draft.refresh(look_at(draft.ground.now, renew_at, token.expires));
            draft.put(&source.path, rights.file(token.token.into_bytes()));
        }
        Err(problem) => draft.problems.push(problem),
    }
}

fn find(wanted: &TokenWanted, ground: &Ground<'_>) -> Result<ServiceAccountToken, Problem> {
    let TokenWanted {
        namespace,
        service_account: account,
        ..
    } = wanted;
    let Some(token) = ground.objects.token(wanted) else {
        let refused = ground.objects.refused("TokenRequest", namespace, account);
        let why = refused.unwrap_or_else(|| {
            let audience = match wanted.audiences.as_slice() {
                [] => "no audience of its own".to_owned(),
                named => format!("audience {}", named.join(", ")),
            };
            format!("there is no token of service account {namespace}/{account} for {audience}")
        });
        return Err(Problem::Token(why));
    };
    if token.expires <= ground.now {
        return Err(Problem::TokenExpired {
            key: key(wanted),
            why: format!(
                "there is none that lasts longer than until {}",
                token.expires
            ),
        });
    }
    Ok(token)
}

/// Upstream's `keyFunc`, which prints values as Go writes them.
fn key(wanted: &TokenWanted) -> String {
    let audiences = match wanted.audiences.as_slice() {
        [] => "[]string(nil)".to_owned(),
        named => format!("[]string{{{}}}", quoted(named).join(", ")),
    };
    format!(
        "{:?}/{:?}/{audiences}/{}/v1.BoundObjectReference{{Kind:\"Pod\", APIVersion:\"v1\", Name:{:?}, UID:{:?}}}",
        wanted.service_account,
        wanted.namespace,
        wanted.expiration_seconds,
        wanted.pod_name,
        wanted.pod_uid,
    )
}

fn quoted(words: &[String]) -> Vec<String> {
    words.iter().map(|word| format!("{word:?}")).collect()
}
