//! The value of a `resourceFieldRef`.
//!
//! Mirrors upstream's pkg/api/v1/resource and `defaultPodLimitsForDownwardAPI` (kubelet_resources.go) at
//! v1.36.

use k8s_openapi::api::core::v1::{Container, Pod, ResourceFieldSelector};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use logic_api::pod::PodView;
use logic_api::pod::requests::{CPU, EPHEMERAL_STORAGE, HUGE_PAGES, MEMORY};
use logic_api::quantity::{bytes, is_zero, milli};
use logic_api::types::ContainerKind;
use thiserror::Error;

use super::{limits, requests};
use crate::node::policy::NodePolicy;

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

/// The amount over its divisor, rounded up. A limit that the container does not have is its pod's, or else the node's
/// allocatable; a named init container has no such default, as upstream has it.
pub fn field(
    pod: &Pod,
    own: &Container,
    selector: &ResourceFieldSelector,
    node: &NodePolicy,
) -> Result<i64, ResourceFieldError> {
    let named = selector.container_name.as_deref();
    let (kind, container) = match named.filter(|name| !name.is_empty()) {
        None => (ContainerKind::App, own),
        Some(name) => by_name(pod, name)?,
    };
    let unknown = || ResourceFieldError::Resource {
        resource: selector.resource.clone(),
    };
    let (list, name) = selector.resource.split_once('.').ok_or_else(unknown)?;
    let read: fn(Option<&Quantity>) -> Option<i64> = match name {
        CPU => milli,
        MEMORY | EPHEMERAL_STORAGE => bytes,
        _ if name.starts_with(HUGE_PAGES) => bytes,
        _ => return Err(unknown()),
    };
    let quantity = match list {
        "requests" => requests(container).and_then(|list| list.get(name)),
        "limits" => {
            let own = limits(container).and_then(|list| list.get(name));
            own.filter(|quantity| !is_zero(quantity))
                .or_else(|| stand_in(pod, node, name).filter(|_| kind == ContainerKind::App))
        }
        _ => return Err(unknown()),
    };
    let one = if name == CPU { 1000 } else { 1 };
    let given = selector
        .divisor
        .as_ref()
        .filter(|divisor| !is_nought(divisor));
    match given.map_or(Some(one), |divisor| read(Some(divisor))) {
        Some(divisor) if divisor > 0 => Ok(divide_up(read(quantity).unwrap_or(0), divisor)),
        _ => Err(ResourceFieldError::Divisor {
            resource: selector.resource.clone(),
        }),
    }
}

fn by_name<'a>(
    pod: &'a Pod,
    name: &str,
) -> Result<(ContainerKind, &'a Container), ResourceFieldError> {
    let found = pod
        .all_containers()
        .find(|(_, container)| container.name == name);
    found.ok_or_else(|| ResourceFieldError::Container {
        container: name.to_owned(),
    })
}

/// Huge pages are never shared out, so nothing stands in for their limit.
fn stand_in<'a>(pod: &'a Pod, node: &'a NodePolicy, name: &str) -> Option<&'a Quantity> {
    let of_node = match name {
        CPU | MEMORY | EPHEMERAL_STORAGE => node.allocatable.get(name)?,
        _ => return None,
    };
    let pod_level = pod
        .spec()
        .and_then(|spec| spec.resources.as_ref()?.limits.as_ref());
    let of_pod = match name {
        CPU | MEMORY => pod_level.and_then(|list| list.get(name)),
        _ => None,
    };
    Some(
        of_pod
            .filter(|quantity| !is_zero(quantity))
            .unwrap_or(of_node),
    )
}

fn is_nought(divisor: &Quantity) -> bool {
    logic_api::quantity::Quantity::parse(&divisor.0).is_ok_and(|divisor| divisor.is_zero())
}

