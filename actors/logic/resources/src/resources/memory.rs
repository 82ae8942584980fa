//! A container's memory settings beyond its limit: swap, protection, throttling, group kill.
//!
//! Mirrors upstream's `configureContainerSwapResources` and the memory QoS of
//! `generateLinuxContainerResources` (kuberuntime_container_linux.go at v1.36).

use k8s_openapi::api::core::v1::{Container, Pod};
use logic_api::pod::PodView;
use logic_api::pod::requests::MEMORY;
use logic_api::quantity::bytes;
use serde::{Deserialize, Serialize};

use super::{LinuxResources, NodeCgroupVersion, limits, requests};
use crate::node::policy::NodePolicy;
use crate::qos::{Qos, pod_qos};

/// Bytes that the kernel never takes back from a group.
pub const MEMORY_MIN: &str = "memory.min";
/// Bytes that the kernel takes back only when there is nothing else.
pub const MEMORY_LOW: &str = "memory.low";

/// The configuration's `memorySwap.swapBehavior`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum SwapBehaviour {
    #[default]
    NoSwap,
    /// Containers of burstable pods have their share of the node's swap.
    LimitedSwap,
}

/// The node's swap, where cgroups limit it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwapPolicy {
    pub behaviour: SwapBehaviour,
    /// Bytes of the node's swap.
    pub capacity: u64,
}

/// Which processes the kernel kills when a container of cgroup v2 is out of memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum OomKill {
    #[default]
    SingleProcess,
    WholeContainer,
}

/// The feature of that name, on cgroup v2.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryQos {
    /// `memoryThrottlingFactor` in millionths; without it no `memory.high` is set.
    pub throttling: Option<u32>,
    pub reservation: MemoryReservationPolicy,
    /// Bytes of a page of the node's memory.
    pub page_size: u32,
}

/// The configuration's `memoryReservationPolicy`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum MemoryReservationPolicy {
    #[default]
    None,
    /// Guaranteed pods' requests are kept for them, burstable pods' while the kernel can.
    Tiered,
}

/// Whether the container may swap: only a burstable one that asked for less memory than its limit.
pub fn effective_swap_behaviour(
    pod: &Pod,
    container: &Container,
    node: &NodePolicy,
) -> SwapBehaviour {
    let enforcement = &node.enforcement;
    let behaviour = enforcement
        .swap
        .map_or(SwapBehaviour::NoSwap, |swap| swap.behaviour);
    let ContainerMemory { request, limit } = ContainerMemory::of(container);
    let may = enforcement.cgroups == NodeCgroupVersion::V2
        && !pod.is_critical()
        && pod_qos(pod) == Qos::Burstable
        && request != limit;
    if may {
        behaviour
    } else {
        SwapBehaviour::NoSwap
    }
}

/// Bytes as the container's own fields say; zero for a missing one.
#[derive(Clone, Copy)]
struct ContainerMemory {
    request: i64,
    limit: i64,
}

impl ContainerMemory {
    fn of(container: &Container) -> Self {
        let request = bytes(requests(container).and_then(|list| list.get(MEMORY)));
        let limit = bytes(limits(container).and_then(|list| list.get(MEMORY)));
        Self {
            request: request.unwrap_or(0).max(0),
            limit: limit.unwrap_or(0).max(0),
        }
    }
}

pub(super) fn enforce(
    made: &mut LinuxResources,
    pod: &Pod,
    container: &Container,
    node: &NodePolicy,
) {
    let enforcement = &node.enforcement;
    let memory = ContainerMemory::of(container);
    if let Some(swap) = enforcement.swap {
        match enforcement.cgroups {
            // Memory and swap together may be no more than memory alone.
            NodeCgroupVersion::V1 => made.memory_swap_limit = made.memory_limit,
            NodeCgroupVersion::V2 => {
                let share = match effective_swap_behaviour(pod, container, node) {
                    SwapBehaviour::NoSwap => 0,
                    SwapBehaviour::LimitedSwap => swap_share(memory.request, node, swap.capacity),
                };
                set(made, "memory.swap.max", share);
            }
        }
    }
    if enforcement.cgroups == NodeCgroupVersion::V1 {
        return;
    }
    if enforcement.oom == OomKill::WholeContainer {
        set(made, "memory.oom.group", 1);
    }
    if let Some(qos) = enforcement.memory_qos {
        reserve(made, qos.reservation, pod_qos(pod), memory.request);
        let high = throttle_from(memory, qos, node);
        if let Some(high) = high {
            set(made, "memory.high", high);
        }
    }
}

