//! Tokens of the pod's service account.

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::ServiceAccountTokenProjection;
use logic_api::objects::{ServiceAccountToken, TokenSpec};

use super::permissions::FilePermissions;
use super::problem::FilesProblem;
use super::refresh::look_at;
use super::{FilesBuilder, FilesContext};
use crate::Dependency;

/// Upstream's `maxJitter`.
const JITTER: SignedDuration = SignedDuration::from_secs(10);

pub(super) fn collect(
    builder: &mut FilesBuilder<'_>,
    source: &ServiceAccountTokenProjection,
    rights: FilePermissions,
) {
    let wanted = TokenSpec::projected(builder.pod, source);
    builder.uses.insert(Dependency::token(&wanted));
    match find(&wanted, builder.context) {
        Ok(token) => {
            let jitter = builder.jitter(&source.path, JITTER);
            let renew_at = token.renew_at(wanted.expiration_seconds, jitter);
            builder.refresh(look_at(builder.context.now, renew_at, token.expires));
            builder.put(&source.path, rights.file(token.token.into_bytes()));
        }
        Err(problem) => builder.problems.push(problem),
    }
}

fn find(
    wanted: &TokenSpec,
    context: &FilesContext<'_>,
) -> Result<ServiceAccountToken, FilesProblem> {
    let TokenSpec {
        namespace,
        service_account: account,
        ..
    } = wanted;
    let Some(token) = context.objects.token(wanted) else {
        let refused = context.objects.refused_token(wanted);
        let why = refused.unwrap_or_else(|| {
            let audience = match wanted.audiences.as_slice() {
                [] => "no audience of its own".to_owned(),
                named => format!("audience {}", named.join(", ")),
            };
            format!("there is no token of service account {namespace}/{account} for {audience}")
        });
        return Err(FilesProblem::Token(why));
    };
    if token.expires <= context.now {
        return Err(FilesProblem::TokenExpired {
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
fn key(wanted: &TokenSpec) -> String {
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
