//! Reviews of callers by the API server: a token's user, and what a user may do.

use std::collections::BTreeMap;
use std::rc::Rc;

/// An authenticated user, as `k8s.io/apiserver` has it.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct AuthenticatedUser {
    pub name: String,
    /// Empty where the authenticator gives none.
    pub uid: String,
    pub groups: Vec<String>,
    /// What the authenticator adds, by key.
    pub extra: BTreeMap<String, Vec<String>>,
}

/// What a user wants to do to this node, as an authorizer judges it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Attributes {
    pub user: Rc<AuthenticatedUser>,
    /// Empty for a method that has no verb: the review refuses it.
    pub verb: &'static str,
    /// The resource is always `nodes`, of version `v1` in the core group.
    pub subresource: &'static str,
    /// The node's name: some permissions name it.
    pub node: Rc<str>,
}

/// The result of an authorization. No opinion counts as refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    Allowed,
    Refused,
}

/// Why there is no decision.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReviewError {
    #[error("there is no API server to ask")]
    Alone,
    #[error("the review does not come through: {why}")]
    Unreachable { why: String },
    #[error("the review was refused: {why}")]
    Refused { why: String },
}

impl ReviewError {
    /// Returns whether the same review may succeed later.
    pub fn transient(&self) -> bool {
        match self {
            ReviewError::Alone | ReviewError::Refused { .. } => false,
            ReviewError::Unreachable { .. } => true,
        }
    }
}

/// Whether a request was accepted before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestHistory {
    /// It was, if not lately.
    Accepted,
    /// Whoever reaches the port may have made it up: its review takes nothing from other requests of the node.
    Unknown,
}

/// Asks the API server. Every review ends by a deadline, and is retried where that may help.
#[allow(
    async_fn_in_trait,
    reason = "servers stay on their thread, so the futures need no Send"
)]
pub trait Reviews: 'static {
    /// Returns the token's user; none if the token is not valid (TokenReview).
    async fn token(
        &self,
        token: &str,
        history: RequestHistory,
    ) -> Result<Option<AuthenticatedUser>, ReviewError>;

    /// Returns whether the request is permitted (SubjectAccessReview).
    async fn access(&self, wanted: &Attributes) -> Result<Decision, ReviewError>;
}

/// Without an API server no token is valid, and nothing is permitted.
#[derive(Debug, Clone, Copy)]
pub struct NoReviews;

impl Reviews for NoReviews {
    async fn token(
        &self,
        _: &str,
        _: RequestHistory,
    ) -> Result<Option<AuthenticatedUser>, ReviewError> {
        Err(ReviewError::Alone)
    }

    async fn access(&self, _: &Attributes) -> Result<Decision, ReviewError> {
        Err(ReviewError::Alone)
    }
}
