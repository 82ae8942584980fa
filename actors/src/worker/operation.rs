//! What a worker has under way.

use std::collections::BTreeSet;

use serde::Serialize;

use super::context::KillsInProgress;
use super::repeat_guard::RepeatGuard;

/// The work under way, and what it has left to go on with.
#[derive(Debug, Default)]
pub(super) struct Operation {
    /// One thing at a time.
    pub(super) activity: Option<Activity>,
    pub(super) repeat_guard: RepeatGuard,
    /// Containers that are being started and whose postStart hook must end before they show as running.
    pub(super) awaiting_post_start: BTreeSet<String>,
    /// Kills that were begun and whose containers have not been seen ended.
    pub(super) kills_in_progress: KillsInProgress,
}

/// The one piece of work that a worker has under way; snapshots show it in words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Activity {
    /// Reads everything that exists of the pod.
    #[serde(rename = "looking at what exists")]
    Fetching,
    /// Carries a plan out.
    #[serde(rename = "carrying out a plan")]
    ExecutingPlan,
    /// Removes dead instances of a pod that lives.
    #[serde(rename = "removing dead instances")]
    CollectingGarbage,
    /// Removes everything of a pod that is gone.
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
