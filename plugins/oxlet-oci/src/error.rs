//! Why a command is not carried out.

use std::error::Error;

/// Any of the many errors of libcontainer and of ours: they are only ever told.
pub(crate) type AnyError = Box<dyn Error>;

/// Why a command is not carried out.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CommandError {
    #[error("container {0} does not exist")]
    Absent(String),
    #[error("container {0} exists already")]
    Exists(String),
    #[error("container {0} is not running")]
    NotRunning(String),
    #[error("{0} is no command of this runtime")]
    Unknown(String),
    #[error("{0} needs {1}")]
    Missing(&'static str, &'static str),
    #[error("{0:?} is no signal")]
    Signal(String),
    #[error("init {0} of the container ended at once")]
    Ended(i32),
}