fn set(made: &mut LinuxResources, file: &str, value: i64) {
    made.unified.insert(file.to_owned(), value.to_string());
}

/// The same share of the node's swap as of its memory; none for more memory than there is.
fn swap_share(request: i64, node: &NodePolicy, swap_capacity: u64) -> i64 {
    let (request, memory) = (i128::from(request), i128::from(node.memory_capacity));
    if memory == 0 || request > memory {
        return 0;
    }
    i64::try_from(request * i128::from(swap_capacity) / memory).unwrap_or(i64::MAX)
}

fn reserve(made: &mut LinuxResources, policy: MemoryReservationPolicy, class: Qos, request: i64) {
    match (policy, class) {
        (MemoryReservationPolicy::Tiered, Qos::Guaranteed) if request != 0 => {
            set(made, MEMORY_MIN, request);
        }
        (MemoryReservationPolicy::Tiered, _) if request != 0 => set(made, MEMORY_LOW, request),
        (MemoryReservationPolicy::Tiered | MemoryReservationPolicy::None, _) => {
            set(made, MEMORY_MIN, 0);
            set(made, MEMORY_LOW, 0);
        }
    }
}

/// `memory.high` in bytes: a share of the way from the request to the limit, or to the node's allocatable. None where
/// the container can't have more than its request.
fn throttle_from(memory: ContainerMemory, qos: MemoryQos, node: &NodePolicy) -> Option<i64> {
    let ContainerMemory { request, limit } = memory;
    if request == limit {
        return None;
    }
    let end = match limit {
        0 => i64::try_from(node.unreserved_memory)
            .ok()
            .filter(|bytes| *bytes > 0)?,
        limit => limit,
    };
    let (factor, page) = (qos.throttling?, i128::from(qos.page_size.max(1)));
    let way = (i128::from(end) - i128::from(request)) * i128::from(factor) / 1_000_000;
    let high = (i128::from(request) + way).div_euclid(page) * page;
    i64::try_from(high).ok().filter(|high| *high > request)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use k8s_openapi::api::core::v1::ResourceRequirements;
    use logic_api::pod::SYSTEM_CRITICAL_PRIORITY;
    use logic_api::testing::*;

    use super::*;
    use crate::resources::{ResourceEnforcement, linux_resources};

    type MemoryResourceList = &'static [(&'static str, &'static str)];

    const GIB: u64 = 1 << 30;

    fn asking(requests: MemoryResourceList, limits: MemoryResourceList) -> Pod {
        pod("p").app_with("c", |c| {
            c.resources = Some(ResourceRequirements {
                requests: Some(quantities(requests)),
                limits: Some(quantities(limits)),
                claims: None,
            });
        })
    }

    fn node(enforcement: ResourceEnforcement) -> NodePolicy {
        NodePolicy {
            memory_capacity: 40 * GIB,
            unreserved_memory: 32 * GIB,
            enforcement,
            ..NodePolicy::default()
        }
    }

    fn swapping(cgroups: NodeCgroupVersion, behaviour: SwapBehaviour) -> NodePolicy {
        let capacity = 5 * GIB;
        node(ResourceEnforcement {
            cgroups,
            swap: Some(SwapPolicy {
                behaviour,
                capacity,
            }),
            ..ResourceEnforcement::default()
        })
    }

    fn made(pod: &Pod, node: &NodePolicy) -> LinuxResources {
        linux_resources(pod, &pod.app_containers()[0], node)
    }

    /// Upstream's TestGenerateLinuxContainerResourcesWithSwap and
    /// TestGenerateLinuxContainerResourcesSwapLimitCalculation (cgroup v2).
    #[test]
    fn only_burstable_containers_have_a_share_of_the_swap() {
        const LIMIT: MemoryResourceList = &[("memory", "20Gi")];
        const REQUEST: MemoryResourceList = &[("memory", "8Gi")];
        let limited = swapping(NodeCgroupVersion::V2, SwapBehaviour::LimitedSwap);
        let none = swapping(NodeCgroupVersion::V2, SwapBehaviour::NoSwap);
        let critical =
            asking(REQUEST, &[]).spec_with(|spec| spec.priority = Some(SYSTEM_CRITICAL_PRIORITY));
        let share = (8 * GIB * 5 / 40).to_string();
        let cases = [
            (
                "burstable",
                asking(REQUEST, LIMIT),
                &limited,
                share.as_str(),
            ),
            (
                "burstable without limit",
                asking(REQUEST, &[]),
                &limited,
                share.as_str(),
            ),
            ("burstable, no swap", asking(REQUEST, LIMIT), &none, "0"),
            ("best effort", asking(&[], &[]), &limited, "0"),
            ("guaranteed memory", asking(REQUEST, REQUEST), &limited, "0"),
            (
                "guaranteed",
                asking(
                    &[("memory", "8Gi"), ("cpu", "1")],
                    &[("memory", "8Gi"), ("cpu", "1")],
                ),
                &limited,
                "0",
            ),
            (
                "asks for no memory",
                asking(&[("cpu", "1")], &[]),
                &limited,
                "0",
            ),
            ("a limit and no request", asking(&[], LIMIT), &limited, "0"),
            (
                "more than there is",
                asking(&[("memory", "41Gi")], &[]),
                &limited,
                "0",
            ),
            ("critical", critical, &limited, "0"),
        ];
        for (name, pod, node, expected) in cases {
            let made = made(&pod, node);
            assert_eq!(made.unified["memory.swap.max"], expected, "{name}");
            assert_eq!(made.memory_swap_limit, 0, "{name}");
        }
    }

    /// Upstream's TestGenerateLinuxContainerResourcesWithSwap (cgroup v1, and no swap controller).
    #[test]
    fn without_swap_by_cgroup_v2_nobody_swaps() {
        let pod = asking(&[("memory", "8Gi")], &[("memory", "20Gi")]);
        for behaviour in [SwapBehaviour::NoSwap, SwapBehaviour::LimitedSwap] {
            let old = swapping(NodeCgroupVersion::V1, behaviour);
            let made = made(&pod, &old);
            assert_eq!(made.memory_swap_limit, 20 << 30);
            assert!(made.unified.is_empty());
            let effective = effective_swap_behaviour(&pod, &pod.app_containers()[0], &old);
            assert_eq!(effective, SwapBehaviour::NoSwap);
        }
        for cgroups in [NodeCgroupVersion::V1, NodeCgroupVersion::V2] {
            let made = made(
                &pod,
                &node(ResourceEnforcement {
                    cgroups,
                    ..ResourceEnforcement::default()
                }),
            );
            assert_eq!((made.memory_swap_limit, made.unified.len()), (0, 0));
        }
    }

    /// Upstream's TestCalculateLinuxResources with singleProcessOOMKill.
    #[test]
    fn a_container_is_killed_as_a_whole_only_on_cgroup_v2() {
        for (cgroups, expected) in [
            (NodeCgroupVersion::V1, None),
            (NodeCgroupVersion::V2, Some("1")),
        ] {
            let oom = OomKill::WholeContainer;
            let node = node(ResourceEnforcement {
                cgroups,
                oom,
                ..ResourceEnforcement::default()
            });
            let made = made(&asking(&[], &[]), &node);
            let found = made.unified.get("memory.oom.group").map(String::as_str);
            assert_eq!(found, expected);
        }
    }

    /// Upstream's TestGenerateContainerConfigMemoryQoSPolicyNone.
    #[test]
    fn memory_is_throttled_where_none_is_reserved() {
        let node = node(ResourceEnforcement {
            cgroups: NodeCgroupVersion::V2,
            memory_qos: Some(MemoryQos {
                throttling: Some(900_000),
                reservation: MemoryReservationPolicy::None,
                page_size: 4096,
            }),
            ..ResourceEnforcement::default()
        });
        let pod = asking(&[("memory", "128Mi")], &[("memory", "256Mi")]);
        let unified = made(&pod, &node).unified;
        assert_eq!(unified["memory.min"], "0");
        let high: u64 = unified["memory.high"].parse().unwrap();
        assert!((128 << 20..256 << 20).contains(&high), "{high}");
    }

    /// Upstream's TestGetContainerSwapBehavior.
    #[test]
    fn only_burstable_containers_below_their_limit_may_swap() {
        const REQUEST: MemoryResourceList = &[("memory", "1Gi")];
        const LIMIT: MemoryResourceList = &[("memory", "2Gi")];
        const BOTH: MemoryResourceList = &[("memory", "1Gi"), ("cpu", "1")];
        let behaviour = |pod: &Pod, node: &NodePolicy| {
            effective_swap_behaviour(pod, &pod.app_containers()[0], node)
        };
        use NodeCgroupVersion::{V1, V2};
        use SwapBehaviour::{LimitedSwap, NoSwap};
        let limited = swapping(V2, LimitedSwap);
        let unlimited = node(ResourceEnforcement {
            cgroups: V2,
            ..ResourceEnforcement::default()
        });
        let zero = pod("p")
            .app_with("c", |c| {
                c.resources = Some(ResourceRequirements {
                    requests: Some(quantities(&[("memory", "0")])),
                    limits: Some(quantities(&[("memory", "0")])),
                    claims: None,
                });
            })
            .app_with("d", |c| {
                c.resources = Some(ResourceRequirements {
                    requests: Some(quantities(REQUEST)),
                    ..ResourceRequirements::default()
                });
            });
        let cases = [
            (asking(REQUEST, LIMIT), &swapping(V2, NoSwap), NoSwap),
            (asking(REQUEST, LIMIT), &unlimited, NoSwap),
            (asking(REQUEST, LIMIT), &swapping(V1, LimitedSwap), NoSwap),
            (asking(&[], &[]), &limited, NoSwap),
            (asking(BOTH, BOTH), &limited, NoSwap),
            (zero, &limited, NoSwap),
            (asking(REQUEST, REQUEST), &limited, NoSwap),
            (asking(REQUEST, LIMIT), &limited, LimitedSwap),
        ];
        for (pod, node, expected) in cases {
            assert_eq!(behaviour(&pod, node), expected, "{pod:?}");
        }
    }

    /// Upstream's TestGenerateContainerConfigWithMemoryQoSEnforced.
    #[test]
    fn memory_is_throttled_before_its_limit_and_reserved_by_class() {
        const MIB: u64 = 1 << 20;
        let both: MemoryResourceList = &[("memory", "128Mi"), ("cpu", "1")];
        let half = MIB * 128 + MIB * 128 * 9 / 10;
        let node_wide = MIB * 128 + (32 * GIB - MIB * 128) / 10 * 9;
        let page = |bytes: u64| (bytes / 4096 * 4096).to_string();
        let bytes = |megabytes: u64| Some((megabytes * MIB).to_string());
        let zero = || Some("0".to_owned());
        type Expected = Option<String>;
        let cases: [(&str, Pod, Expected, Expected, Expected); 5] = [
            (
                "with a limit",
                asking(&[("memory", "128Mi")], &[("memory", "256Mi")]),
                Some(page(half)),
                None,
                bytes(128),
            ),
            (
                "without a limit",
                asking(&[("memory", "128Mi")], &[]),
                Some(page(node_wide)),
                None,
                bytes(128),
            ),
            ("guaranteed", asking(both, both), None, bytes(128), None),
            ("best effort", asking(&[], &[]), None, zero(), zero()),
            (
                "a limit as great as the request",
                asking(&[("memory", "1Mi")], &[("memory", "1Mi")]),
                None,
                None,
                bytes(1),
            ),
        ];
        let with = |reservation, throttling| {
            node(ResourceEnforcement {
                cgroups: NodeCgroupVersion::V2,
                memory_qos: Some(MemoryQos {
                    throttling,
                    reservation,
                    page_size: 4096,
                }),
                ..ResourceEnforcement::default()
            })
        };
        for (name, pod, high, least, low) in cases {
            let tiered = made(&pod, &with(MemoryReservationPolicy::Tiered, Some(900_000))).unified;
            assert_eq!(tiered.get("memory.high"), high.as_ref(), "{name}");
            let kept = [MEMORY_MIN, MEMORY_LOW].map(|file| tiered.get(file).cloned());
            assert_eq!(kept, [least, low], "{name}");
            let plain = made(&pod, &with(MemoryReservationPolicy::None, None)).unified;
            let zero = [("memory.low", "0"), ("memory.min", "0")];
            assert_eq!(plain, string_map(&zero), "{name}");
        }
        let off = node(ResourceEnforcement {
            cgroups: NodeCgroupVersion::V2,
            ..ResourceEnforcement::default()
        });
        assert_eq!(made(&asking(both, both), &off).unified, BTreeMap::new());
    }
}
