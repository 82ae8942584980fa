//! Why a command is not carried out.

use std::error::Error;

/// Any of the many errors: they are only ever told.
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
    /// In runc's words, by which users search.
    #[error("unable to start container process: {0}")]
    Init(String),
    #[error("cannot start a container in the {0} state")]
    NotCreated(&'static str),
    #[error("cannot delete container {0} that is not stopped: {1}")]
    NotStopped(String, &'static str),
    #[error("rlimit {0}")]
    Limit(String, #[source] std::io::Error),
}

/// Returns an error in full: its words and its causes', each once.
pub(crate) fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let one = error.to_string();
        if !text.contains(&one) {
            text = format!("{text}: {one}");
        }
        cause = error.source();
    }
    text
}

/// What is in a spec and is not enforced here.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FieldError {
    #[error("{0} is not supported by this runtime")]
    Unsupported(String),
    #[error("{0}: {1}")]
    Wrong(String, String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{0}")]
    struct Outer(&'static str, #[source] std::io::Error);

    #[test]
    fn an_error_is_told_with_all_its_causes() {
        let told = |words| with_causes(&Outer(words, std::io::Error::other("the cause")));
        assert_eq!(told("outer"), "outer: the cause");
        assert_eq!(told("outer: the cause"), "outer: the cause");
    }
}
