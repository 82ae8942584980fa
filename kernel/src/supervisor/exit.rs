//! How one incarnation of an actor ends.

use std::error::Error;
use std::fmt;

use crate::error_chain::error_chain;

/// How an actor's life ended, and so what its supervisor does.
#[derive(Debug)]
pub enum Exit {
    /// Its work is done: a permanent child is restarted, every other one removed.
    Done,
    /// It was asked to stop, or asked for it itself: never restarted.
    Stopped,
    /// It cannot go on: restarted, unless it is temporary.
    Failed(Box<dyn Error + Send + Sync>),
    /// It panicked: restarted, unless it is temporary. The message it panicked on is lost.
    Panicked(String),
    /// It did not answer its ping in time: restarted, unless it is temporary.
    Hung {
        /// The message it was stuck in.
        message: &'static str,
    },
}

impl<E: Error + Send + Sync + 'static> From<E> for Exit {
    fn from(error: E) -> Exit {
        Exit::Failed(Box::new(error))
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Exit::Done => write!(f, "done"),
            Exit::Stopped => write!(f, "stopped"),
            Exit::Failed(error) => write!(f, "failed: {}", error_chain(error.as_ref())),
            Exit::Panicked(text) => write!(f, "panicked: {text}"),
            Exit::Hung { message } => write!(f, "hung in {message}"),
        }
    }
}
