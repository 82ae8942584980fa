//! A pod's quality of service class, and what follows from it for the out-of-memory killer.
//!
//! Mirrors upstream's `apis/core/v1/helper/qos` and `kubelet/qos/policy.go` at v1.36.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde::{Deserialize, Serialize};

use crate::pod::{PodView, SYSTEM_NODE_CRITICAL};
use crate::resources::{CPU, MEMORY, bytes, milli};

/// The class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Qos {
    BestEffort,
    Burstable,
    Guaranteed,
}

impl Qos {
    /// As the status names it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::BestEffort => "BestEffort",
            Self::Burstable => "Burstable",
            Self::Guaranteed => "Guaranteed",
        }
    }
}

/// The class of a pod: what the API already says, or else what its resources make it.
pub fn pod_qos(pod: &Pod) -> Qos {
    match pod.status.as_ref().and_then(|s| s.qos_class.as_deref()) {
        Some("Guaranteed") => Qos::Guaranteed,
        Some("Burstable") => Qos::Burstable,
        Some("BestEffort") => Qos::BestEffort,
        _ => compute_pod_qos(pod),
    }
}

/// The class by resources: pod-level ones where given, otherwise those of every container.
pub fn compute_pod_qos(pod: &Pod) -> Qos {
    let pod_level = pod.spec().and_then(|s| s.resources.as_ref());
    let none = ResourceRequirements::default();
    let all: Vec<_> = match pod_level.filter(|r| !asks_nothing(r)) {
        Some(resources) => vec![resources],
        None => {
            let containers = pod.all_containers().map(|(_, c)| c);
            containers
                .map(|c| c.resources.as_ref().unwrap_or(&none))
                .collect()
        }
    };
    if all.iter().all(|r| asks_nothing(r)) {
        Qos::BestEffort
    } else if all.iter().all(|r| is_limited(r)) && sums_match(&all) {
        Qos::Guaranteed
    } else {
        Qos::Burstable
    }
}

fn asks_nothing(resources: &ResourceRequirements) -> bool {
    let amounts = [CPU, MEMORY].map(|name| {
        amount(resources.requests.as_ref(), name) + amount(resources.limits.as_ref(), name)
    });
    amounts == [0, 0]
}

fn is_limited(resources: &ResourceRequirements) -> bool {
    let limits = resources.limits.as_ref();
    amount(limits, CPU) > 0 && amount(limits, MEMORY) > 0
}

/// Requests equal limits; a request left out counts as nought, for the API fills it in.
fn sums_match(all: &[&ResourceRequirements]) -> bool {
    let mut sums = [0_i128; 4];
    for resources in all {
        sums[0] += amount(resources.requests.as_ref(), CPU);
        sums[1] += amount(resources.limits.as_ref(), CPU);
        sums[2] += amount(resources.requests.as_ref(), MEMORY);
        sums[3] += amount(resources.limits.as_ref(), MEMORY);
    }
    sums[0] == sums[1] && sums[2] == sums[3]
}

fn amount(list: Option<&BTreeMap<String, Quantity>>, name: &str) -> i128 {
    let quantity = list.and_then(|list| list.get(name));
    let value = match name {
        CPU => milli(quantity),
        _ => bytes(quantity),
    };
    i128::from(value.unwrap_or(0).max(0))
}

