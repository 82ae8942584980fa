//! What follows a call that creates and was broken off, or met one that was: look, and only then ask again.
//!
//! A call that was broken off may go on in the runtime, which holds the name of what it makes until then: names are
//! unique by attempt. So a second call makes nothing twice: it is carried out if the first one came to nothing, and
//! refused while the first one goes on. Upstream (kuberuntime_manager.go, 1.36) retries its pod sync with a back-off instead.

use std::time::Duration;

/// How long the outcome of a call is waited for; its own deadline in the runtime is about as long.
pub const CREATION_TIMEOUT: Duration = Duration::from_secs(240);
/// Before the second question; doubled for each one after it.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// The longest pause between two questions: a container that is there should not wait for the next one.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Why a call that creates brought nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreationSetback {
    /// It was broken off: its outcome is unknown.
    Interrupted,
    /// The runtime is still at an earlier call for the same, or has carried it out.
    Reserved,
}

/// What the runtime shows of the object that was to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreationFinding {
    Absent,
    /// As the call would have left it.
    Usable,
    /// It exists, but the next plan must decide what becomes of it.
    Unusable,
}

/// What is done next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreationStep {
    Use,
    /// Ask the runtime again after this pause.
    AskAfter(Duration),
    GiveUp,
}

/// Decides after the `asked`th call, counted from 1, `since` the first one.
pub fn next_step(
    setback: CreationSetback,
    finding: CreationFinding,
    asked: u32,
    since: Duration,
) -> CreationStep {
    match finding {
        CreationFinding::Usable => CreationStep::Use,
        CreationFinding::Unusable => CreationStep::GiveUp,
        CreationFinding::Absent if since >= CREATION_TIMEOUT => CreationStep::GiveUp,
        CreationFinding::Absent => CreationStep::AskAfter(match (setback, asked) {
            (CreationSetback::Interrupted, 0 | 1) => Duration::ZERO,
            (CreationSetback::Interrupted | CreationSetback::Reserved, _) => pause(asked),
        }),
    }
}

fn pause(asked: u32) -> Duration {
    FIRST_PAUSE
        .saturating_mul(2_u32.saturating_pow(asked.saturating_sub(1)))
        .min(LONGEST_PAUSE)
}

#[cfg(test)]
mod tests {
    use super::CreationFinding::{Absent, Unusable, Usable};
    use super::CreationSetback::{Interrupted, Reserved};
    use super::CreationStep::{AskAfter, GiveUp, Use};
    use super::*;

    #[test]
    fn what_exists_is_used_and_only_what_is_absent_is_asked_for_again() {
        let (soon, late) = (Duration::from_secs(1), CREATION_TIMEOUT);
        let millis = |millis| AskAfter(Duration::from_millis(millis));
        for (setback, finding, asked, since, expected) in [
            (Interrupted, Usable, 1, soon, Use),
            (Reserved, Usable, 9, late, Use),
            (Interrupted, Unusable, 1, soon, GiveUp),
            (Reserved, Unusable, 1, soon, GiveUp),
            (Interrupted, Absent, 1, soon, millis(0)),
            (Interrupted, Absent, 2, soon, millis(100)),
            (Reserved, Absent, 1, soon, millis(50)),
            (Reserved, Absent, 3, soon, millis(200)),
            (Reserved, Absent, 60, soon, millis(1000)),
            (Reserved, Absent, 3, late, GiveUp),
            (Interrupted, Absent, 1, late, GiveUp),
        ] {
            let step = next_step(setback, finding, asked, since);
            assert_eq!(step, expected, "{setback:?} {finding:?} {asked} {since:?}");
        }
    }
}
