//! What a probe's turn and its outcome mean.

use std::time::Duration;

use logic_api::types::{ContainerHealth, ProbeResult};

use super::ProbeKind;
use super::schedule::ProbeTiming;

/// How often a probe that could not be carried out is tried in one turn.
pub const MAX_ATTEMPTS: u32 = 3;

/// The outcome of one probe of a container, with its output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeOutcome {
    Success(String),
    /// A success with a warning event (e.g. a redirect that was not followed).
    Warning(String),
    Failure(String),
}

/// Why a probe has no outcome; it changes nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProbeError {
    /// It could not be carried out.
    #[error("{0}")]
    Unknown(String),
    /// The answer broke off, which upstream calls a failure but does not count.
    #[error("{0}")]
    BrokenOff(String),
}

impl ProbeError {
    /// The state that upstream's event names.
    pub fn state(&self) -> &'static str {
        match self {
            Self::Unknown(_) => "unknown",
            Self::BrokenOff(_) => "failure",
        }
    }
}

/// Whether a probe that is due is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeGate {
    Probe,
    /// Not yet: it waits for another probe's word.
    Pass,
    /// Never again for this instance.
    Hold,
}

/// Decides whether a due probe runs, by the health of the instance.
///
/// A startup probe is not run again once it has a result, a liveness probe once it has failed: they start again with
/// the next instance. The others wait for the startup probe.
pub fn probe_gate(kind: ProbeKind, health: &ContainerHealth) -> ProbeGate {
    match (kind, health.startup, health.liveness) {
        (ProbeKind::Startup, ProbeResult::Success | ProbeResult::Failure, _) => ProbeGate::Hold,
        (ProbeKind::Startup, ProbeResult::Unknown, _) => ProbeGate::Probe,
        (ProbeKind::Liveness, _, ProbeResult::Failure) => ProbeGate::Hold,
        (_, ProbeResult::Success, _) => ProbeGate::Probe,
        (_, ProbeResult::Unknown | ProbeResult::Failure, _) => ProbeGate::Pass,
    }
}

/// Equal outcomes in a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResultRun {
    last: ProbeResult,
    length: u32,
}

impl ResultRun {
    /// Counts an outcome, and returns the result if the threshold is reached.
    pub fn count(&mut self, timing: &ProbeTiming, outcome: &ProbeOutcome) -> Option<ProbeResult> {
        let (verdict, threshold) = match outcome {
            ProbeOutcome::Success(_) | ProbeOutcome::Warning(_) => {
                (ProbeResult::Success, timing.success_threshold)
            }
            ProbeOutcome::Failure(_) => (ProbeResult::Failure, timing.failure_threshold),
        };
        self.length = match self.last == verdict {
            true => self.length.saturating_add(1),
            false => 1,
        };
        self.last = verdict;
        (self.length >= threshold).then_some(verdict)
    }
}

/// Whether an outcome counts for a container that has run for `age`.
///
/// The startup probe runs at once instead of after upstream's part of a period: a failure of this early run must not
/// shorten the container's time to start, its threshold times its period.
pub fn counts(
    kind: ProbeKind,
    timing: &ProbeTiming,
    age: Duration,
    outcome: &ProbeOutcome,
) -> bool {
    let early = kind == ProbeKind::Startup && timing.initial_delay.is_zero() && age < timing.period;
    match outcome {
        ProbeOutcome::Success(_) | ProbeOutcome::Warning(_) => true,
        ProbeOutcome::Failure(_) => !early,
    }
}

/// The outcome of an HTTP probe by its status: success below 400, with a warning for a redirect that was not followed.
///
/// A failure does not show the body: it may be confidential.
pub fn of_status(status: u16, body: String) -> ProbeOutcome {
    match status {
        200..=299 => ProbeOutcome::Success(body),
        300..=399 => {
            ProbeOutcome::Warning(format!("Probe terminated redirects, Response body: {body}"))
        }
        _ => ProbeOutcome::Failure(format!("HTTP probe failed with statuscode: {status}")),
    }
}

#[cfg(test)]
mod tests {
    use ProbeKind::{Liveness, Readiness, Startup};

    use super::*;

    fn timing(success: u32, failure: u32) -> ProbeTiming {
        ProbeTiming {
            success_threshold: success,
            failure_threshold: failure,
            ..ProbeTiming::of(&k8s_openapi::api::core::v1::Probe::default())
        }
    }

    fn good() -> ProbeOutcome {
        ProbeOutcome::Success(String::new())
    }

    fn bad() -> ProbeOutcome {
        ProbeOutcome::Failure(String::new())
    }

