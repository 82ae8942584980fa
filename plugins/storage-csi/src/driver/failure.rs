//! Why a call of a driver failed: in upstream's words, and whether the driver is done with it.

use std::error::Error;
use std::fmt;

use tonic::{Code, Status};

/// What a driver says, or what is said for one that cannot be reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    code: Code,
    message: String,
}

/// What was asked of the driver: the same code means different things to the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// To bring a volume or to take it away: tried again whatever is wrong, as upstream does.
    Work,
    /// To grow a volume: some codes mean that it never will.
    Growth,
}

impl Failure {
    /// Nobody answers at the socket.
    pub(crate) fn unreachable(why: impl fmt::Display) -> Self {
        Self {
            code: Code::Unavailable,
            message: format!("connection error: desc = \"transport: {why}\""),
        }
    }

    /// No answer came in time.
    pub(crate) fn late() -> Self {
        Self {
            code: Code::DeadlineExceeded,
            message: "context deadline exceeded".to_owned(),
        }
    }

    /// Tells whether the driver is done: with the other codes the work may still go on behind them.
    pub(crate) fn is_final(&self) -> bool {
        !matches!(
            self.code,
            Code::Cancelled
                | Code::DeadlineExceeded
                | Code::Unavailable
                | Code::ResourceExhausted
                | Code::Aborted
        )
    }

    /// Returns it as the answer to the agent; the message has the driver's own code and words.
    ///
    /// A code that would end the agent's trying is given only where upstream ends it too.
    pub(crate) fn answer(&self, asked: Asked, before: &str) -> Status {
        Status::new(self.code_for(asked), format!("{before}{self}"))
    }

    fn code_for(&self, asked: Asked) -> Code {
        match (self.code, asked) {
            (Code::InvalidArgument | Code::OutOfRange | Code::NotFound, Asked::Growth) => {
                Code::InvalidArgument
            }
            (Code::InvalidArgument | Code::OutOfRange, Asked::Work) => Code::FailedPrecondition,
            (Code::Cancelled | Code::Aborted, _) => Code::Unavailable,
            (
                Code::FailedPrecondition
                | Code::NotFound
                | Code::Unavailable
                | Code::DeadlineExceeded
                | Code::ResourceExhausted
                | Code::Internal,
                _,
            ) => self.code,
            (
                Code::Ok
                | Code::Unknown
                | Code::AlreadyExists
                | Code::PermissionDenied
                | Code::Unimplemented
                | Code::DataLoss
                | Code::Unauthenticated,
                _,
            ) => Code::Unknown,
        }
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
        let (code, message) = (word(self.code), &self.message);
        write!(out, "rpc error: code = {code} desc = {message}")
    }
}

fn word(code: Code) -> &'static str {
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
    const LONGEST: usize = 2048;
    match message.get(..message.floor_char_boundary(LONGEST)) {
        Some(start) if start.len() < message.len() => format!("{start} ..."),
        Some(_) | None => message.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(code: Code) -> Failure {
        Failure::from(Status::new(code, "boom"))
    }

    /// Upstream's isFinalError.
    #[test]
    fn a_driver_is_done_unless_its_work_may_still_go_on() {
        let codes = (0..17).map(Code::from);
        let going_on: Vec<_> = codes.filter(|&code| !said(code).is_final()).collect();
        assert_eq!(
            going_on,
            [
                Code::Cancelled,
                Code::DeadlineExceeded,
                Code::ResourceExhausted,
                Code::Aborted,
                Code::Unavailable
            ]
        );
        assert!(!Failure::late().is_final());
        assert!(!Failure::unreachable("x").is_final());
    }

    #[test]
    fn a_failure_reads_as_upstream_s() {
        assert_eq!(
            said(Code::Internal).to_string(),
            "rpc error: code = Internal desc = boom"
        );
        assert_eq!(
            said(Code::Cancelled).to_string(),
            "rpc error: code = Canceled desc = boom"
        );
        let status = said(Code::Internal).answer(Asked::Work, "x: ");
        assert_eq!(status.code(), Code::Internal);
        assert_eq!(
            status.message(),
            "x: rpc error: code = Internal desc = boom"
        );
    }

    /// Upstream's isInfeasibleError and inUseError.
    #[test]
    fn only_growth_is_given_up_for_what_a_driver_says() {
        for code in (0..17).map(Code::from) {
            let work = said(code).answer(Asked::Work, "").code();
            assert_ne!(work, Code::InvalidArgument);
            assert_ne!(work, Code::Unimplemented);
            let growth = said(code).answer(Asked::Growth, "").code();
            let never = matches!(
                code,
                Code::InvalidArgument | Code::OutOfRange | Code::NotFound
            );
            assert_eq!(growth == Code::InvalidArgument, never, "{code:?}");
        }
        let in_use = said(Code::FailedPrecondition).answer(Asked::Growth, "");
        assert_eq!(in_use.code(), Code::FailedPrecondition);
    }

    #[test]
    fn a_long_message_is_cut() {
        let failure = Failure::from(Status::internal("ä".repeat(100_000)));
        assert!(failure.to_string().len() < 2200);
    }
}
