//! The outcome of a call; what a broken connection means for it is decided here and nowhere else.
//!
//! A connection that breaks under a call shows as a status that was made up on this side: it has a source (tonic's,
//! hyper's or h2's error), which no status that came over the wire has. If that source says that the request never
//! left, the call did not begin; otherwise its outcome is unknown.

use std::error::Error;
use std::time::Duration;

use kernel::error_chain::{error_chain, with_causes};
use tonic::{Code, ConnectError, Status};

/// A call that brought no answer, or not the wanted one.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The plugin answered with an error status.
    #[error("the plugin refused the call")]
    Refused(#[source] Status),
    /// The connection broke under a call that creates something, or the plugin was abandoned under the call: list what
    /// exists before acting again.
    #[error("plugin {plugin} went away during the call: whether it was carried out is unknown")]
    Interrupted {
        /// The plugin's name.
        plugin: String,
    },
    /// No answer in time; the plugin may have carried it out, or may yet.
    #[error("plugin {plugin} did not answer within {after:?}")]
    Deadline {
        /// The plugin's name.
        plugin: String,
        /// How long was waited.
        after: Duration,
    },
    /// The plugin could not be reached: a call that creates was not carried out.
    #[error("plugin {plugin} is out of reach: {why}")]
    Unavailable {
        /// The plugin's name.
        plugin: String,
        /// The reason, in words.
        why: String,
    },
}

impl CallError {
    /// Whether the same call may succeed later.
    pub fn transient(&self) -> bool {
        match self {
            Self::Interrupted { .. } | Self::Deadline { .. } | Self::Unavailable { .. } => true,
            Self::Refused(status) => match status.code() {
                Code::Unavailable
                | Code::Aborted
                | Code::Cancelled
                | Code::DeadlineExceeded
                | Code::ResourceExhausted
                | Code::FailedPrecondition
                | Code::Internal
                | Code::Unknown => true,
                Code::Ok
                | Code::AlreadyExists
                | Code::DataLoss
                | Code::InvalidArgument
                | Code::NotFound
                | Code::OutOfRange
                | Code::PermissionDenied
                | Code::Unauthenticated
                | Code::Unimplemented => false,
            },
        }
    }

    /// Whether the call may have been carried out although it brought no answer.
    pub fn outcome_unknown(&self) -> bool {
        match self {
            Self::Interrupted { .. } | Self::Deadline { .. } => true,
            Self::Refused(_) | Self::Unavailable { .. } => false,
        }
    }

    /// The code of a refusal.
    pub fn code(&self) -> Option<Code> {
        match self {
            Self::Refused(status) => Some(status.code()),
            Self::Interrupted { .. } | Self::Deadline { .. } | Self::Unavailable { .. } => None,
        }
    }
}

/// A call that ended without a word of the plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectionLoss {
    /// The request never left.
    NotBegun,
    /// It may have been carried out.
    Unknown,
}

impl ConnectionLoss {
    /// Returns `None` for a status that the plugin itself sent.
    pub(super) fn of(status: &Status) -> Option<Self> {
        let mut cause = status.source();
        let lost = cause.is_some();
        while let Some(error) = cause {
            let unsent = error
                .downcast_ref::<hyper::Error>()
                .is_some_and(hyper::Error::is_canceled);
            if unsent || error.is::<ConnectError>() {
                return Some(Self::NotBegun);
            }
            cause = error.source();
        }
        lost.then_some(Self::Unknown)
    }
}

/// Puts an error and its causes into one line.
pub(super) fn chain(error: &(dyn Error + 'static)) -> String {
    match error.downcast_ref::<Status>() {
        Some(status) => with_causes(status.message().to_owned(), error.source()),
        None => error_chain(error),
    }
}
