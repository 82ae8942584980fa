//! CPU and memory of containers: from quantities to what a runtime enforces.
//!
//! Mirrors upstream's kuberuntime_container_linux.go and cm/helpers_linux.go at v1.36.

mod field;
mod huge_pages;
mod memory;

use std::collections::BTreeMap;
use std::time::Duration;

pub use field::{ResourceFieldError, field};
pub use huge_pages::huge_page_name;
use k8s_openapi::api::core::v1::{Container, Pod, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use logic_api::pod::PodView;
use logic_api::pod::requests::{CPU, MEMORY};
use logic_api::quantity::{bytes, is_zero, milli};
pub use memory::{
    MEMORY_LOW, MEMORY_MIN, MemoryQos, MemoryReservationPolicy, OomKill, SwapBehaviour, SwapPolicy,
    effective_swap_behaviour,
};
use serde::{Deserialize, Serialize};

use crate::cgroups::{CpuQuota, burst};
use crate::node::policy::NodePolicy;
use crate::qos::oom_score_adj;

/// CRI's `LinuxContainerResources`, as far as it is set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinuxResources {
    /// In the unit of cgroup version 1: 1024 for one CPU.
    pub cpu_shares: i64,
    /// Microseconds; zero where there is no limit, -1 where one is not enforced.
    pub cpu_quota: i64,
    /// Microseconds.
    pub cpu_period: i64,
    /// Bytes; zero where there is no limit.
    pub memory_limit: i64,
    /// Bytes of memory and swap together, on cgroup v1 only; zero leaves it to the runtime.
    pub memory_swap_limit: i64,
    /// From -1000, never killed, to 1000, killed first.
    pub oom_score_adj: i64,
    /// The CPUs that it runs on, as a list of ranges (`0-3,8`); empty leaves them to the runtime.
    pub cpus: String,
    /// The NUMA nodes that its memory comes from, separated by commas; empty leaves them to the runtime.
    pub memory_nodes: String,
    /// Bytes by page size (`2MB`), for every size that the node has.
    pub huge_pages: BTreeMap<String, u64>,
    /// Files of cgroup v2, such as `memory.high`.
    pub unified: BTreeMap<String, String>,
}

/// Which cgroups the node has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodeCgroupVersion {
    #[default]
    V1,
    V2,
}

/// Which resources the node's kernel and the configuration allow to enforce.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceEnforcement {
    pub cgroups: NodeCgroupVersion,
    /// Sizes as cgroups name them: `2MB`, `1GB`.
    pub huge_page_sizes: Vec<String>,
    /// None where the kernel does not limit swap by cgroup.
    pub swap: Option<SwapPolicy>,
    pub oom: OomKill,
    /// None where the feature gate `MemoryQoS` is off.
    pub memory_qos: Option<MemoryQos>,
}

/// The resources that CRI gets for a container; the pod's spec holds the allocated resources.
pub fn linux_resources(pod: &Pod, container: &Container, node: &NodePolicy) -> LinuxResources {
    let cpu_limit = milli(limit(pod, container, CPU)).unwrap_or(0);
    let cpu_request = requests(container).and_then(|list| list.get(CPU));
    let shares_of = match cpu_request {
        Some(request) => milli(Some(request)).unwrap_or(0),
        None => cpu_limit,
    };
    let period = node.cpu_quota_period.map(micros);
    let enforcement = &node.enforcement;
    let mut made = LinuxResources {
        cpu_shares: cpu_shares(shares_of),
        cpu_quota: period.map_or(0, |period| cpu_quota(cpu_limit, period)),
        cpu_period: period.unwrap_or(0),
        memory_limit: bytes(limit(pod, container, MEMORY)).unwrap_or(0),
        memory_swap_limit: 0,
        oom_score_adj: oom_score_adj(pod, container, node.memory_capacity),
        cpus: String::new(),
        memory_nodes: String::new(),
        huge_pages: huge_pages::limits(pod, container, &enforcement.huge_page_sizes),
        unified: BTreeMap::new(),
    };
    memory::enforce(&mut made, pod, container, node);
    let quota = CpuQuota {
        quota: made.cpu_quota,
        period: made.cpu_period,
    };
    let burst = burst::of_pod(pod, Some(quota));
    if let (NodeCgroupVersion::V2, Some(burst)) = (enforcement.cgroups, burst) {
        let file = burst::FILE.to_owned();
        made.unified.insert(file, burst.to_string());
    }
    made
}

