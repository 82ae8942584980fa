//! What a pod that a source gives, or gives again, is to this node.
//!
//! Upstream: pkg/kubelet/pod_workers.go (UpdatePod: pods that are terminal on arrival), pkg/kubelet/config/config.go
//! (checkAndUpdatePod), 1.36.

use k8s_openapi::api::core::v1::{Pod, PodCondition, PodStatus};
use logic_api::pod::conditions::{DISRUPTION_TARGET, TERMINATION_BY_KUBELET};
use logic_api::types::PodFailure;

/// The conditions that the node itself sets: their return from the API is no change.
const KUBELET_CONDITIONS: [&str; 8] = [
    "PodScheduled",
    "Ready",
    "Initialized",
    "ContainersReady",
    "PodReadyToStartContainers",
    "PodResizePending",
    "PodResizeInProgress",
    "AllContainersRestarting",
];

/// How a pod arrives that has no worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PodArrival {
    /// It is to run.
    Live,
    /// It has succeeded before: nothing of it is ever started again.
    Succeeded,
    /// It has failed before, and stays failed.
    Failed(PodFailure),
}

/// Reads from the pod's status what became of it earlier.
pub fn classify_arrival(pod: &Pod) -> PodArrival {
    let status = pod.status.as_ref();
    match status.and_then(|status| status.phase.as_deref()) {
        Some("Succeeded") => PodArrival::Succeeded,
        Some("Failed") => PodArrival::Failed(failure(status)),
        Some(_) | None => PodArrival::Live,
    }
}

fn failure(status: Option<&PodStatus>) -> PodFailure {
    let text = |field: fn(&PodStatus) -> &Option<String>| {
        status
            .and_then(|status| field(status).clone())
            .unwrap_or_default()
    };
    // A disruption that another component set stays as it is.
    let disruption = conditions(status).find(|condition| {
        condition.type_ == DISRUPTION_TARGET
            && condition.reason.as_deref() == Some(TERMINATION_BY_KUBELET)
    });
    PodFailure {
        reason: text(|status| &status.reason),
        message: text(|status| &status.message),
        disruption: disruption.and_then(|condition| condition.message.clone()),
        ..PodFailure::default()
    }
}

/// Whether two versions of a pod's object desire the same: they differ at most in what the node itself wrote.
pub fn same_desired_state(one: &Pod, other: &Pod) -> bool {
    let (a, b) = (&one.metadata, &other.metadata);
    a.deletion_timestamp == b.deletion_timestamp
        && a.deletion_grace_period_seconds == b.deletion_grace_period_seconds
        && a.labels == b.labels
        && a.annotations == b.annotations
        && a.generation == b.generation
        && one.spec == other.spec
        && foreign(one).eq(foreign(other))
}

/// What others say in the status: readiness gates and their like, and claims of resources.
fn foreign(pod: &Pod) -> impl Iterator<Item = (&str, &str)> {
    let theirs =
        |condition: &&PodCondition| !KUBELET_CONDITIONS.contains(&condition.type_.as_str());
    let conditions = conditions(pod.status.as_ref()).filter(theirs);
    conditions.map(|condition| (condition.type_.as_str(), condition.status.as_str()))
}

fn conditions(status: Option<&PodStatus>) -> impl Iterator<Item = &PodCondition> {
    status
        .and_then(|status| status.conditions.as_deref())
        .unwrap_or_default()
        .iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(text: &str) -> Pod {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn a_pod_that_has_ended_is_never_started_again() {
        assert_eq!(classify_arrival(&pod("{}")), PodArrival::Live);
        let running = pod(r#"{"status": {"phase": "Running"}}"#);
        assert_eq!(classify_arrival(&running), PodArrival::Live);
        let succeeded = pod(r#"{"status": {"phase": "Succeeded"}}"#);
        assert_eq!(classify_arrival(&succeeded), PodArrival::Succeeded);
        let evicted = pod(
            r#"{"status": {"phase": "Failed", "reason": "Evicted", "message": "low", "conditions": [
                {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet", "message": "it was low"}]}}"#,
        );
        let failure = |disruption: Option<&str>| PodFailure {
            reason: "Evicted".into(),
            message: "low".into(),
            disruption: disruption.map(Into::into),
            ..PodFailure::default()
        };
        let by_node = failure(Some("it was low"));
        assert_eq!(classify_arrival(&evicted), PodArrival::Failed(by_node));
        let by_others = pod(
            r#"{"status": {"phase": "Failed", "reason": "Evicted", "message": "low", "conditions": [
                {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI", "message": "m"}]}}"#,
        );
        assert_eq!(
            classify_arrival(&by_others),
            PodArrival::Failed(failure(None))
        );
    }

    #[test]
    fn what_the_node_wrote_itself_is_no_news() {
        let before = pod(r#"{"metadata": {"resourceVersion": "1"}, "spec": {"containers": []}}"#);
        let heard = pod(
            r#"{"metadata": {"resourceVersion": "2"}, "spec": {"containers": []},
                "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}"#,
        );
        assert!(same_desired_state(&before, &heard));
    }

    #[test]
    fn gates_labels_and_deletion_are_news() {
        let before = pod(r#"{"spec": {"containers": []}}"#);
        for text in [
            r#"{"spec": {"containers": []}, "metadata": {"labels": {"a": "b"}}}"#,
            r#"{"spec": {"containers": []}, "metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}"#,
            r#"{"spec": {"containers": [], "activeDeadlineSeconds": 1}}"#,
            r#"{"spec": {"containers": []}, "status": {"conditions": [{"type": "gate", "status": "True"}]}}"#,
        ] {
            assert!(!same_desired_state(&before, &pod(text)), "{text}");
        }
    }
}
