//! The operations of a worker: the running one, the choice of the next one, and the results of its tasks.

pub(super) mod completion;
mod repeat_guard;
mod sync;

use std::collections::BTreeSet;

use serde::Serialize;

use self::repeat_guard::RepeatGuard;
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
    /// Kills that were begun and whose containers have not been seen exited.
    pub(super) kills_in_progress: KillsInProgress,
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
    /// Removes a pod that is gone.
    #[serde(rename = "removing what is left")]
    RemovingPod,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshots_show_an_activity_in_words_as_ever() {
        let all = [
            (Activity::Fetching, "looking at what exists"),
            (Activity::ExecutingPlan, "carrying out a plan"),
            (Activity::CollectingGarbage, "removing dead instances"),
            (Activity::RemovingPod, "removing what is left"),
        ];
        for (activity, text) in all {
            assert_eq!(serde_json::to_value(activity).unwrap(), text);
        }
    }
}
