//! Tokens of service accounts: requested for a pod, renewed before they end.
//!
//! Upstream: pkg/kubelet/token/token_manager.go (1.36).

use std::time::Duration;

use api_client::ApiError;
use jiff::SignedDuration;
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kernel::Context;
use kube::Api;
use kube::api::PostParams;
use logic_api::objects::{
    BoundPod, ObjectRequest, ServiceAccountToken, StaticToken, TokenSpec, new_token_wait,
    token_wait,
};

use super::Msg;

/// Upstream's `maxJitter`, in milliseconds.
const JITTER: f64 = 10_000.0;

/// The wait after an answer that is no token.
const LOOK: Duration = Duration::from_secs(300);

/// Whether a token has just been issued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TokenFreshness {
    New,
    Old,
}

/// How long the token is used before it is renewed.
pub(super) fn wait(
    wanted: &ObjectRequest,
    token: &StaticToken,
    newness: TokenFreshness,
    ctx: &Context<Msg>,
) -> Duration {
    let ObjectRequest::Token(TokenSpec {
        expiration_seconds: asked,
        ..
    }) = wanted
    else {
        return LOOK;
    };
    let now = ctx.timestamp();
    let token = &token.token;
    match newness {
        #[allow(clippy::cast_possible_truncation, reason = "at most ten thousand")]
        TokenFreshness::New => {
            let jitter = SignedDuration::from_millis((kernel::chance() * JITTER) as i64);
            new_token_wait(token, *asked, now, jitter)
        }
        TokenFreshness::Old => token_wait(token, *asked, now, SignedDuration::ZERO),
    }
}

/// Requests a token that is bound to the pod.
pub(super) async fn request(api: kube::Client, wanted: TokenSpec) -> Result<StaticToken, ApiError> {
    let accounts: Api<ServiceAccount> = Api::namespaced(api, &wanted.namespace);
    let request = TokenRequest {
        spec: Some(TokenRequestSpec {
            audiences: Some(wanted.audiences.clone()),
            bound_object_ref: Some(BoundObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Pod".to_owned()),
                name: Some(wanted.pod_name.clone()),
                uid: Some(wanted.pod_uid.clone()),
            }),
            expiration_seconds: Some(wanted.expiration_seconds),
        }),
        ..TokenRequest::default()
    };
    let answer = accounts
        .create_token_request(&wanted.service_account, &PostParams::default(), &request)
        .await?;
    let nonsense = |what: &str| ApiError::Nonsense {
        message: format!("the answer to the token request has no {what}"),
    };
    let status = answer.status.unwrap_or_default();
    let token = status.token.filter(|token| !token.is_empty());
    let expires = status.expiration_timestamp;
    let expires = expires.ok_or_else(|| nonsense("expirationTimestamp"))?.0;
    let given = answer.spec.and_then(|spec| spec.expiration_seconds);
    let life = SignedDuration::from_secs(given.unwrap_or(wanted.expiration_seconds));
    Ok(StaticToken {
        audiences: wanted.audiences,
        bound_to: Some(BoundPod {
            name: wanted.pod_name,
            uid: wanted.pod_uid,
        }),
        asked: Some(wanted.expiration_seconds),
        token: ServiceAccountToken {
            token: token.ok_or_else(|| nonsense("token"))?,
            expires,
            issued: expires.checked_sub(life).ok(),
        },
    })
}