    fn health(startup: ProbeResult, liveness: ProbeResult) -> ContainerHealth {
        ContainerHealth {
            startup,
            liveness,
            readiness: ProbeResult::Failure,
        }
    }

    /// Upstream's TestDoProbe, TestLivenessProbeDisabledByStarted, TestStartupProbeDisabledByStarted and
    /// TestOnHoldOnLivenessOrStartupCheckFailure: which probe runs.
    #[test]
    fn startup_goes_first_and_what_has_failed_for_good_is_not_asked_again() {
        use ProbeResult::{Failure, Success, Unknown};
        let cases = [
            (Startup, Unknown, Success, ProbeGate::Probe),
            (Startup, Success, Success, ProbeGate::Hold),
            (Startup, Failure, Success, ProbeGate::Hold),
            (Liveness, Unknown, Success, ProbeGate::Pass),
            (Liveness, Failure, Success, ProbeGate::Pass),
            (Liveness, Success, Success, ProbeGate::Probe),
            (Liveness, Success, Failure, ProbeGate::Hold),
            (Readiness, Unknown, Success, ProbeGate::Pass),
            (Readiness, Success, Success, ProbeGate::Probe),
            (Readiness, Success, Failure, ProbeGate::Probe),
        ];
        for (kind, startup, liveness, expected) in cases {
            let turned = probe_gate(kind, &health(startup, liveness));
            assert_eq!(turned, expected, "{kind:?} {startup:?} {liveness:?}");
        }
    }

    fn verdicts(timing: &ProbeTiming, outcomes: &[ProbeOutcome]) -> Vec<Option<ProbeResult>> {
        let mut streak = ResultRun::default();
        let count = |outcome| streak.count(timing, outcome);
        outcomes.iter().map(count).collect()
    }

    /// Upstream's TestFailureThreshold, TestResultRunOnLivenessCheckFailure and
    /// TestResultRunOnStartupCheckFailure.
    #[test]
    fn only_failures_in_a_row_make_a_verdict() {
        let outcomes = [good(), bad(), bad(), good(), bad(), bad(), bad(), bad()];
        let (yes, no) = (Some(ProbeResult::Success), Some(ProbeResult::Failure));
        let expected = [yes, None, None, yes, None, None, no, no];
        assert_eq!(verdicts(&timing(1, 3), &outcomes), expected);
    }

    /// Upstream's TestSuccessThreshold, TestStartupProbeSuccessThreshold.
    #[test]
    fn only_successes_in_a_row_make_a_verdict() {
        let outcomes = [
            good(),
            good(),
            good(),
            good(),
            bad(),
            good(),
            good(),
            good(),
        ];
        let (yes, no) = (Some(ProbeResult::Success), Some(ProbeResult::Failure));
        let expected = [None, None, yes, yes, no, None, None, yes];
        assert_eq!(verdicts(&timing(3, 1), &outcomes), expected);
    }

    /// Upstream's TestProbe: a warning is a success.
    #[test]
    fn a_warning_counts_as_success() {
        let warned = [ProbeOutcome::Warning("redirected".into())];
        assert_eq!(
            verdicts(&timing(1, 1), &warned),
            [Some(ProbeResult::Success)]
        );
    }

    #[test]
    fn a_startup_probe_that_looks_early_loses_nothing_by_it() {
        let timing = timing(1, 1);
        let young = timing.period / 2;
        assert!(!counts(Startup, &timing, young, &bad()));
        assert!(counts(Startup, &timing, young, &good()));
        assert!(counts(Startup, &timing, timing.period, &bad()));
        assert!(counts(Liveness, &timing, young, &bad()));
        let delayed = ProbeTiming {
            initial_delay: Duration::from_secs(1),
            ..timing
        };
        assert!(counts(Startup, &delayed, young, &bad()));
    }

    /// Upstream's TestHTTPProbeChecker: statuses.
    #[test]
    fn an_answer_below_400_is_a_success_and_one_below_200_is_not() {
        let body = || "ok body".to_owned();
        let failed = |status| format!("HTTP probe failed with statuscode: {status}");
        for status in [200, 204, 299] {
            assert_eq!(of_status(status, body()), ProbeOutcome::Success(body()));
        }
        for status in [300, 304, 399] {
            let text = "Probe terminated redirects, Response body: ok body";
            assert_eq!(
                of_status(status, body()),
                ProbeOutcome::Warning(text.into())
            );
        }
        for status in [101, 400, 500, 599] {
            assert_eq!(
                of_status(status, body()),
                ProbeOutcome::Failure(failed(status))
            );
        }
    }
}
