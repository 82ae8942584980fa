//! Polling until CRI shows a change: the interval grows with the time waited.

use std::time::Duration;

use tokio::time::Instant;

const LONGEST_STEP: Duration = Duration::from_millis(100);
const SHORTEST_STEP: Duration = Duration::from_millis(1);
/// Half of what containerd takes to clean up after an exit: questions only slow it down.
const UNHURRIED_STEP: Duration = Duration::from_millis(25);

/// Whether an event is held up until CRI shows the change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PollPace {
    /// An event is held: polls from 1 ms on.
    Hurried,
    /// The event is sent already: polls from 25 ms on.
    Unhurried,
}

/// Waits in steps of a sixteenth of the time waited so far: late by so much at most, and few questions.
#[derive(Debug)]
pub(crate) struct PollTimer {
    since: Instant,
    within: Duration,
    shortest: Duration,
}

impl PollTimer {
    pub(crate) fn new(within: Duration) -> Self {
        Self::at(PollPace::Hurried, within)
    }

    pub(crate) fn at(pace: PollPace, within: Duration) -> Self {
        Self {
            since: Instant::now(),
            within,
            shortest: match pace {
                PollPace::Hurried => SHORTEST_STEP,
                PollPace::Unhurried => UNHURRIED_STEP,
            },
        }
    }

    /// Waits one step; false when the timeout has passed.
    pub(crate) async fn step(&self) -> bool {
        let waited = Instant::now() - self.since;
        if waited >= self.within {
            return false;
        }
        tokio::time::sleep((waited / 16).clamp(self.shortest, LONGEST_STEP)).await;
        true
    }
}
