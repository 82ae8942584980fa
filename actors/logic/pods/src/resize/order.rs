//! Whose pending resize is looked at first.
//!
//! Mirrors upstream's `sortPendingResizes` (allocation_manager.go at v1.36).

use std::cmp::{Ordering, Reverse};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use logic_api::pod::PodView;
use logic_api::pod::requests::{CPU, MEMORY, OverheadPolicy, RequestBasis, pod_requests};
use logic_api::quantity::{Quantity, compare};
use logic_api::types::PodUid;
use logic_resources::qos::{Qos, pod_qos};

use super::allocation::{AllocatedResources, apply};

/// A pod whose desired resources differ from its allocated ones.
#[derive(Clone, Copy, Debug)]
pub struct PendingResize<'a> {
    pub pod: &'a Pod,
    pub allocated: &'a AllocatedResources,
    /// Since when it has the condition `PodResizePending`.
    pub since: Option<Timestamp>,
}

/// First those that ask for no more than they have: they always fit. Then by priority, guaranteed pods before others,
/// and the longest waiting first; the UID decides ties.
pub fn order(pending: &[PendingResize<'_>]) -> Vec<PodUid> {
    let mut pending = pending.to_vec();
    pending.sort_by_cached_key(|one| {
        (
            asks_for_more(one),
            Reverse(one.pod.priority()),
            pod_qos(one.pod) != Qos::Guaranteed,
            one.since.is_none(),
            one.since,
            one.pod.uid(),
        )
    });
    pending.iter().map(|one| one.pod.uid()).collect()
}

fn asks_for_more(pending: &PendingResize<'_>) -> bool {
    let has = apply(pending.pod, pending.allocated);
    let has = pod_requests(&has, RequestBasis::Spec, OverheadPolicy::Left);
    let wants = pod_requests(pending.pod, RequestBasis::Spec, OverheadPolicy::Left);
    let none = Quantity::zero();
    [CPU, MEMORY].into_iter().any(|name| {
        let (wants, has) = (wants.get(name), has.get(name));
        compare(wants.unwrap_or(&none), has.unwrap_or(&none)) == Ordering::Greater
    })
}
