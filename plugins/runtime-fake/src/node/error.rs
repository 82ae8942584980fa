//! Why the node does not do what it is asked: each reason has its gRPC code.

use std::io;
use std::path::PathBuf;

use tonic::{Code, Status};

use crate::settings::annotations::AnnotationError;
use crate::state::journal::JournalError;

/// A call that is refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CriError {
    #[error("{what} {id:?} is not found")]
    NotFound { what: &'static str, id: String },
    #[error("name {name:?} is reserved for {by}")]
    NameTaken { name: String, by: String },
    #[error("{field} is missing")]
    Missing { field: &'static str },
    #[error("image {0:?} is not present")]
    NoImage(String),
    #[error("image {0:?} cannot be pulled: no such image")]
    Unpullable(String),
    #[error("{what} {id} is {state}, expected {expected}")]
    WrongState {
        what: &'static str,
        id: String,
        state: &'static str,
        expected: &'static str,
    },
    #[error("no runtime handler {0:?} is configured")]
    NoHandler(String),
    #[error("no address is free")]
    NoAddress,
    #[error("{0}")]
    Scripted(String),
    #[error("command did not end within {0} s")]
    TooSlow(i64),
    #[error("cannot write checkpoint {}", path.display())]
    Checkpoint { path: PathBuf, source: io::Error },
    #[error("cannot open log {}", path.display())]
    Log { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Annotation(#[from] AnnotationError),
    #[error("state cannot be kept")]
    Journal(#[from] JournalError),
}

impl CriError {
    fn code(&self) -> Code {
        match self {
            CriError::NotFound { .. } | CriError::NoImage(_) | CriError::Unpullable(_) => {
                Code::NotFound
            }
            CriError::NameTaken { .. } => Code::AlreadyExists,
            CriError::Missing { .. } | CriError::NoHandler(_) | CriError::Annotation(_) => {
                Code::InvalidArgument
            }
            CriError::WrongState { .. } => Code::FailedPrecondition,
            CriError::NoAddress => Code::ResourceExhausted,
            CriError::Scripted(_) => Code::Unknown,
            CriError::TooSlow(_) => Code::DeadlineExceeded,
            CriError::Checkpoint { .. } | CriError::Log { .. } | CriError::Journal(_) => {
                Code::Internal
            }
        }
    }
}

impl From<CriError> for Status {
    fn from(refusal: CriError) -> Status {
        Status::new(refusal.code(), sdk::error_chain(&refusal))
    }
}
