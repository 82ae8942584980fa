//! Why a storage plugin did not do as asked, and whether it may later.

use plugin_host::CallError;
use thiserror::Error;
use tonic::Code;

/// What a plugin adds to an answer that it gave up a thread for.
pub(super) const ABANDONED: &str = "oxlet-abandoned";

/// Why a storage plugin did not do as asked.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum StorageError {
    /// It answered no.
    #[error("{message}")]
    Refused {
        class: RefusalClass,
        message: String,
    },
    /// It gave up a thread that does not come back: its process is worn.
    #[error("{message}")]
    Stuck { generation: u64, message: String },
    /// Nobody answered in time; it may or may not have been done.
    #[error("{plugin} did not answer: {why}")]
    Unanswered { plugin: String, why: String },
}

/// What kind of no it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalClass {
    /// To repeat it is of no use until the pod or its objects change.
    Invalid,
    /// Something is not there, or not as expected: it may come.
    Missing,
    /// Not done in time by whoever is behind the plugin.
    Late,
    Unimplemented,
    Failed,
}

impl StorageError {
    /// Whether the same call may succeed later, without anybody changing the pod.
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
        // A driver that went away in the middle of a call may have done half of it.
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
