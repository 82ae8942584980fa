//! Why a call is not carried out: each reason has its gRPC code.

use std::io;
use std::path::PathBuf;

use monitor::{LaunchError, MonitorError, RefusalKind};
use tonic::{Code, Status};

use crate::cdi::CdiError;
use crate::container::user::UserError;
use crate::record::RecordError;
use crate::sandbox::namespaces::{ConnectError, NamespaceError};
use crate::sandbox::sysctls::SysctlError;
use crate::spec::SpecError;

/// A call that is refused or has failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    #[error("{what} {id:?} is not found")]
    NotFound { what: &'static str, id: String },
    #[error("name {name:?} is reserved for {by:?}")]
    NameTaken { name: String, by: String },
    #[error("{0} is missing")]
    Missing(&'static str),
    #[error("{field} is {found:?}, expected {expected}")]
    Invalid {
        field: &'static str,
        found: String,
        expected: &'static str,
    },
    #[error("{what} {id} is {state}, expected {expected}")]
    WrongState {
        what: &'static str,
        id: String,
        state: &'static str,
        expected: &'static str,
    },
    #[error("the pod needs a network of its own, and there is none: {reason}: {message}")]
    NoNetwork { reason: String, message: String },
    #[error("no runtime handler {0:?} is configured")]
    NoHandler(String),
    #[error("{0} not supported by this runtime")]
    Unsupported(&'static str),
    #[error("user namespaces are not supported on this node: {why}")]
    NoUserNamespaces { why: String },
    #[error("command {command:?} timed out: it ran longer than {seconds} s")]
    TooSlow { command: String, seconds: i64 },
    #[error("container {id} did not end within {seconds} s of SIGKILL")]
    DoesNotEnd { id: String, seconds: u64 },
    /// In the OCI runtime's words.
    #[error("{0}")]
    NotStarted(String),
    /// In the OCI runtime's and in CRIU's words.
    #[error("criu cannot checkpoint the container: {message}: {log}")]
    NotCheckpointed { message: String, log: String },
    #[error("cannot delete container {id} with {}: {why}", program.display())]
    NotDeleted {
        id: String,
        program: PathBuf,
        why: String,
    },
    #[error("cannot {what} {}", path.display())]
    File {
        what: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error("image {0:?} is not present")]
    NoImage(String),
    #[error("cannot use image {image:?}: {why}")]
    Image { image: String, why: String },
    #[error("no id can be made")]
    Random(#[source] io::Error),
    #[error(transparent)]
    Spec(#[from] SpecError),
    #[error(transparent)]
    Cdi(#[from] CdiError),
    #[error(transparent)]
    User(#[from] UserError),
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error(transparent)]
    Sysctl(#[from] SysctlError),
    #[error(transparent)]
    Launch(#[from] LaunchError),
    #[error("cannot end the processes of {id}")]
    Processes { id: String, source: io::Error },
    #[error(transparent)]
    Monitor(#[from] MonitorError),
    /// What another service said, with its own code.
    #[error("{}", .0.message())]
    Other(Status),
}

impl CallError {
    fn code(&self) -> Code {
        match self {
            CallError::NotFound { .. } | CallError::NoImage(_) => Code::NotFound,
            CallError::NameTaken { .. } => Code::AlreadyExists,
            CallError::Missing(_)
            | CallError::Invalid { .. }
            | CallError::NoHandler(_)
            | CallError::Spec(_)
            | CallError::Cdi(_)
            | CallError::User(_)
            | CallError::Sysctl(_) => Code::InvalidArgument,
            CallError::WrongState { .. } | CallError::NoNetwork { .. } => Code::FailedPrecondition,
            CallError::Unsupported(_) | CallError::NoUserNamespaces { .. } => Code::Unimplemented,
            CallError::TooSlow { .. }
            | CallError::DoesNotEnd { .. }
            | CallError::Processes { .. } => Code::DeadlineExceeded,
            CallError::Monitor(error) => of_monitor(error),
            CallError::Other(status) => status.code(),
            CallError::File { .. }
            | CallError::Image { .. }
            | CallError::NotStarted(_)
            | CallError::NotCheckpointed { .. }
            | CallError::NotDeleted { .. }
            | CallError::Random(_)
            | CallError::Record(_)
            | CallError::Namespace(_)
            | CallError::Connect(_)
            | CallError::Launch(_) => Code::Internal,
        }
    }

    pub(crate) fn file(
        what: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> CallError {
        let path = path.into();
        move |source| CallError::File { what, path, source }
    }
}

fn of_monitor(error: &MonitorError) -> Code {
    match error {
        MonitorError::Gone(..) | MonitorError::Broken(..) => Code::Unavailable,
        MonitorError::Deadline { .. } => Code::DeadlineExceeded,
        MonitorError::Refused(refusal) => match refusal.kind {
            RefusalKind::NotFound => Code::NotFound,
            RefusalKind::AlreadyExists => Code::AlreadyExists,
            RefusalKind::WrongPhase => Code::FailedPrecondition,
            RefusalKind::Full => Code::ResourceExhausted,
            RefusalKind::Invalid => Code::InvalidArgument,
            RefusalKind::Deadline => Code::DeadlineExceeded,
            RefusalKind::Version | RefusalKind::Runtime | RefusalKind::System => Code::Internal,
        },
        MonitorError::Frame(_) | MonitorError::Unexpected => Code::Internal,
    }
}

impl From<CallError> for Status {
    fn from(refusal: CallError) -> Status {
        Status::new(refusal.code(), sdk::error_chain(&refusal))
    }
}
