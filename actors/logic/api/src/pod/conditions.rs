//! The names of a pod's conditions (core/v1 `PodConditionType`), and which of them the agent writes.

pub const READY_TO_START: &str = "PodReadyToStartContainers";
pub const INITIALIZED: &str = "Initialized";
pub const READY: &str = "Ready";
pub const CONTAINERS_READY: &str = "ContainersReady";
pub const SCHEDULED: &str = "PodScheduled";
pub const DISRUPTION_TARGET: &str = "DisruptionTarget";
/// The reason of [`DISRUPTION_TARGET`] where the node itself ends the pod.
pub const TERMINATION_BY_KUBELET: &str = "TerminationByKubelet";
pub const RESIZE_PENDING: &str = "PodResizePending";
pub const RESIZE_IN_PROGRESS: &str = "PodResizeInProgress";
pub const ALL_RESTARTING: &str = "AllContainersRestarting";

/// Other conditions are set by others and stay as they are.
pub fn is_kubelet_condition(kind: &str) -> bool {
    [
        READY_TO_START,
        INITIALIZED,
        READY,
        CONTAINERS_READY,
        SCHEDULED,
        RESIZE_PENDING,
        RESIZE_IN_PROGRESS,
        ALL_RESTARTING,
    ]
    .contains(&kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Upstream's TestPodConditionByKubelet and TestPodConditionSharedByKubelet.
    #[test]
    fn the_agent_writes_its_own_conditions_and_shares_that_of_disruptions() {
        let own = [
            SCHEDULED,
            READY,
            INITIALIZED,
            CONTAINERS_READY,
            READY_TO_START,
        ];
        assert!(own.into_iter().all(is_kubelet_condition));
        for other in ["abcd", "Unschedulable", DISRUPTION_TARGET] {
            assert!(!is_kubelet_condition(other), "{other}");
        }
    }
}
