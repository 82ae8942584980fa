//! CPU and memory of containers: from quantities to what a runtime enforces.
//!
//! Mirrors upstream's kuberuntime_container_linux.go, cm/helpers_linux.go and resource field
//! references at v1.36.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Pod, ResourceFieldSelector, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::pod::PodView;
use crate::qos::oom_score_adj;
use crate::quantity;
use crate::sandbox::NodePolicy;

pub const CPU: &str = "cpu";
pub const MEMORY: &str = "memory";

/// CRI's `LinuxContainerResources`, as far as it is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinuxResources {
    pub cpu_shares: i64,
    /// Microseconds; nought where there is no limit.
    pub cpu_quota: i64,
    pub cpu_period: i64,
    /// Bytes; nought where there is no limit.
    pub memory_limit: i64,
    pub oom_score_adj: i64,
}

pub fn linux_resources(pod: &Pod, container: &Container, node: &NodePolicy) -> LinuxResources {
    let cpu_limit = milli(limit(pod, container, CPU)).unwrap_or(0);
    let cpu_request = requests(container).and_then(|list| list.get(CPU));
    let shares_of = match cpu_request {
        Some(request) => milli(Some(request)).unwrap_or(0),
        None => cpu_limit,
    };
    let period = node.cpu_quota_period.map(micros);
    LinuxResources {
        cpu_shares: cpu_shares(shares_of),
        cpu_quota: period.map_or(0, |period| cpu_quota(cpu_limit, period)),
        cpu_period: period.unwrap_or(0),
        memory_limit: bytes(limit(pod, container, MEMORY)).unwrap_or(0),
        oom_score_adj: oom_score_adj(pod, container, node.memory_capacity),
    }
}

/// The kernel's relative weight: 1024 a core, within what the kernel takes.
pub fn cpu_shares(milli: i64) -> i64 {
    const LEAST: i64 = 2;
    const MOST: i64 = 262_144;
    (milli.saturating_mul(1024) / 1000).clamp(LEAST, MOST)
}

/// Microseconds of CPU a period; nought means no limit, and a limit is at least one millisecond.
pub fn cpu_quota(milli: i64, period: i64) -> i64 {
    const LEAST: i64 = 1000;
    match milli {
        0 => 0,
        _ => (milli.saturating_mul(period) / 1000).max(LEAST),
    }
}

/// Thousandths; none where the quantity is absent or is none.
pub fn milli(quantity: Option<&Quantity>) -> Option<i64> {
    Some(quantity::Quantity::parse(&quantity?.0).ok()?.milli_value())
}

/// Whole units; none where the quantity is absent or is none.
pub fn bytes(quantity: Option<&Quantity>) -> Option<i64> {
    Some(quantity::Quantity::parse(&quantity?.0).ok()?.value())
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

/// The container's own limit, or else the pod's.
fn limit<'a>(pod: &'a Pod, container: &'a Container, name: &str) -> Option<&'a Quantity> {
    let find = |resources: Option<&'a ResourceRequirements>| resources?.limits.as_ref()?.get(name);
    let own = find(container.resources.as_ref());
    own.or_else(|| find(pod.spec()?.resources.as_ref()))
}

/// Bytes of memory that each app container asks for; nought where it asks for none.
pub fn memory_requests(pod: &Pod) -> BTreeMap<String, u64> {
    let asked = |container: &Container| {
        let quantity = requests(container).and_then(|list| list.get(MEMORY));
        let parsed =
            quantity.and_then(|quantity| crate::quantity::Quantity::parse(&quantity.0).ok());
        let bytes = parsed.map_or(0, |quantity| quantity.value());
        (container.name.clone(), u64::try_from(bytes).unwrap_or(0))
    };
    pod.app_containers().iter().map(asked).collect()
}

fn requests(container: &Container) -> Option<&BTreeMap<String, Quantity>> {
    container.resources.as_ref()?.requests.as_ref()
}

/// Why a `resourceFieldRef` has no value.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum ResourceFieldError {
    #[error("unsupported container resource : {resource}")]
    Resource { resource: String },
    #[error("container {container} not found")]
    Container { container: String },
    #[error("divisor of {resource} is not a positive quantity")]
    Divisor { resource: String },
}

