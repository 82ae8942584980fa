//! Whether and when a child is restarted: plain functions of its history and the time.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// How many restarts of one child are taken before its supervisor gives up on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Intensity {
    /// So many restarts are taken ...
    pub restarts: u32,
    /// ... in any stretch of time as long as this.
    pub within: Duration,
}

impl Intensity {
    /// Never gives up: for children that must not take their group down, such as one pod's worker
    /// among a thousand. Their restarts slow down to one every thirty seconds.
    pub const UNLIMITED: Intensity = Intensity {
        restarts: u32::MAX,
        within: Duration::from_secs(60),
    };

    /// For a node's managers: one that fails more than five times in a minute is degraded, which is shown, and restarts
    /// at the longest back-off.
    pub const MANAGERS: Intensity = Intensity {
        restarts: 5,
        within: Duration::from_secs(60),
    };
}

/// The pause before the second restart in a row; the first follows at once.
pub const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// The longest pause between two restarts.
pub const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// The failures of one child that still count.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RestartHistory {
    /// Within the window, oldest first.
    recent: VecDeque<Instant>,
    /// In a row, none of them after a run longer than the window.
    streak: u32,
}

/// What a supervisor does with a child that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestartDecision {
    /// Start a successor after this pause.
    RestartAfter(Duration),
    /// The budget is used up: the supervisor itself fails.
    Escalate,
}

impl RestartHistory {
    /// Notes that a child which had run since `started` failed `now`.
    pub fn failed(&mut self, started: Instant, now: Instant, intensity: Intensity) {
        if now.saturating_duration_since(started) > intensity.within {
            self.streak = 0;
        }
        self.streak = self.streak.saturating_add(1);
        self.recent.push_back(now);
        let counts =
            |failure: &Instant| now.saturating_duration_since(*failure) <= intensity.within;
        while self.recent.front().is_some_and(|oldest| !counts(oldest)) {
            self.recent.pop_front();
        }
    }
}

/// Decides about a child whose last failure is in its history.
pub fn decide(history: &RestartHistory, now: Instant, intensity: Intensity) -> RestartDecision {
    let counted = history
        .recent
        .iter()
        .filter(|failure| now.saturating_duration_since(**failure) <= intensity.within)
        .count();
    match u32::try_from(counted) {
        Ok(counted) if counted <= intensity.restarts => {
            RestartDecision::RestartAfter(pause(history.streak))
        }
        Ok(_) | Err(_) => RestartDecision::Escalate,
    }
}

/// Returns the pause before the restart that follows the `streak`th failure in a row.
pub fn pause(streak: u32) -> Duration {
    match streak {
        0 | 1 => Duration::ZERO,
        more => FIRST_PAUSE
            .saturating_mul(2_u32.saturating_pow(more - 2))
            .min(LONGEST_PAUSE),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const WINDOW: Duration = Duration::from_secs(10);

    fn intensity(restarts: u32) -> Intensity {
        Intensity {
            restarts,
            within: WINDOW,
        }
    }

    /// Fails after each of these runs, restarting at once, and returns the decisions.
    fn decisions(runs: &[Duration], restarts: u32) -> Vec<RestartDecision> {
        let mut history = RestartHistory::default();
        let mut now = crate::system::clock::now();
        let decided = runs.iter().map(|run| {
            let started = now;
            now += *run;
            history.failed(started, now, intensity(restarts));
            decide(&history, now, intensity(restarts))
        });
        decided.collect()
    }

    #[test]
    fn the_first_restart_is_at_once_and_the_pauses_double_to_their_end() {
        let pauses: Vec<u128> = (1..=12).map(|streak| pause(streak).as_millis()).collect();
        let expected = [
            0, 100, 200, 400, 800, 1_600, 3_200, 6_400, 12_800, 25_600, 30_000, 30_000,
        ];
        assert_eq!(pauses, expected);
        assert_eq!(pause(u32::MAX), LONGEST_PAUSE);
    }

    #[test]
    fn the_failure_after_the_last_restart_allowed_escalates() {
        let decided = decisions(&[Duration::from_secs(1); 4], 3);
        assert!(matches!(decided[2], RestartDecision::RestartAfter(_)));
        assert_eq!(decided[3], RestartDecision::Escalate);
    }

    #[test]
    fn no_restart_allowed_escalates_at_once() {
        assert_eq!(decisions(&[Duration::ZERO], 0), [RestartDecision::Escalate]);
    }

    proptest! {
        #[test]
        fn runs_longer_than_the_window_never_escalate(
            runs in prop::collection::vec(10_001_u64..1_000_000, 1..50),
            restarts in 1_u32..5,
        ) {
            let runs: Vec<Duration> = runs.into_iter().map(Duration::from_millis).collect();
            let at_once = RestartDecision::RestartAfter(Duration::ZERO);
            prop_assert!(decisions(&runs, restarts).iter().all(|decided| *decided == at_once));
        }

        #[test]
        fn it_escalates_exactly_when_a_window_holds_more_failures_than_restarts(
            runs in prop::collection::vec(0_u64..6_000, 1..50),
            restarts in 0_u32..6,
        ) {
            let runs: Vec<Duration> = runs.into_iter().map(Duration::from_millis).collect();
            let ends: Vec<Duration> = runs.iter().scan(Duration::ZERO, |end, run| {
                *end += *run;
                Some(*end)
            }).collect();
            for (n, decided) in decisions(&runs, restarts).into_iter().enumerate() {
                let recent = ends[..=n].iter().filter(|end| ends[n] - **end <= WINDOW).count();
                prop_assert_eq!(decided == RestartDecision::Escalate, recent > restarts as usize);
            }
        }

        #[test]
        fn a_history_keeps_no_more_than_its_window(
            runs in prop::collection::vec(0_u64..6_000, 1..200),
        ) {
            let mut history = RestartHistory::default();
            let mut now = crate::system::clock::now();
            for run in runs {
                let started = now;
                now += Duration::from_millis(run);
                history.failed(started, now, intensity(3));
                let oldest = history.recent.front().copied();
                prop_assert!(oldest.is_some_and(|oldest| now - oldest <= WINDOW));
            }
        }
    }
}
