//! Why a call of a plugin failed, in the words of Go's gRPC client.

use std::error::Error;
use std::fmt;

use tonic::{Code, Status};

/// A failed call of a plugin: its error, or the error that Go's client reports when there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    code: Code,
    message: String,
}

impl Failure {
    /// Makes the failure of a call without a server at the socket.
    pub fn unreachable(why: impl fmt::Display) -> Self {
        Self {
            code: Code::Unavailable,
            message: format!("connection error: desc = \"transport: {why}\""),
        }
    }

    /// Makes the failure of a call without an answer in time.
    pub fn late() -> Self {
        Self {
            code: Code::DeadlineExceeded,
            message: "context deadline exceeded".to_owned(),
        }
    }

    /// Returns the gRPC code.
    pub fn code(&self) -> Code {
        self.code
    }
}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        // What the client itself found out has a source; what came over the wire has none.
        if let Some(source) = status.source() {
            if causes(source).any(|cause| cause.is::<tonic::TimeoutExpired>()) {
                return Self::late();
            }
            return Self {
                code: Code::Unavailable,
                message: match causes(source).last() {
                    Some(last) => format!("error reading from server: {last}"),
                    None => "error reading from server".to_owned(),
                },
            };
        }
        Self {
            code: status.code(),
            message: shortened(status.message()),
        }
    }
}

/// As Go's gRPC prints it.
impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (code, message) = (code_name(self.code), &self.message);
        write!(out, "rpc error: code = {code} desc = {message}")
    }
}

fn code_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "Canceled",
        Code::Unknown => "Unknown",
        Code::InvalidArgument => "InvalidArgument",
        Code::DeadlineExceeded => "DeadlineExceeded",
        Code::NotFound => "NotFound",
        Code::AlreadyExists => "AlreadyExists",
        Code::PermissionDenied => "PermissionDenied",
        Code::ResourceExhausted => "ResourceExhausted",
        Code::FailedPrecondition => "FailedPrecondition",
        Code::Aborted => "Aborted",
        Code::OutOfRange => "OutOfRange",
        Code::Unimplemented => "Unimplemented",
        Code::Internal => "Internal",
        Code::Unavailable => "Unavailable",
        Code::DataLoss => "DataLoss",
        Code::Unauthenticated => "Unauthenticated",
    }
}

fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| error.source())
}

/// A message goes into events and into the head of an answer: it must not be longer than those take.
fn shortened(message: &str) -> String {
    /// Bytes of a message: an event has 1024 characters, and the head of an answer a few KiB.
    const LONGEST: usize = 2048;
    match message.get(..message.floor_char_boundary(LONGEST)) {
        Some(start) if start.len() < message.len() => format!("{start} ..."),
        Some(_) | None => message.to_owned(),
    }
}