/// How likely the kernel's out-of-memory killer picks a container: -997 (hardly) to 1000 (first).
pub fn oom_score_adj(pod: &Pod, container: &Container, memory_capacity: u64) -> i64 {
    const GUARANTEED: i64 = -997;
    const BEST_EFFORT: i64 = 1000;
    let node_critical = pod.priority() >= SYSTEM_NODE_CRITICAL;
    match pod_qos(pod) {
        _ if node_critical => GUARANTEED,
        Qos::Guaranteed => GUARANTEED,
        Qos::BestEffort => BEST_EFFORT,
        Qos::Burstable => {
            let requests = container
                .resources
                .as_ref()
                .and_then(|r| r.requests.as_ref());
            let wanted = amount(requests, MEMORY);
            let capacity = i128::from(memory_capacity.max(1));
            let score = i64::try_from(1000 - 1000 * wanted / capacity).unwrap_or(i64::MIN);
            // Above every guaranteed pod, below every best-effort one.
            score.clamp(1000 + GUARANTEED, BEST_EFFORT - 1)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::*;

    type List = &'static [(&'static str, &'static str)];

    fn resources(requests: List, limits: List) -> Option<ResourceRequirements> {
        Some(ResourceRequirements {
            requests: Some(quantities(requests)),
            limits: Some(quantities(limits)),
            claims: None,
        })
    }

    /// Upstream's TestComputePodQOS.
    #[test]
    fn class_is_upstreams() {
        const BOTH: List = &[(CPU, "100m"), (MEMORY, "100Mi")];
        const MORE: List = &[(CPU, "200m"), (MEMORY, "200Mi")];
        const CPU_ONLY: List = &[(CPU, "100m")];
        const OTHER: List = &[("example.org/gpu", "1")];
        const ZERO: List = &[(CPU, "0"), (MEMORY, "0")];
        let cases = [
            ("guaranteed", vec![(BOTH, BOTH)], Qos::Guaranteed),
            (
                "guaranteed-guaranteed",
                vec![(BOTH, BOTH), (MORE, MORE)],
                Qos::Guaranteed,
            ),
            (
                "guaranteed with other resources",
                vec![(
                    BOTH,
                    &[(CPU, "0.1"), (MEMORY, "102400Ki"), ("example.org/gpu", "1")],
                )],
                Qos::Guaranteed,
            ),
            (
                "best-effort",
                vec![(&[] as List, &[] as List)],
                Qos::BestEffort,
            ),
            (
                "best-effort-best-effort with zeroes",
                vec![(ZERO, ZERO), (OTHER, OTHER)],
                Qos::BestEffort,
            ),
            (
                "burstable: requests only",
                vec![(BOTH, &[])],
                Qos::Burstable,
            ),
            (
                "burstable: limits without requests",
                vec![(&[], BOTH)],
                Qos::Burstable,
            ),
            (
                "burstable: limit above request",
                vec![(BOTH, MORE)],
                Qos::Burstable,
            ),
            (
                "burstable: one resource",
                vec![(CPU_ONLY, CPU_ONLY)],
                Qos::Burstable,
            ),
            (
                "burstable-best-effort",
                vec![(BOTH, BOTH), (&[], &[])],
                Qos::Burstable,
            ),
        ];
        for (name, containers, class) in cases {
            let mut pod = pod("p");
            for (index, (requests, limits)) in containers.into_iter().enumerate() {
                pod = pod.app_with(&index.to_string(), |c| {
                    c.resources = resources(requests, limits)
                });
            }
            assert_eq!(compute_pod_qos(&pod), class, "{name}");
        }
    }

    #[test]
    fn pod_level_resources_and_init_containers_count() {
        let guaranteed = resources(
            &[(CPU, "1"), (MEMORY, "1Gi")],
            &[(CPU, "1"), (MEMORY, "1Gi")],
        );
        let with_init = pod("p")
            .init("i")
            .app_with("c", |c| c.resources = guaranteed.clone());
        assert_eq!(compute_pod_qos(&with_init), Qos::Burstable);
        let pod_level = with_init.spec_with(|spec| spec.resources = guaranteed);
        assert_eq!(compute_pod_qos(&pod_level), Qos::Guaranteed);
    }

    /// Upstream's TestGetContainerOOMScoreAdjust.
    #[test]
    fn oom_score_is_upstreams() {
        const CAPACITY: u64 = 4_000_000_000;
        let burstable = |memory: &'static str| {
            let requests = quantities(&[(CPU, "1m"), (MEMORY, memory)]);
            let resources = ResourceRequirements {
                requests: Some(requests),
                ..ResourceRequirements::default()
            };
            pod("p").app_with("c", |c| c.resources = Some(resources))
        };
        let critical = pod("p")
            .app("c")
            .spec_with(|spec| spec.priority = Some(SYSTEM_NODE_CRITICAL));
        let amounts: List = &[(CPU, "5m"), (MEMORY, "1000000000")];
        let cases = [
            (pod("p").app("c"), 1000),
            (
                pod("p").app_with("c", |c| c.resources = resources(amounts, amounts)),
                -997,
            ),
            (burstable("1000000000"), 750),
            (burstable("3999000000"), 3),
            (burstable("9999999999"), 3),
            (burstable("1"), 999),
            (burstable("0"), 999),
            (critical, -997),
        ];
        for (pod, score) in cases {
            assert_eq!(
                oom_score_adj(&pod, &pod.app_containers()[0], CAPACITY),
                score
            );
        }
    }
}