fn divide_up(amount: i64, divisor: i64) -> i64 {
    amount / divisor + i64::from(amount % divisor > 0)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ResourceRequirements;
    use logic_api::testing::*;

    use super::*;

    type FieldResourceList = &'static [(&'static str, &'static str)];

    fn resources(
        requests: FieldResourceList,
        limits: FieldResourceList,
    ) -> Option<ResourceRequirements> {
        Some(ResourceRequirements {
            requests: Some(quantities(requests)),
            limits: Some(quantities(limits)),
            claims: None,
        })
    }

    fn value(pod: &Pod, resource: &str, divisor: &str, named: Option<&str>) -> Result<i64, String> {
        let selector = ResourceFieldSelector {
            container_name: named.map(str::to_owned),
            divisor: (!divisor.is_empty()).then(|| Quantity(divisor.to_owned())),
            resource: resource.to_owned(),
        };
        let node = NodePolicy {
            allocatable: quantities(&[
                ("cpu", "12"),
                ("memory", "15Gi"),
                (EPHEMERAL_STORAGE, "20Gi"),
            ]),
            ..NodePolicy::default()
        };
        let own = pod.app_containers().last().unwrap();
        field(pod, own, &selector, &node).map_err(|error| error.to_string())
    }

    /// Upstream's TestExtractContainerResourceValue, TestExtractResourceValueByContainerName and
    /// TestExtractResourceValueByContainerNameAndNodeAllocatable.
    #[test]
    fn an_amount_is_divided_and_rounded_up() {
        const MIX: FieldResourceList = &[
            ("cpu", "9"),
            ("memory", "1Gi"),
            (EPHEMERAL_STORAGE, "100Mi"),
            ("hugepages-2Mi", "100Mi"),
        ];
        let pod = pod("p").app_with("c", |c| c.resources = resources(MIX, MIX));
        let cases = [
            ("limits.cpu", "", Ok(9)),
            ("limits.cpu", "0", Ok(9)),
            ("limits.cpu", "2", Ok(5)),
            ("requests.cpu", "1m", Ok(9000)),
            ("requests.cpu", "100m", Ok(90)),
            ("limits.memory", "", Ok(1 << 30)),
            ("requests.memory", "1Mi", Ok(1024)),
            ("limits.memory", "1000Mi", Ok(2)),
            ("requests.ephemeral-storage", "", Ok(104_857_600)),
            ("limits.ephemeral-storage", "1Mi", Ok(100)),
            ("limits.hugepages-2Mi", "1Mi", Ok(100)),
            ("requests.hugepages-2Mi", "", Ok(104_857_600)),
            ("limits.hugepages-1Gi", "", Ok(0)),
            (
                "limits.gpu",
                "",
                Err("unsupported container resource : limits.gpu"),
            ),
            ("limits", "", Err("unsupported container resource : limits")),
            (
                "status.cpu",
                "",
                Err("unsupported container resource : status.cpu"),
            ),
            (
                "limits.cpu",
                "-1",
                Err("divisor of limits.cpu is not a positive quantity"),
            ),
            (
                "limits.cpu",
                "x",
                Err("divisor of limits.cpu is not a positive quantity"),
            ),
        ];
        for (resource, divisor, expected) in cases {
            let expected = expected.map_err(str::to_owned);
            assert_eq!(
                value(&pod, resource, divisor, None),
                expected,
                "{resource} / {divisor}"
            );
        }
    }

    /// Upstream's TestPodResourceLimitsDefaulting and TestFindContainerInPod.
    #[test]
    fn a_missing_limit_is_the_pods_or_what_the_node_gives_to_pods() {
        let plain = pod("p")
            .init("i")
            .app_with("sized", |c| {
                c.resources = resources(&[("cpu", "1")], &[("cpu", "3")])
            })
            .app("c");
        let level = plain.clone().spec_with(|spec| {
            spec.resources = resources(
                &[],
                &[("memory", "2Gi"), ("cpu", "0"), ("hugepages-2Mi", "2Mi")],
            );
        });
        let cases = [
            (&plain, "limits.cpu", None, Ok(12)),
            (&plain, "limits.memory", None, Ok(15 << 30)),
            (&plain, "limits.ephemeral-storage", None, Ok(20 << 30)),
            (&plain, "limits.hugepages-2Mi", None, Ok(0)),
            (&plain, "requests.cpu", None, Ok(0)),
            (&plain, "limits.cpu", Some("sized"), Ok(3)),
            (&plain, "limits.memory", Some("sized"), Ok(15 << 30)),
            (&plain, "limits.memory", Some("i"), Ok(0)),
            (
                &plain,
                "limits.cpu",
                Some("nobody"),
                Err("container nobody not found"),
            ),
            (&level, "limits.cpu", None, Ok(12)),
            (&level, "limits.memory", None, Ok(2 << 30)),
            (&level, "limits.hugepages-2Mi", None, Ok(0)),
        ];
        for (pod, resource, named, expected) in cases {
            let expected = expected.map_err(str::to_owned);
            assert_eq!(
                value(pod, resource, "", named),
                expected,
                "{resource} of {named:?}"
            );
        }
    }
}
