//! How long CRI is waited for, and how often it is asked meanwhile.

use std::time::Duration;

use tokio::time::Instant;

const LONGEST_STEP: Duration = Duration::from_millis(100);
const SHORTEST_STEP: Duration = Duration::from_millis(1);
/// Half of what containerd takes to clean up after an exit: questions only slow it down.
const UNHURRIED_STEP: Duration = Duration::from_millis(25);

/// Whether somebody waits for the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// An event is held until it comes.
    Hurried,
    /// The event is told already.
    Unhurried,
}

/// Waits in steps of a sixteenth of the time waited so far: late by so much at most, and few questions.
#[derive(Debug)]
pub(crate) struct Patience {
    since: Instant,
    within: Duration,
    shortest: Duration,
}

impl Patience {
    pub(crate) fn new(within: Duration) -> Self {
        Self::at(Pace::Hurried, within)
    }

    pub(crate) fn at(pace: Pace, within: Duration) -> Self {
        Self {
            since: Instant::now(),
            within,
            shortest: match pace {
                Pace::Hurried => SHORTEST_STEP,
                Pace::Unhurried => UNHURRIED_STEP,
            },
        }
    }

    /// Waits one step; false when there is no patience left.
    pub(crate) async fn step(&self) -> bool {
        let waited = Instant::now() - self.since;
        if waited >= self.within {
            return false;
        }
        tokio::time::sleep((waited / 16).clamp(self.shortest, LONGEST_STEP)).await;
        true
    }
}
