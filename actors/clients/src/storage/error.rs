//! Why a storage plugin's call failed, and whether it may succeed later.

use plugin_host::CallError;
use thiserror::Error;
use tonic::Code;

/// The metadata key of an answer whose thread the plugin abandoned.
pub(super) const ABANDONED: &str = "oxlet-abandoned";

/// Why a storage plugin's call failed.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum StorageError {
    /// The plugin answered with an error.
    #[error("{message}")]
    Refused {
        class: RefusalClass,
        message: String,
    },
    /// The plugin abandoned a stuck thread: this generation of its process must be replaced.
    #[error("{message}")]
    Stuck { generation: u64, message: String },
    /// No answer in time; the call may or may not have been carried out.
    #[error("{plugin} did not answer: {why}")]
    Unanswered { plugin: String, why: String },
}

/// The class of an error that a plugin answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalClass {
    /// Repeating the call is of no use until the pod or its objects change.
    Invalid,
    /// Something is absent or not as expected, and may appear later.
    Missing,
    /// The backend did not answer the plugin in time.
    Late,
    Unimplemented,
    Failed,
}

impl StorageError {
    /// Whether the same call may succeed later, without a change of the pod.
    pub fn transient(&self) -> bool {
        match self {
            Self::Refused { class, .. } => match class {
                RefusalClass::Missing | RefusalClass::Late | RefusalClass::Failed => true,
                RefusalClass::Invalid | RefusalClass::Unimplemented => false,
            },
            Self::Stuck { .. } | Self::Unanswered { .. } => true,
        }
    }

    pub(super) fn new(error: CallError, generation: u64) -> Self {
        match error {
            CallError::Refused(status) if status.metadata().contains_key(ABANDONED) => {
                Self::Stuck {
                    generation,
                    message: status.message().to_owned(),
                }
            }
            CallError::Refused(status) => Self::Refused {
                class: class(status.code()),
                message: status.message().to_owned(),
            },
            CallError::Interrupted { plugin } => Self::Unanswered {
                plugin,
                why: "it went away during the call".to_owned(),
            },
            CallError::Deadline { plugin, after } => Self::Unanswered {
                plugin,
                why: format!("nothing was heard for {after:?}"),
            },
            CallError::Unavailable { plugin, why } => Self::Unanswered { plugin, why },
        }
    }
}

fn class(code: Code) -> RefusalClass {
    match code {
        Code::InvalidArgument | Code::OutOfRange => RefusalClass::Invalid,
        Code::NotFound | Code::FailedPrecondition => RefusalClass::Missing,
        // A driver that disconnected during a call may have done half of it.
        Code::DeadlineExceeded | Code::Cancelled | Code::Unavailable => RefusalClass::Late,
        Code::Unimplemented => RefusalClass::Unimplemented,
        Code::Ok
        | Code::Unknown
        | Code::AlreadyExists
        | Code::PermissionDenied
        | Code::ResourceExhausted
        | Code::Aborted
        | Code::Internal
        | Code::DataLoss
        | Code::Unauthenticated => RefusalClass::Failed,
    }
}
