//! What a worker has under way.

use serde::Serialize;

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
