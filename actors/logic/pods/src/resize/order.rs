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

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ResourceRequirements;
    use logic_api::testing::*;

    use super::*;

    type AmountPairs<'a> = &'a [(&'a str, &'a str)];

    fn requests(amounts: AmountPairs<'_>) -> Option<ResourceRequirements> {
        Some(ResourceRequirements {
            requests: Some(quantities(amounts)),
            ..ResourceRequirements::default()
        })
    }

    /// Four containers as upstream has them: two with a CPU and a gibibyte, one with an empty list, one with none.
    fn four(pod_level: Option<AmountPairs<'_>>) -> Pod {
        let one: AmountPairs<'_> = &[("cpu", "1"), ("memory", "1Gi")];
        let pod = pod("pod1")
            .app_with("c1", |c| c.resources = requests(one))
            .app_with("c2", |c| c.resources = requests(one))
            .app_with("c3", |c| c.resources = requests(&[]))
            .app_with("c4", |c| {
                c.resources = Some(ResourceRequirements::default())
            });
        pod.spec_with(|spec| spec.resources = pod_level.and_then(requests))
    }

    fn more(
        old: &Pod,
        pod_level: Option<AmountPairs<'_>>,
        own: &[(usize, AmountPairs<'_>)],
    ) -> bool {
        let new = old.clone().spec_with(|spec| {
            if let Some(amounts) = pod_level {
                spec.resources = requests(amounts);
            }
            for (index, amounts) in own {
                spec.containers[*index].resources = requests(amounts);
            }
        });
        asks_for_more(&PendingResize {
            pod: &new,
            allocated: &AllocatedResources::of(old),
            since: None,
        })
    }

    /// Upstream's TestIsResizeIncreasingRequests.
    #[test]
    fn a_resize_asks_for_more_if_the_pod_as_a_whole_does() {
        let both: AmountPairs<'_> = &[("cpu", "1500m"), ("memory", "1500Mi")];
        let neither: AmountPairs<'_> = &[("cpu", "500m"), ("memory", "500Mi")];
        let one: AmountPairs<'_> = &[("cpu", "1"), ("memory", "1Gi")];
        let cases: &[(&[(usize, AmountPairs<'_>)], bool)] = &[
            (&[(0, both)], true),
            (&[(0, neither)], false),
            (&[(0, &[("cpu", "1500m"), ("memory", "500Mi")])], true),
            (&[(0, &[("cpu", "500m"), ("memory", "1500Mi")])], true),
            (&[(0, both), (1, neither)], false),
            (&[(0, neither), (1, neither)], false),
            (&[(0, &[])], false),
            (&[(2, one)], true),
            (&[(3, one)], true),
        ];
        for (own, expected) in cases {
            assert_eq!(more(&four(None), None, own), *expected, "{own:?}");
        }
        let without = four(None).spec_with(|spec| spec.containers[0].resources = None);
        assert!(!asks_for_more(&PendingResize {
            pod: &without,
            allocated: &AllocatedResources::of(&four(None)),
            since: None,
        }));
    }

    /// The rows of upstream's TestIsResizeIncreasingRequests about pods with resources of their own.
    #[test]
    fn where_the_pod_has_its_own_amounts_those_of_its_containers_do_not_count() {
        let old = four(Some(&[("cpu", "2500m"), ("memory", "2500Mi")]));
        let up: AmountPairs<'_> = &[("cpu", "1500m"), ("memory", "1Gi")];
        let down: AmountPairs<'_> = &[("cpu", "500m"), ("memory", "1Gi")];
        type Case<'a> = (
            Option<(&'a str, &'a str)>,
            &'a [(usize, AmountPairs<'a>)],
            bool,
        );
        let cases: &[Case<'_>] = &[
            (Some(("3", "2500Mi")), &[], true),
            (Some(("2500m", "2000Mi")), &[], false),
            (Some(("3", "2000Mi")), &[], true),
            (None, &[(0, up)], false),
            (None, &[(0, down)], false),
            (Some(("2600m", "2500Mi")), &[(0, up)], true),
            (Some(("2", "2500Mi")), &[(0, down)], false),
            (Some(("2500m", "2500Mi")), &[(0, up)], false),
        ];
        for (pod_level, own, expected) in cases {
            let amounts = pod_level.map(|(cpu, memory)| [("cpu", cpu), ("memory", memory)]);
            let amounts = amounts.as_ref().map(|pairs| &pairs[..]);
            assert_eq!(more(&old, amounts, own), *expected, "{pod_level:?} {own:?}");
        }
    }
}
