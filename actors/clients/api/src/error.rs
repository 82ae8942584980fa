//! Errors of API requests, sorted by what the caller does about them.

use std::error::Error;
use std::time::Duration;

use kernel::error_chain;
use kube::core::Status;

/// The longest wait that the server can ask for.
pub(super) const WAIT_AT_MOST: Duration = Duration::from_secs(60 * 60);

/// The cause of a refusal in a namespace that is being deleted (`NamespaceTerminatingCause` of k8s.io/api/core/v1).
const NAMESPACE_TERMINATING: &str = "NamespaceTerminating";

/// The reason that kube gives a refusal whose body is not the API server's Status.
const NOT_A_STATUS: &str = "Failed to parse error data";

/// Why a request failed. A refusal's message is the server's own.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApiError {
    /// 404: there is no such object.
    #[error("{message}")]
    NotFound { message: String },
    /// 409 on create: the object exists.
    #[error("{message}")]
    Exists { message: String },
    /// 409 on update or patch: the object is not as the caller believed.
    #[error("{message}")]
    Conflict { message: String },
    /// 410: the resource version is too old; the caller must list again.
    #[error("{message}")]
    Gone { message: String },
    /// 401: the server does not know the caller.
    #[error("{message}")]
    Unauthorized { message: String },
    /// 403: the caller is not permitted.
    #[error("{message}")]
    Forbidden { message: String },
    /// 403: the namespace is being deleted, and nothing is made in it any more.
    #[error("{message}")]
    NamespaceTerminating { message: String },
    /// 429, or any answer with Retry-After.
    #[error("{message}")]
    Busy {
        after: Option<Duration>,
        message: String,
    },
    /// Any other refusal.
    #[error("{message}")]
    Refused {
        code: u16,
        reason: String,
        message: String,
    },
    /// No answer: connection refused or broken, or the deadline passed.
    #[error("{message}")]
    Unreachable { message: String },
    /// The answer cannot be parsed.
    #[error("{message}")]
    Nonsense { message: String },
}

impl ApiError {
    /// How long the server asks to wait (Retry-After); none if it does not say.
    pub fn pause(&self) -> Option<Duration> {
        match self {
            ApiError::Busy { after, .. } => *after,
            ApiError::NotFound { .. }
            | ApiError::Exists { .. }
            | ApiError::Conflict { .. }
            | ApiError::Gone { .. }
            | ApiError::Unauthorized { .. }
            | ApiError::Forbidden { .. }
            | ApiError::NamespaceTerminating { .. }
            | ApiError::Refused { .. }
            | ApiError::Unreachable { .. }
            | ApiError::Nonsense { .. } => None,
        }
    }

    /// Whether the same request may succeed later.
    pub fn transient(&self) -> bool {
        match self {
            ApiError::Unauthorized { .. }
            | ApiError::Busy { .. }
            | ApiError::Unreachable { .. }
            | ApiError::Nonsense { .. } => true,
            // A refusal without a code is not the API server's own.
            ApiError::Refused { code, .. } => *code >= 500 || *code == 0,
            ApiError::NotFound { .. }
            | ApiError::Exists { .. }
            | ApiError::Conflict { .. }
            | ApiError::Gone { .. }
            | ApiError::Forbidden { .. }
            | ApiError::NamespaceTerminating { .. } => false,
        }
    }

    /// Whether a proxy answered because it could not reach the API server: a code of a gateway without a Status. It
    /// says nothing about the object that was asked for.
    pub fn is_from_proxy(&self) -> bool {
        match self {
            ApiError::Refused { code, reason, .. } => {
                matches!(code, 502..=504) && reason == NOT_A_STATUS
            }
            ApiError::NotFound { .. }
            | ApiError::Exists { .. }
            | ApiError::Conflict { .. }
            | ApiError::Gone { .. }
            | ApiError::Unauthorized { .. }
            | ApiError::Forbidden { .. }
            | ApiError::NamespaceTerminating { .. }
            | ApiError::Busy { .. }
            | ApiError::Unreachable { .. }
            | ApiError::Nonsense { .. } => false,
        }
    }

    pub(super) fn unreachable(message: impl Into<String>) -> ApiError {
        ApiError::Unreachable {
            message: message.into(),
        }
    }

    pub(super) fn nonsense(message: impl Into<String>) -> ApiError {
        ApiError::Nonsense {
            message: message.into(),
        }
    }
}

impl From<Status> for ApiError {
    fn from(status: Status) -> ApiError {
        if status.code == 0 && status.reason.is_empty() && status.message.is_empty() {
            return ApiError::nonsense("the answer is not what was asked for");
        }
        let message = match status.message.is_empty() {
            true => format!("the server answered with code {}", status.code),
            false => status.message,
        };
        let details = status.details.as_ref();
        let is_terminating = details.is_some_and(|details| {
            let mut causes = details.causes.iter();
            causes.any(|cause| cause.reason == NAMESPACE_TERMINATING)
        });
        let seconds = details.map_or(0, |details| details.retry_after_seconds);
        let after = (seconds > 0).then(|| Duration::from_secs(seconds.into()).min(WAIT_AT_MOST));
        match (status.code, status.reason.as_str()) {
            (404, _) => ApiError::NotFound { message },
            (409, "AlreadyExists") => ApiError::Exists { message },
            (409, _) => ApiError::Conflict { message },
            (410, _) | (_, "Expired" | "Gone") => ApiError::Gone { message },
            (401, _) => ApiError::Unauthorized { message },
            (403, _) if is_terminating => ApiError::NamespaceTerminating { message },
            (403, _) => ApiError::Forbidden { message },
            (429, _) => ApiError::Busy { after, message },
            (500.., _) if after.is_some() => ApiError::Busy { after, message },
            (code, _) => ApiError::Refused {
                code,
                reason: status.reason,
                message,
            },
        }
    }
}

impl From<kube::Error> for ApiError {
    fn from(error: kube::Error) -> ApiError {
        if let Some(ours) = ours(&error) {
            return ours.clone();
        }
        // A text of serde's may quote the answer, which may be a secret: only the place is kept.
        let place = |error: &serde_json::Error| {
            let (line, column) = (error.line(), error.column());
            format!("the answer is not what was asked for, at line {line} column {column}")
        };
        #[allow(
            clippy::wildcard_enum_match_arm,
            reason = "whatever else kube fails with never came from the server"
        )]
        match error {
            kube::Error::Api(status) => ApiError::from(*status),
            kube::Error::SerdeError(error) => ApiError::nonsense(place(&error)),
            kube::Error::FromUtf8(_) => ApiError::nonsense("the answer is not UTF-8"),
            kube::Error::LinesCodecMaxLineLengthExceeded => {
                ApiError::nonsense("an event is too long")
            }
            error => ApiError::unreachable(error_chain(&error)),
        }
    }
}

/// The error that our own part of the client reported, under what kube wrapped it in.
fn ours<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a ApiError> {
    if let Some(trouble) = error.downcast_ref::<ApiError>() {
        return Some(trouble);
    }
    if let Some(error) = error.downcast_ref::<std::io::Error>() {
        return error.get_ref().and_then(|inner| ours(inner));
    }
    error.source().and_then(ours)
}
