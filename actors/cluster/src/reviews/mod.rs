//! Authentication and authorization of callers by the API server: TokenReview and SubjectAccessReview.
//!
//! A review without an answer is retried, with upstream's pauses, until its deadline. Tokens are sent
//! and forgotten: no text made here holds one.
//!
//! Upstream: staging/src/k8s.io/apiserver/plugin/pkg/authenticator/token/webhook,
//! plugin/pkg/authorizer/webhook, pkg/server/options/authentication.go (1.36).

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::{Duration, Instant};

use api_client::{ApiClient, ApiError, RequestLane};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::Api;
use kube::api::PostParams;
use metrics::api::callers::ReviewKind;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serving::{Attributes, AuthenticatedUser, Decision, RequestHistory, ReviewError};

/// The most attempts at one review.
const STEPS: u32 = 5;
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const FACTOR: f64 = 1.5;
/// The largest random part of a pause that is added to it.
const JITTER: f64 = 0.2;
/// The deadline of a review, with all attempts.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Posts reviews to the API server.
#[derive(Debug, Clone)]
pub struct ApiReviews {
    client: ApiClient,
}

impl ApiReviews {
    /// Posts reviews through this client, with the rate limit for work; those of unknown tokens have one of their own.
    pub fn new(client: &ApiClient) -> ApiReviews {
        ApiReviews {
            client: client.clone(),
        }
    }

    /// Posts a review and returns it with its decision.
    async fn post<K>(
        &self,
        lane: RequestLane,
        question: ReviewKind,
        review: &K,
    ) -> Result<K, ReviewError>
    where
        K: kube::Resource + Clone + Serialize + DeserializeOwned + Debug,
        K::DynamicType: Default,
    {
        let api: Api<K> = Api::all(self.client.kube(lane));
        let insisted = async {
            let (mut pause, mut step) = (FIRST_PAUSE, 1);
            loop {
                let began = kernel::now();
                let answer = api.create(&PostParams::default(), review).await;
                count(question, &answer, began);
                let trouble = match answer.map_err(ApiError::from) {
                    Ok(review) => return Ok(review),
                    Err(trouble) => trouble,
                };
                if step >= STEPS || !is_worth_asking_again(&trouble) {
                    return Err(failed(&trouble));
                }
                step += 1;
                tokio::time::sleep(pause.mul_f64(1.0 + JITTER * kernel::chance())).await;
                pause = pause.mul_f64(FACTOR);
            }
        };
        let late = |_| {
            Err(ReviewError::Unreachable {
                why: "no answer in time".to_owned(),
            })
        };
        tokio::time::timeout(TIMEOUT, insisted)
            .await
            .unwrap_or_else(late)
    }
}

impl serving::Reviews for ApiReviews {
    async fn token(
        &self,
        token: &str,
        history: RequestHistory,
    ) -> Result<Option<AuthenticatedUser>, ReviewError> {
        let lane = match history {
            RequestHistory::Accepted => RequestLane::Work,
            RequestHistory::Unknown => RequestLane::UnknownTokens,
        };
        let review = TokenReview {
            spec: TokenReviewSpec {
                token: token.to_owned(),
                audiences: None,
            },
            ..TokenReview::default()
        };
        let status = self.post(lane, ReviewKind::Token, &review).await?;
        let status = status.status.unwrap_or_default();
        if status.authenticated == Some(true) {
            return Ok(Some(user(status.user.unwrap_or_default())));
        }
        match status.error.filter(|why| !why.is_empty()) {
            None => Ok(None),
            Some(why) => Err(ReviewError::Refused { why }),
        }
    }

    async fn access(&self, wanted: &Attributes) -> Result<Decision, ReviewError> {
        let user = &wanted.user;
        let text = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        let extra: BTreeMap<_, _> = user.extra.clone();
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: Some(user.name.clone()),
                uid: text(&user.uid),
                groups: Some(user.groups.clone()).filter(|groups| !groups.is_empty()),
                extra: Some(extra).filter(|extra| !extra.is_empty()),
                resource_attributes: Some(ResourceAttributes {
                    verb: text(wanted.verb),
                    version: Some("v1".to_owned()),
                    resource: Some("nodes".to_owned()),
                    subresource: text(wanted.subresource),
                    name: text(&wanted.node),
                    ..ResourceAttributes::default()
                }),
                non_resource_attributes: None,
            },
            ..SubjectAccessReview::default()
        };
        let Some(status) = self
            .post(RequestLane::Work, ReviewKind::Right, &review)
            .await?
            .status
        else {
            return Err(ReviewError::Refused {
                why: "the answer has no verdict".to_owned(),
            });
        };
        match (status.allowed, status.denied == Some(true)) {
            (true, true) => Err(ReviewError::Refused {
                why: "webhook subject access review returned both allow and deny response"
                    .to_owned(),
            }),
            (true, false) => Ok(Decision::Allowed),
            (false, _) => Ok(Decision::Refused),
        }
    }
}

fn count<K>(question: ReviewKind, answer: &kube::Result<K>, began: Instant) {
    let code = match answer {
        // A created object is answered with 201.
        Ok(_) => Some(201),
        Err(kube::Error::Api(status)) => Some(status.code),
        Err(_) => None,
    };
    let took = kernel::now().saturating_duration_since(began);
    metrics::api::callers::reviewed(question, code, took);
}

fn user(info: UserInfo) -> AuthenticatedUser {
    AuthenticatedUser {
        name: info.username.unwrap_or_default(),
        uid: info.uid.unwrap_or_default(),
        groups: info.groups.unwrap_or_default(),
        extra: info.extra.unwrap_or_default(),
    }
}

/// A server that refuses the node itself will go on refusing.
fn is_worth_asking_again(trouble: &ApiError) -> bool {
    match trouble {
        ApiError::Busy { .. } | ApiError::Unreachable { .. } => true,
        ApiError::Refused { code, .. } => *code >= 500,
        ApiError::NotFound { .. }
        | ApiError::Exists { .. }
        | ApiError::Conflict { .. }
        | ApiError::Gone { .. }
        | ApiError::Unauthorized { .. }
        | ApiError::Forbidden { .. }
        | ApiError::NamespaceTerminating { .. }
        | ApiError::Nonsense { .. } => false,
    }
}

fn failed(trouble: &ApiError) -> ReviewError {
    let why = trouble.to_string();
    match is_worth_asking_again(trouble) {
        true => ReviewError::Unreachable { why },
        false => ReviewError::Refused { why },
    }
}
