//! A pod's quality of service class, and what follows from it for the out-of-memory killer.
//!
//! Mirrors upstream's `apis/core/v1/helper/qos` and `kubelet/qos/policy.go` at v1.36.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use logic_api::pod::requests::{CPU, MEMORY, parse};
use logic_api::pod::{PodView, is_sidecar};
use logic_api::quantity::{bytes, compare, milli};
use serde::{Deserialize, Serialize};

const NODE_CRITICAL_CLASS: &str = "system-node-critical";

/// A pod's QoS class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Qos {
    BestEffort,
    Burstable,
    Guaranteed,
}

impl Qos {
    /// The class as the pod's status names it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::BestEffort => "BestEffort",
            Self::Burstable => "Burstable",
            Self::Guaranteed => "Guaranteed",
        }
    }
}

/// The class of a pod: the one in its status, or else the one that follows from its resources.
pub fn pod_qos(pod: &Pod) -> Qos {
    match pod.status.as_ref().and_then(|s| s.qos_class.as_deref()) {
        Some("Guaranteed") => Qos::Guaranteed,
        Some("Burstable") => Qos::Burstable,
        Some("BestEffort") => Qos::BestEffort,
        _ => compute_pod_qos(pod),
    }
}

/// The class by resources: pod-level ones where given, otherwise what every container agrees on.
pub fn compute_pod_qos(pod: &Pod) -> Qos {
    if let Some(resources) = pod.spec().and_then(|spec| spec.resources.as_ref()) {
        return class(resources);
    }
    let own = |container: &Container| container.resources.as_ref().map_or(Qos::BestEffort, class);
    let mut classes = pod.all_containers().map(|(_, container)| own(container));
    match classes.next() {
        None => Qos::BestEffort,
        Some(first) if classes.all(|other| other == first) => first,
        Some(_) => Qos::Burstable,
    }
}

/// The class of one set of requirements.
fn class(resources: &ResourceRequirements) -> Qos {
    let of = |name| {
        let (requests, limits) = (resources.requests.as_ref(), resources.limits.as_ref());
        match (amount(requests, name), amount(limits, name)) {
            (0, 0) => Qos::BestEffort,
            (request, limit) if request == limit => Qos::Guaranteed,
            _ => Qos::Burstable,
        }
    };
    match (of(CPU), of(MEMORY)) {
        (cpu, memory) if cpu == memory => cpu,
        _ => Qos::Burstable,
    }
}