/// The value of a `resourceFieldRef`: the amount over its divisor, rounded up.
pub fn field(
    pod: &Pod,
    own: &Container,
    selector: &ResourceFieldSelector,
    node: &NodePolicy,
) -> Result<i64, ResourceFieldError> {
    let named = selector
        .container_name
        .as_deref()
        .filter(|name| !name.is_empty());
    let container = match named {
        None => own,
        Some(name) => match pod.container(name) {
            Some((_, container)) => container,
            None => {
                return Err(ResourceFieldError::Container {
                    container: name.to_owned(),
                });
            }
        },
    };
    let unknown = || ResourceFieldError::Resource {
        resource: selector.resource.clone(),
    };
    let (list, name) = selector.resource.split_once('.').ok_or_else(unknown)?;
    let resources = container.resources.as_ref();
    let quantity = match list {
        "limits" => resources.and_then(|r| r.limits.as_ref()?.get(name)),
        "requests" => resources.and_then(|r| r.requests.as_ref()?.get(name)),
        _ => return Err(unknown()),
    };
    let read: fn(Option<&Quantity>) -> Option<i64> = match name {
        CPU => milli,
        MEMORY | "ephemeral-storage" => bytes,
        _ if name.starts_with("hugepages-") => bytes,
        _ => return Err(unknown()),
    };
    // A container without a limit may use the whole node.
    let whole_node = match (list, name) {
        ("limits", MEMORY) => i64::try_from(node.memory_capacity).unwrap_or(i64::MAX),
        _ => 0,
    };
    let amount = read(quantity)
        .filter(|amount| *amount != 0)
        .unwrap_or(whole_node);
    let one = if name == CPU { 1000 } else { 1 };
    let given = selector.divisor.as_ref().filter(|d| d.0 != "0");
    let divisor = given.map_or(Some(one), |d| read(Some(d)));
    match divisor {
        Some(divisor) if divisor > 0 => Ok(divide_up(amount, divisor)),
        _ => Err(ResourceFieldError::Divisor {
            resource: selector.resource.clone(),
        }),
    }
}

fn divide_up(amount: i64, divisor: i64) -> i64 {
    amount / divisor + i64::from(amount % divisor > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::*;

    type List = &'static [(&'static str, &'static str)];

    /// Upstream's TestCalculateLinuxResources, TestMilliCPUToShares and TestMilliCPUToQuota.
    #[test]
    fn requests_and_limits_become_what_the_kernel_takes() {
        let cases: [(List, List, i64, i64, i64); 9] = [
            (&[], &[], 2, 0, 0),
            (
                &[("cpu", "1")],
                &[("cpu", "2"), ("memory", "128Mi")],
                1024,
                200_000,
                134_217_728,
            ),
            (&[], &[("cpu", "2")], 2048, 200_000, 0),
            (&[("cpu", "0")], &[("cpu", "2")], 2, 200_000, 0),
            (&[("cpu", "1m")], &[("cpu", "5m")], 2, 1000, 0),
            (&[("cpu", "100m")], &[("cpu", "100m")], 102, 10_000, 0),
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

    #[test]
    fn pod_limits_stand_in_and_no_period_means_no_quota() {
        let limits = |amount| {
            Some(ResourceRequirements {
                limits: Some(quantities(&[("cpu", amount)])),
                ..ResourceRequirements::default()
            })
        };
        let pod = pod("p")
            .spec_with(|spec| spec.resources = limits("4"))
            .app("shared")
            .app_with("own", |c| c.resources = limits("1"));
        let node = NodePolicy::default();
        let quotas: Vec<_> = pod
            .app_containers()
            .iter()
            .map(|c| linux_resources(&pod, c, &node).cpu_quota)
            .collect();
        assert_eq!(quotas, [400_000, 100_000]);
        let free = NodePolicy {
            cpu_quota_period: None,
            ..node
        };
        let made = linux_resources(&pod, &pod.app_containers()[0], &free);
        assert_eq!((made.cpu_quota, made.cpu_period), (0, 0));
    }
}