/// The fewest shares that the kernel takes: those of a group that asks for nothing.
pub const MIN_SHARES: i64 = 2;

/// The kernel's relative weight: 1024 a core, within what the kernel takes.
pub fn cpu_shares(milli: i64) -> i64 {
    /// The greatest weight that the kernel takes, `MAX_SHARES`.
    const MOST: i64 = 262_144;
    (milli.saturating_mul(1024) / 1000).clamp(MIN_SHARES, MOST)
}

/// Microseconds of CPU a period; zero means no limit, and a limit is at least one millisecond.
pub fn cpu_quota(milli: i64, period: i64) -> i64 {
    const LEAST: i64 = 1000;
    match milli {
        0 => 0,
        _ => (milli.saturating_mul(period) / 1000).max(LEAST),
    }
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

/// The container's own limit, or else the pod's.
fn limit<'a>(pod: &'a Pod, container: &'a Container, name: &str) -> Option<&'a Quantity> {
    let find = |resources: Option<&'a ResourceRequirements>| resources?.limits.as_ref()?.get(name);
    let own = find(container.resources.as_ref());
    own.filter(|quantity| !is_zero(quantity))
        .or_else(|| find(pod.spec()?.resources.as_ref()))
}

/// Bytes of memory that each app container asks for; zero where it asks for none.
pub fn memory_requests(pod: &Pod) -> BTreeMap<String, u64> {
    let asked = |container: &Container| {
        let asked = bytes(requests(container).and_then(|list| list.get(MEMORY)));
        let bytes = u64::try_from(asked.unwrap_or(0)).unwrap_or(0);
        (container.name.clone(), bytes)
    };
    pod.app_containers().iter().map(asked).collect()
}

fn requests(container: &Container) -> Option<&BTreeMap<String, Quantity>> {
    container.resources.as_ref()?.requests.as_ref()
}

fn limits(container: &Container) -> Option<&BTreeMap<String, Quantity>> {
    container.resources.as_ref()?.limits.as_ref()
}

#[cfg(test)]
mod tests {
    use logic_api::testing::*;

    use super::*;

    type LinuxResourceList = &'static [(&'static str, &'static str)];

    #[test]
    fn a_container_with_a_quota_may_burst_where_its_pod_asks_for_it() {
        let node = |cgroups| NodePolicy {
            cpu_quota_period: Some(Duration::from_millis(100)),
            enforcement: ResourceEnforcement {
                cgroups,
                ..ResourceEnforcement::default()
            },
            ..NodePolicy::default()
        };
        let limited = ResourceRequirements {
            limits: Some(quantities(&[("cpu", "1")])),
            ..ResourceRequirements::default()
        };
        let mut pod = pod("p").app("free");
        let annotations = pod.metadata.annotations.get_or_insert_default();
        annotations.insert(burst::ANNOTATION.to_owned(), "500m".to_owned());
        let free = pod.app_containers()[0].clone();
        let container = Container {
            resources: Some(limited),
            ..free.clone()
        };
        let file = |container: &Container, cgroups| {
            let made = linux_resources(&pod, container, &node(cgroups));
            made.unified.get(burst::FILE).cloned()
        };
        let expected = Some("50000".to_owned());
        assert_eq!(file(&container, NodeCgroupVersion::V2), expected);
        assert_eq!(file(&container, NodeCgroupVersion::V1), None);
        assert_eq!(file(&free, NodeCgroupVersion::V2), None);
    }

    /// Upstream's TestCalculateLinuxResources, TestGenerateLinuxContainerConfigResources,
    /// TestMilliCPUToShares and TestMilliCPUToQuota.
    #[test]
    fn requests_and_limits_become_what_the_kernel_takes() {
        let cases: [(LinuxResourceList, LinuxResourceList, i64, i64, i64); 15] = [
            (&[], &[], 2, 0, 0),
            (
                &[("cpu", "1")],
                &[("cpu", "2"), ("memory", "128Mi")],
                1024,
                200_000,
                134_217_728,
            ),
            (
                &[("cpu", "2")],
                &[("cpu", "8"), ("memory", "0")],
                2048,
                800_000,
                0,
            ),
            (
                &[("memory", "128Mi"), ("cpu", "1")],
                &[("memory", "256Mi"), ("cpu", "3")],
                1024,
                300_000,
                268_435_456,
            ),
            (&[("memory", "128Mi"), ("cpu", "2")], &[], 2048, 0, 0),
            (&[], &[("cpu", "2")], 2048, 200_000, 0),
            (&[("cpu", "0")], &[("cpu", "2")], 2, 200_000, 0),
            (&[("cpu", "1m")], &[("cpu", "5m")], 2, 1000, 0),
            (&[("cpu", "10m")], &[("cpu", "10m")], 10, 1000, 0),
            (&[("cpu", "100m")], &[("cpu", "100m")], 102, 10_000, 0),
            (&[("cpu", "500m")], &[("cpu", "1500m")], 512, 150_000, 0),
            (&[("cpu", "256")], &[("cpu", "30")], 262_144, 3_000_000, 0),
            (&[("cpu", "1000")], &[], 262_144, 0, 0),
            (&[("cpu", "not a number")], &[("memory", "")], 2, 0, 0),
            (
                &[("cpu", "1.5")],
                &[("memory", "1G")],
                1536,
                0,
                1_000_000_000,
            ),
        ];
        let node = NodePolicy {
            memory_capacity: 4 << 30,
            ..NodePolicy::default()
        };
        for (requests, limits, shares, quota, memory) in cases {
            let pod = pod("p").app_with("c", |c| {
                let (requests, limits) = (Some(quantities(requests)), Some(quantities(limits)));
                c.resources = Some(ResourceRequirements {
                    requests,
                    limits,
                    claims: None,
                });
            });
            let made = linux_resources(&pod, &pod.app_containers()[0], &node);
            let found = (made.cpu_shares, made.cpu_quota, made.memory_limit);
            assert_eq!(found, (shares, quota, memory), "{requests:?} {limits:?}");
            assert_eq!(made.cpu_period, 100_000);
        }
    }

    /// Upstream's TestGenerateLinuxContainerResources.
    #[test]
    fn each_class_has_its_score_and_its_limits_on_either_version_of_cgroups() {
        let whole = ("memory.oom.group".to_owned(), "1".to_owned());
        let cases: [(LinuxResourceList, LinuxResourceList, i64, i64, i64); 3] = [
            (
                &[("cpu", "250m"), ("memory", "500Mi")],
                &[("cpu", "250m"), ("memory", "500Mi")],
                256,
                524_288_000,
                -997,
            ),
            (
                &[("cpu", "500m"), ("memory", "750Mi")],
                &[("cpu", "250m"), ("memory", "500Mi")],
                256,
                786_432_000,
                970,
            ),
            (&[], &[], 2, 0, 1000),
        ];
        for (limits, requests, shares, memory, score) in cases {
            let pod = pod("p").app_with("c", |c| {
                c.resources = Some(ResourceRequirements {
                    requests: Some(quantities(requests)),
                    limits: Some(quantities(limits)),
                    claims: None,
                });
            });
            let kinds = [
                (
                    NodeCgroupVersion::V1,
                    OomKill::SingleProcess,
                    BTreeMap::new(),
                ),
                (
                    NodeCgroupVersion::V2,
                    OomKill::WholeContainer,
                    BTreeMap::from([whole.clone()]),
                ),
            ];
            for (cgroups, oom, unified) in kinds {
                let node = NodePolicy {
                    memory_capacity: 17_179_860_387,
                    cpu_quota_period: None,
                    enforcement: ResourceEnforcement {
                        cgroups,
                        oom,
                        ..ResourceEnforcement::default()
                    },
                    ..NodePolicy::default()
                };
                let expected = LinuxResources {
                    cpu_shares: shares,
                    memory_limit: memory,
                    oom_score_adj: score,
                    unified,
                    ..LinuxResources::default()
                };
                let made = linux_resources(&pod, &pod.app_containers()[0], &node);
                assert_eq!(made, expected, "{limits:?} {cgroups:?}");
            }
        }
    }

    /// Upstream's TestGenerateLinuxContainerResourcesWithPodLevelResources.
    #[test]
    fn pod_limits_stand_in_and_no_period_means_no_quota() {
        let limits = |amount, memory| {
            Some(ResourceRequirements {
                limits: Some(quantities(&[("cpu", amount), ("memory", memory)])),
                ..ResourceRequirements::default()
            })
        };
        let pod = pod("p")
            .spec_with(|spec| spec.resources = limits("4", "1Gi"))
            .app("shared")
            .app_with("zero", |c| c.resources = limits("0", "0"))
            .app_with("own", |c| c.resources = limits("1", "64Mi"));
        let node = NodePolicy::default();
        let made: Vec<_> = pod
            .app_containers()
            .iter()
            .map(|c| linux_resources(&pod, c, &node))
            .map(|made| (made.cpu_quota, made.memory_limit))
            .collect();
        assert_eq!(
            made,
            [(400_000, 1 << 30), (400_000, 1 << 30), (100_000, 64 << 20)]
        );
        let free = NodePolicy {
            cpu_quota_period: None,
            ..node
        };
        let made = linux_resources(&pod, &pod.app_containers()[0], &free);
        assert_eq!((made.cpu_quota, made.cpu_period), (0, 0));
    }

    /// Upstream's TestGetLimits.
    #[test]
    fn a_limit_that_a_container_lacks_is_the_pods() {
        type Limits = Option<&'static [(&'static str, &'static str)]>;
        const POD: Limits = Some(&[("cpu", "100m"), ("memory", "10Mi")]);
        type Found = (Option<i64>, Option<i64>);
        let cases: [(Limits, Limits, Found); 10] = [
            (Some(&[]), Some(&[]), (None, None)),
            (None, None, (None, None)),
            (POD, None, (Some(100), Some(10))),
            (None, POD, (Some(100), Some(10))),
            (Some(&[]), POD, (Some(100), Some(10))),
            (Some(&[("memory", "5Mi")]), POD, (Some(100), Some(5))),
            (Some(&[("cpu", "50m")]), POD, (Some(50), Some(10))),
            (
                Some(&[("cpu", "50m")]),
                Some(&[("cpu", "100m")]),
                (Some(50), None),
            ),
            (
                Some(&[("memory", "5Mi")]),
                Some(&[("memory", "10Mi")]),
                (None, Some(5)),
            ),
            (
                Some(&[("cpu", "50m"), ("memory", "5Mi")]),
                POD,
                (Some(50), Some(5)),
            ),
        ];
        let resources = |limits: Limits| {
            limits.map(|limits| ResourceRequirements {
                limits: Some(quantities(limits)),
                ..ResourceRequirements::default()
            })
        };
        for (own, pods, expected) in cases {
            let pod = pod("p")
                .spec_with(|spec| spec.resources = resources(pods))
                .app_with("c", |c| c.resources = resources(own));
            let container = &pod.app_containers()[0];
            let found = (
                milli(limit(&pod, container, CPU)),
                bytes(limit(&pod, container, MEMORY)).map(|bytes| bytes >> 20),
            );
            assert_eq!(found, expected, "{own:?} {pods:?}");
        }
    }
}
