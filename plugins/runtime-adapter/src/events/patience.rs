//! How long CRI is waited for, and how often it is asked meanwhile.

use std::time::Duration;

use tokio::time::Instant;

const LONGEST_STEP: Duration = Duration::from_millis(100);
const SHORTEST_STEP: Duration = Duration::from_millis(1);

/// Waits in steps of a sixteenth of the time waited so far: late by so much at most, and few questions.
#[derive(Debug)]
pub(crate) struct Patience {
    since: Instant,
    within: Duration,
}

impl Patience {
    pub(crate) fn new(within: Duration) -> Self {
        Self {
            since: Instant::now(),
            within,
        }
    }

    /// Waits one step; false when there is no patience left.
    pub(crate) async fn step(&self) -> bool {
        let waited = Instant::now() - self.since;
        if waited >= self.within {
            return false;
        }
        tokio::time::sleep((waited / 16).clamp(SHORTEST_STEP, LONGEST_STEP)).await;
        true
    }
}