/// Whether a container's requests of CPU and memory are its limits, and some: `IsContainerEquivalentQOSGuaranteed` of
/// upstream's `cm/qos/helpers.go`.
pub fn is_guaranteed(container: &Container) -> bool {
    let Some(resources) = &container.resources else {
        return false;
    };
    [CPU, MEMORY].into_iter().all(|name| {
        let of = |list: &Option<BTreeMap<String, Quantity>>| parse(list.as_ref()?.get(name)?);
        let request = of(&resources.requests).filter(|request| !request.is_zero());
        let same = request.zip(of(&resources.limits));
        same.is_some_and(|(request, limit)| compare(&request, &limit).is_eq())
    })
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
///
/// Between the two a container is the less likely picked the more memory it asked for. What the pod asked
/// for and no container did counts for all of them alike, and a sidecar is never picked before the apps.
pub fn oom_score_adj(pod: &Pod, container: &Container, memory_capacity: u64) -> i64 {
    const GUARANTEED: i64 = -997;
    const BEST_EFFORT: i64 = 1000;
    match pod_qos(pod) {
        _ if is_node_critical(pod) => GUARANTEED,
        Qos::Guaranteed => GUARANTEED,
        Qos::BestEffort => BEST_EFFORT,
        Qos::Burstable => {
            let share = unclaimed_share(pod);
            let capacity = i128::from(memory_capacity.max(1));
            let score = |asked: i128| 1000 - 1000 * (asked + share) / capacity;
            let own = score(memory_request(container));
            let apps = pod.app_containers().iter().map(memory_request);
            let score = match apps.min() {
                Some(least) if is_sidecar_of(pod, container) => own.min(score(least)),
                _ => own,
            };
            // Above every guaranteed pod, below every best-effort one.
            let score = i64::try_from(score).unwrap_or(i64::MIN);
            score.clamp(1000 + GUARANTEED, BEST_EFFORT - 1)
        }
    }
}

/// Only such a pod is the very last to be killed; other critical pods are not.
fn is_node_critical(pod: &Pod) -> bool {
    let class = pod
        .spec()
        .and_then(|spec| spec.priority_class_name.as_deref());
    pod.is_critical() && class == Some(NODE_CRITICAL_CLASS)
}

fn is_sidecar_of(pod: &Pod, container: &Container) -> bool {
    let is_init = pod
        .init_containers()
        .iter()
        .any(|init| init.name == container.name);
    is_init && is_sidecar(container)
}

fn memory_request(container: &Container) -> i128 {
    let resources = container.resources.as_ref();
    amount(resources.and_then(|r| r.requests.as_ref()), MEMORY)
}

/// What the pod as a whole asks for beyond its containers, divided among them.
fn unclaimed_share(pod: &Pod) -> i128 {
    let pod_level = pod.spec().and_then(|spec| spec.resources.as_ref());
    let asked = amount(pod_level.and_then(|r| r.requests.as_ref()), MEMORY);
    let containers = i128::try_from(pod.all_containers().count()).unwrap_or(i128::MAX);
    match asked {
        0 => 0,
        _ => (asked - containers_memory(pod)) / containers.max(1),
    }
}

/// What the containers ask for at the pod's greatest moment: the apps and sidecars together, or an init
/// container beside the sidecars that were started before it.
fn containers_memory(pod: &Pod) -> i128 {
    let apps: i128 = pod.app_containers().iter().map(memory_request).sum();
    let (mut sidecars, mut peak) = (0, 0);
    for init in pod.init_containers() {
        let own = memory_request(init);
        if is_sidecar(init) {
            sidecars += own;
            peak = peak.max(sidecars);
        } else {
            peak = peak.max(sidecars + own);
        }
    }
    peak.max(apps + sidecars)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::PodSpec;
    use logic_api::pod::{CONFIG_MIRROR, CONFIG_SOURCE, SYSTEM_CRITICAL_PRIORITY};
    use logic_api::testing::*;

    use super::*;

    type QosResourceList = &'static [(&'static str, &'static str)];

    fn resources(
        requests: QosResourceList,
        limits: QosResourceList,
    ) -> Option<ResourceRequirements> {
        Some(ResourceRequirements {
            requests: Some(quantities(requests)),
            limits: Some(quantities(limits)),
            claims: None,
        })
    }

    /// Upstream's TestIsContainerQOSGuaranteed (cm/qos).
    #[test]
    fn a_container_is_guaranteed_whose_limits_are_its_requests() {
        const ONE: QosResourceList = &[(CPU, "1"), (MEMORY, "1G")];
        const CPU_ONLY: QosResourceList = &[(CPU, "1")];
        for (resources, guaranteed) in [
            (resources(ONE, ONE), true),
            (resources(ONE, &[(CPU, "1000m"), (MEMORY, "1G")]), true),
            (resources(ONE, &[(CPU, "2"), (MEMORY, "1G")]), false),
            (resources(ONE, &[(CPU, "1"), (MEMORY, "2G")]), false),
            (resources(CPU_ONLY, ONE), false),
            (resources(CPU_ONLY, CPU_ONLY), false),
            (resources(ONE, &[]), false),
            (
                resources(&[(CPU, "0"), (MEMORY, "1G")], &[(CPU, "0"), (MEMORY, "1G")]),
                false,
            ),
            (Some(ResourceRequirements::default()), false),
            (None, false),
        ] {
            let container = Container {
                resources,
                ..Container::default()
            };
            assert_eq!(is_guaranteed(&container), guaranteed, "{container:?}");
        }
    }

    /// Upstream's TestComputePodQOS.
    #[test]
    fn class_is_upstreams() {
        const BOTH: QosResourceList = &[(CPU, "100m"), (MEMORY, "100Mi")];
        const MORE: QosResourceList = &[(CPU, "200m"), (MEMORY, "200Mi")];
        const CPU_ONLY: QosResourceList = &[(CPU, "100m")];
        const OTHER: QosResourceList = &[("example.org/gpu", "1")];
        const ZERO: QosResourceList = &[(CPU, "0"), (MEMORY, "0")];
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
                vec![(&[] as QosResourceList, &[] as QosResourceList)],
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

    const GB: u64 = 1_000_000_000;

    fn asks(requests: QosResourceList, limits: QosResourceList) -> impl FnOnce(&mut Container) {
        move |c| c.resources = resources(requests, limits)
    }

    fn sidecar(requests: QosResourceList, limits: QosResourceList) -> impl FnOnce(&mut PodSpec) {
        move |spec| {
            let mut side = spec_container("side");
            side.restart_policy = Some("Always".into());
            side.resources = resources(requests, limits);
            spec.init_containers.get_or_insert_default().push(side);
        }
    }

    fn scores(pod: &Pod, capacity: u64) -> Vec<i64> {
        let all = pod.all_containers();
        all.map(|(_, c)| oom_score_adj(pod, c, capacity)).collect()
    }

    /// Upstream's TestGetContainerOOMScoreAdjust: containers that ask for themselves.
    #[test]
    fn the_more_memory_a_container_asked_for_the_less_likely_it_is_killed() {
        let class = |name: &str, priority: i32| {
            let name = name.to_owned();
            pod("p").app("c").spec_with(move |spec| {
                spec.priority_class_name = Some(name);
                spec.priority = Some(priority);
            })
        };
        let cases: [(&str, Pod, u64, &[i64]); 10] = [
            (
                "cpu limit",
                pod("p").app_with("c", asks(&[], &[(CPU, "10")])),
                4 * GB,
                &[999],
            ),
            (
                "memory limit and cpu request",
                pod("p").app_with("c", asks(&[(CPU, "0")], &[(MEMORY, "10G")])),
                8 * GB,
                &[999],
            ),
            (
                "zero memory limit",
                pod("p").app_with("c", asks(&[], &[(MEMORY, "0")])),
                7_230_457_451,
                &[1000],
            ),
            ("nothing asked", pod("p").app("c"), 4 * GB, &[1000]),
            (
                "guaranteed",
                pod("p").app_with(
                    "c",
                    asks(
                        &[(MEMORY, "10G"), (CPU, "5m")],
                        &[(CPU, "5m"), (MEMORY, "10G")],
                    ),
                ),
                123_456_789,
                &[-997],
            ),
            (
                "half of the node",
                pod("p").app_with(
                    "c",
                    asks(&[(MEMORY, "4000000000"), (CPU, "5m")], &[(MEMORY, "10G")]),
                ),
                8 * GB,
                &[500],
            ),
            (
                "the whole node",
                pod("p").app_with("c", asks(&[(MEMORY, "7999999999"), (CPU, "5m")], &[])),
                8 * GB,
                &[3],
            ),
            (
                "cluster-critical",
                class("system-cluster-critical", 2_000_000_000),
                4 * GB,
                &[1000],
            ),
            (
                "node-critical",
                class("system-node-critical", 2_000_001_000),
                4 * GB,
                &[-997],
            ),
            (
                "node-critical by name alone",
                class("system-node-critical", 0),
                4 * GB,
                &[1000],
            ),
        ];
        for (name, pod, capacity, expected) in cases {
            assert_eq!(scores(&pod, capacity), expected, "{name}");
        }
    }

    /// Upstream's TestIsNodeCriticalPod.
    #[test]
    fn a_pod_is_critical_for_the_node_by_its_class_if_it_is_critical_at_all() {
        const UPPER: i32 = SYSTEM_CRITICAL_PRIORITY + 1000;
        let of = |annotation: &[(&str, &str)], priority, class: Option<&str>| {
            let mut made = pod("p").spec_with(|spec| {
                spec.priority = priority;
                spec.priority_class_name = class.map(str::to_owned);
            });
            let annotations = annotation.iter().map(|(k, v)| ((*k).into(), (*v).into()));
            made.metadata.annotations = Some(annotations.collect());
            made
        };
        let class = Some(NODE_CRITICAL_CLASS);
        let rows = [
            (of(&[(CONFIG_SOURCE, "file")], None, class), true),
            (of(&[(CONFIG_MIRROR, "true")], None, class), true),
            (of(&[], Some(SYSTEM_CRITICAL_PRIORITY), class), true),
            (of(&[], Some(UPPER), class), true),
            (of(&[(CONFIG_SOURCE, "api")], None, class), false),
            (of(&[], None, class), false),
            (of(&[], None, None), false),
        ];
        for (at, (pod, expected)) in rows.iter().enumerate() {
            assert_eq!(is_node_critical(pod), *expected, "{at}");
        }
    }

    /// Upstream's TestGetContainerOOMScoreAdjust: sidecars.
    #[test]
    fn a_sidecar_is_never_killed_before_the_apps() {
        const EIGHTH: QosResourceList = &[(MEMORY, "1000000000")];
        const EIGHTH_LIMIT: QosResourceList = &[(MEMORY, "1000001000")];
        let with_init = || {
            let mut pod = pod("p").init("i").app_with("c", asks(EIGHTH, EIGHTH_LIMIT));
            let init = pod
                .spec
                .as_mut()
                .and_then(|spec| spec.init_containers.as_mut());
            init.unwrap()[0].resources = resources(EIGHTH, EIGHTH_LIMIT);
            pod
        };
        let cases: [(&str, Pod, &[i64]); 4] = [
            ("an init container", with_init(), &[875, 875]),
            (
                "a small sidecar",
                with_init().spec_with(sidecar(&[(MEMORY, "400000000")], EIGHTH_LIMIT)),
                &[875, 875, 875],
            ),
            (
                "a sidecar of the same size",
                with_init().spec_with(sidecar(EIGHTH, EIGHTH_LIMIT)),
                &[875, 875, 875],
            ),
            (
                "a big sidecar",
                with_init().spec_with(sidecar(&[(MEMORY, "4000000000")], EIGHTH_LIMIT)),
                &[875, 500, 875],
            ),
        ];
        for (name, pod, expected) in cases {
            assert_eq!(scores(&pod, 8 * GB), expected, "{name}");
        }
    }

    /// Upstream's TestGetContainerOOMScoreAdjust: pod-level requests.
    #[test]
    fn what_only_the_pod_asked_for_counts_for_all_its_containers_alike() {
        const POD: QosResourceList = &[(CPU, "5m"), (MEMORY, "2000000000")];
        const POD_LIMIT: QosResourceList = &[(CPU, "5m"), (MEMORY, "2000001000")];
        const ONE: QosResourceList = &[(CPU, "5m"), (MEMORY, "1000000000")];
        const HALF: QosResourceList = &[(CPU, "5m"), (MEMORY, "500000000")];
        let level = |limits: QosResourceList| {
            pod("p").spec_with(|spec| spec.resources = resources(POD, limits))
        };
        let cases: [(&str, Pod, &[i64]); 8] = [
            (
                "guaranteed, none asks",
                level(POD).app("a").app("b"),
                &[-997, -997],
            ),
            (
                "guaranteed, one asks",
                level(POD).app_with("a", asks(ONE, POD_LIMIT)).app("b"),
                &[-997, -997],
            ),
            ("none asks", level(POD_LIMIT).app("a").app("b"), &[750, 750]),
            (
                "both ask all",
                level(POD_LIMIT)
                    .app_with("a", asks(ONE, ONE))
                    .app_with("b", asks(ONE, ONE)),
                &[750, 750],
            ),
            (
                "one asks half",
                level(POD_LIMIT).app_with("a", asks(ONE, ONE)).app("b"),
                &[625, 875],
            ),
            (
                "none asks, with a sidecar",
                level(POD_LIMIT).app("a").spec_with(sidecar(&[], &[])),
                &[750, 750],
            ),
            (
                "all ask, with a sidecar",
                level(POD_LIMIT)
                    .app_with("a", asks(ONE, POD_LIMIT))
                    .spec_with(sidecar(ONE, POD_LIMIT)),
                &[750, 750],
            ),
            (
                "different shares, with a sidecar",
                level(POD_LIMIT)
                    .app_with("a", asks(ONE, POD_LIMIT))
                    .app_with("b", asks(HALF, POD_LIMIT))
                    .spec_with(sidecar(&[(CPU, "5m"), (MEMORY, "200000000")], POD_LIMIT)),
                &[850, 725, 850],
            ),
        ];
        for (name, pod, expected) in cases {
            assert_eq!(scores(&pod, 4 * GB), expected, "{name}");
        }
    }
}
