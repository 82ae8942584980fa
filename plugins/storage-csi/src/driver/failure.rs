//! A driver's failure: whether it is final, and the status that the agent is answered.

pub(crate) use registration::rpc::Failure;
use tonic::{Code, Status};

/// What was asked of the driver: the same code means different things to the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallKind {
    /// To bring a volume or to take it away: tried again whatever is wrong, as upstream does.
    Work,
    /// To grow a volume: some codes mean that it never will.
    Growth,
}

/// What a failure means when it is a CSI driver's.
pub(crate) trait DriverFailure {
    /// Tells whether the driver is done: with the other codes the work may still go on behind them.
    fn is_final(&self) -> bool;

    /// Returns it as the answer to the agent; the message has the driver's own code and words.
    ///
    /// A code that would end the agent's trying is given only where upstream ends it too.
    fn answer(&self, asked: CallKind, before: &str) -> Status;
}

impl DriverFailure for Failure {
    fn is_final(&self) -> bool {
        !matches!(
            self.code(),
            Code::Cancelled
                | Code::DeadlineExceeded
                | Code::Unavailable
                | Code::ResourceExhausted
                | Code::Aborted
        )
    }

    fn answer(&self, asked: CallKind, before: &str) -> Status {
        Status::new(code_for(self.code(), asked), format!("{before}{self}"))
    }
}

fn code_for(code: Code, asked: CallKind) -> Code {
    match (code, asked) {
        (Code::InvalidArgument | Code::OutOfRange | Code::NotFound, CallKind::Growth) => {
            Code::InvalidArgument
        }
        (Code::InvalidArgument | Code::OutOfRange, CallKind::Work) => Code::FailedPrecondition,
        (Code::Cancelled | Code::Aborted, _) => Code::Unavailable,
        (
            Code::FailedPrecondition
            | Code::NotFound
            | Code::Unavailable
            | Code::DeadlineExceeded
            | Code::ResourceExhausted
            | Code::Internal,
            _,
        ) => code,
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
        let status = said(Code::Internal).answer(CallKind::Work, "x: ");
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
            let work = said(code).answer(CallKind::Work, "").code();
            assert_ne!(work, Code::InvalidArgument);
            assert_ne!(work, Code::Unimplemented);
            let growth = said(code).answer(CallKind::Growth, "").code();
            let never = matches!(
                code,
                Code::InvalidArgument | Code::OutOfRange | Code::NotFound
            );
            assert_eq!(growth == Code::InvalidArgument, never, "{code:?}");
        }
        let in_use = said(Code::FailedPrecondition).answer(CallKind::Growth, "");
        assert_eq!(in_use.code(), Code::FailedPrecondition);
    }

    #[test]
    fn a_long_message_is_cut() {
        let failure = Failure::from(Status::internal("ä".repeat(100_000)));
        assert!(failure.to_string().len() < 2200);
    }
}
