//! The patch of a pod's status, and the order in which patches are sent.
//!
//! Mirrors upstream's status_manager.go (`mergePodStatus`, `isPodStatusByKubeletEqual`, `canBeDeleted`) and
//! pkg/util/pod (`preparePatchBytesForPodStatus`) at v1.36: the API's copy and ours are merged, and the difference
//! is a strategic merge patch.

mod diff;
mod equality;
mod merging;
#[cfg(test)]
mod tests;

pub use diff::patch;
pub use equality::equal;
use k8s_openapi::api::core::v1::{Pod, PodCondition, PodStatus};
use logic_api::pod::conditions::{CONTAINERS_READY, READY};
use logic_api::pod::{PodView, is_terminal};
pub use merging::{Containers, merge};

/// Which patches are sent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PatchUrgency {
    /// Traffic, schedulers and controllers wait for it.
    Readiness,
    /// The pod's name is to be free.
    Ending,
    /// All other changes.
    Cosmetics,
    /// The pod is being deleted and nothing of it runs: its last status is about to follow, and says all of it. Upstream
    /// tells of ended containers when the whole pod has been killed (`SyncTerminatingPod`).
    Closing,
}

/// How urgent it is to tell this status, where the API shows another.
pub fn urgency(pod: &Pod, ours: &PodStatus) -> PatchUrgency {
    if pod.metadata.deletion_timestamp.is_some() && !is_terminal(ours) && has_ended(ours) {
        return PatchUrgency::Closing;
    }
    let shown = pod.status.as_ref();
    // A condition that is not there yet says as much as one that is false.
    let differs = |kind: &str| {
        let of = |status| verdict(status, kind).unwrap_or("False");
        of(shown) != of(Some(ours))
    };
    let phases = (
        shown.and_then(|s| s.phase.as_deref()),
        ours.phase.as_deref(),
    );
    match phases.0 != phases.1 || differs(READY) || differs(CONTAINERS_READY) {
        true => PatchUrgency::Readiness,
        false => PatchUrgency::Cosmetics,
    }
}

/// Whether containers have run and none does any more.
fn has_ended(status: &PodStatus) -> bool {
    let lists = [
        &status.init_container_statuses,
        &status.container_statuses,
        &status.ephemeral_container_statuses,
    ];
    let all = lists.into_iter().flatten().flatten();
    let mut states = all.filter_map(|container| container.state.as_ref());
    states.clone().any(|state| state.terminated.is_some())
        && states.all(|state| state.running.is_none())
}

/// Whether the API shows that a node agent has taken the pod over.
pub fn is_acknowledged(shown: &Pod) -> bool {
    let status = shown.status.as_ref();
    status.is_some_and(|status| status.start_time.is_some())
}

/// Whether the API may forget a pod of which nothing is left on the node.
pub fn may_be_deleted(shown: &Pod) -> bool {
    shown.metadata.deletion_timestamp.is_some()
        && !shown.is_mirror()
        && shown.status.as_ref().is_some_and(is_terminal)
}

fn condition<'a>(status: Option<&'a PodStatus>, kind: &str) -> Option<&'a PodCondition> {
    let mut list = status?.conditions.iter().flatten();
    list.find(|condition| condition.type_ == kind)
}

fn verdict<'a>(status: Option<&'a PodStatus>, kind: &str) -> Option<&'a str> {
    condition(status, kind).map(|condition| condition.status.as_str())
}
