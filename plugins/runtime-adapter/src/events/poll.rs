//! Polling until CRI shows a change: the interval grows with the time waited, and with how many others wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// The longest pause between two questions of a poll that is alone.
const LONGEST_STEP: Duration = Duration::from_millis(100);
const SHORTEST_STEP: Duration = Duration::from_millis(1);
/// Half of what containerd takes to clean up after an exit: questions only slow it down.
const UNHURRIED_STEP: Duration = Duration::from_millis(25);
/// A step is so much longer for each other poll: of fifty pods that start or end together, what they wait for is held up by
/// their questions.
const STEP_PER_OTHER: Duration = Duration::from_millis(4);
/// The longest pause between two questions, however many polls there are.
const LONGEST_STEP_OF_A_CROWD: Duration = Duration::from_millis(250);

/// Whether an event is held up until CRI shows the change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PollPace {
    /// An event is held: polls from 1 ms on.
    Hurried,
    /// The event is sent already: polls from 25 ms on.
    Unhurried,
}

/// How many polls run. Clones are the same count.
#[derive(Clone, Debug, Default)]
pub(crate) struct Polls(Arc<AtomicU32>);

/// Waits in steps of a sixteenth of the time waited so far: late by so much at most, and few questions.
#[derive(Debug)]
pub(crate) struct PollTimer {
    polls: Polls,
    since: Instant,
    within: Duration,
    shortest: Duration,
}

impl Polls {
    /// A poll among these, until the timer is dropped.
    pub(crate) fn begin(&self, within: Duration) -> PollTimer {
        self.begin_at(PollPace::Hurried, within)
    }

    pub(crate) fn begin_at(&self, pace: PollPace, within: Duration) -> PollTimer {
        self.0.fetch_add(1, Ordering::Relaxed);
        PollTimer {
            polls: self.clone(),
            since: Instant::now(),
            within,
            shortest: match pace {
                PollPace::Hurried => SHORTEST_STEP,
                PollPace::Unhurried => UNHURRIED_STEP,
            },
        }
    }
}

impl PollTimer {
    /// Waits one step; false when the timeout has passed.
    pub(crate) async fn step(&self) -> bool {
        let waited = Instant::now() - self.since;
        if waited >= self.within {
            return false;
        }
        let others = self.polls.0.load(Ordering::Relaxed).saturating_sub(1);
        tokio::time::sleep(step(waited, self.shortest, others)).await;
        true
    }
}

impl Drop for PollTimer {
    fn drop(&mut self) {
        self.polls.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn step(waited: Duration, shortest: Duration, others: u32) -> Duration {
    let alone = (waited / 16).clamp(shortest, LONGEST_STEP);
    let crowded = STEP_PER_OTHER.saturating_mul(others);
    alone.max(crowded.min(LONGEST_STEP_OF_A_CROWD))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_step_grows_with_the_time_waited_and_with_the_number_of_polls() {
        for (waited, shortest, others, expected) in [
            (Duration::ZERO, SHORTEST_STEP, 0, MS),
            (MS * 320, SHORTEST_STEP, 0, MS * 20),
            (MS * 9000, SHORTEST_STEP, 0, LONGEST_STEP),
            (Duration::ZERO, UNHURRIED_STEP, 0, MS * 25),
            (Duration::ZERO, SHORTEST_STEP, 3, MS * 12),
            (MS * 320, SHORTEST_STEP, 3, MS * 20),
            (
                Duration::ZERO,
                SHORTEST_STEP,
                u32::MAX,
                LONGEST_STEP_OF_A_CROWD,
            ),
        ] {
            assert_eq!(
                step(waited, shortest, others),
                expected,
                "{waited:?} {others}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_poll_that_has_ended_slows_no_other() {
        let polls = Polls::default();
        let timer = polls.begin(MS * 500);
        let steps_take = async || {
            let began = Instant::now();
            assert!(timer.step().await);
            began.elapsed()
        };
        assert_eq!(steps_take().await, MS);
        let others: Vec<PollTimer> = (0..10).map(|_| polls.begin(MS * 500)).collect();
        assert_eq!(steps_take().await, STEP_PER_OTHER * 10);
        drop(others);
        assert!(steps_take().await < STEP_PER_OTHER);
    }
}
