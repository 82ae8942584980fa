//! The operations of a worker: the running one, the choice of the next one, and the results of its tasks.

pub(super) mod completion;
mod handover;
pub(super) mod pins;
mod repeat_guard;
mod spans;
mod sync;

use std::collections::BTreeSet;
use std::time::Duration;

use logic_api::types::SandboxId;
use serde::Serialize;

use self::repeat_guard::RepeatGuard;
use super::RETRY_PERIOD;
use super::context::KillsInProgress;

/// The running operation, and the state that it leaves for the next one.
#[derive(Debug, Default)]
pub(super) struct CurrentOperation {
    /// At most one at a time.
    pub(super) activity: Option<Activity>,
    pub(super) repeat_guard: RepeatGuard,
    /// Containers that the plan under way starts: what they run with is on record when the plan has ended.
    pub(super) starting: BTreeSet<String>,
    /// Those of them that show as running only when their postStart hook has ended.
    pub(super) awaiting_post_start: BTreeSet<String>,
    /// How the removal of the pod goes.
    pub(super) removal: RemovalAttempts,
    /// Whether the pod was taken out of its runtime, so that what is known of it there is no longer true.
    handed_over: bool,
    /// Kills that were begun and whose containers have not been seen exited.
    pub(super) kills_in_progress: KillsInProgress,
    /// Whether the drivers have undone the ended pod's claims.
    pub(super) claims_undone: bool,
    /// The sandboxes that plans have stopped.
    pub(super) stopped: BTreeSet<SandboxId>,
}

/// A failure that may pass by itself is told of when it has happened so often.
const MAX_SILENT_FAILURES: u32 = 3;
/// The longest pause before a failed removal of a container is tried again.
const LONGEST_REMOVAL_PAUSE: Duration = Duration::from_secs(60);

/// The attempts to remove the pod.
#[derive(Debug, Default)]
pub(super) struct RemovalAttempts {
    failures: u32,
    /// What keeps the pod from being removed; none while that is not known to last.
    pub(super) stuck: Option<String>,
}

impl RemovalAttempts {
    /// Counts a failed attempt; returns how many there were.
    fn fail(&mut self) -> u32 {
        self.failures = self.failures.saturating_add(1);
        self.failures
    }
}

/// Before the attempt that follows so many failed ones.
fn removal_pause(failures: u32) -> Duration {
    RETRY_PERIOD
        .saturating_mul(2_u32.saturating_pow(failures.saturating_sub(1)))
        .min(LONGEST_REMOVAL_PAUSE)
}

/// The one operation that a worker has running; snapshots show it in words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Activity {
    /// Fetches the pod's full state.
    #[serde(rename = "looking at what exists")]
    Fetching,
    /// Carries out a plan.
    #[serde(rename = "carrying out a plan")]
    ExecutingPlan,
    /// Removes dead instances of a running pod.
    #[serde(rename = "removing dead instances")]
    CollectingGarbage,
    /// Has the claims of a pod of which nothing runs undone.
    #[serde(rename = "undoing its claims")]
    UndoingClaims,
    /// Removes a pod that is gone.
    #[serde(rename = "removing what is left")]
    RemovingPod,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_to_remove_a_pod_come_more_and_more_rarely_but_never_end() {
        let mut attempts = RemovalAttempts::default();
        let pauses: Vec<u64> = (0..9)
            .map(|_| removal_pause(attempts.fail()).as_secs())
            .collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
        assert_eq!(removal_pause(u32::MAX), LONGEST_REMOVAL_PAUSE);
    }

    #[test]
    fn snapshots_show_an_activity_in_words_as_ever() {
        let all = [
            (Activity::Fetching, "looking at what exists"),
            (Activity::ExecutingPlan, "carrying out a plan"),
            (Activity::CollectingGarbage, "removing dead instances"),
            (Activity::UndoingClaims, "undoing its claims"),
            (Activity::RemovingPod, "removing what is left"),
        ];
        for (activity, text) in all {
            assert_eq!(serde_json::to_value(activity).unwrap(), text);
        }
    }
}
