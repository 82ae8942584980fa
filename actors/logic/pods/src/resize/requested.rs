//! What is counted of resizes, in the words of upstream's metrics (pkg/kubelet/allocation and pkg/kubelet/status,
//! v1.36).

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use logic_api::pod::requests;
use logic_api::pod::requests::{CPU, MEMORY};
use logic_api::quantity::compare;

use super::allocation::resizable;

/// A container's resource that differs in a new spec.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Requested {
    /// The resource's name: `cpu`, `memory`.
    pub resource: &'static str,
    /// The requirement's name: `limits`, `requests`.
    pub requirement: &'static str,
    /// `add`, `remove`, `increase`, `decrease`
    pub operation: &'static str,
}

/// The resource changes from one spec to the next.
pub fn requested(before: &Pod, after: &Pod) -> Vec<Requested> {
    let mut requested = Vec::new();
    for new in resizable(after) {
        let Some(old) = resizable(before).find(|old| old.name == new.name) else {
            continue;
        };
        for (requirement, list) in LISTS {
            let (was, is) = (
                requests::read(list(old).as_ref()),
                requests::read(list(new).as_ref()),
            );
            for resource in [CPU, MEMORY] {
                let operation = match (was.get(resource), is.get(resource)) {
                    (None, None) => None,
                    (None, Some(_)) => Some("add"),
                    (Some(_), None) => Some("remove"),
                    (Some(was), Some(is)) => match compare(was, is) {
                        std::cmp::Ordering::Less => Some("increase"),
                        std::cmp::Ordering::Equal => None,
                        std::cmp::Ordering::Greater => Some("decrease"),
                    },
                };
                requested.extend(operation.map(|operation| Requested {
                    resource,
                    requirement,
                    operation,
                }));
            }
        }
    }
    requested
}

type RequestList = fn(&Container) -> Option<BTreeMap<String, Quantity>>;

const LISTS: [(&str, RequestList); 2] = [
    ("limits", |container| {
        container.resources.as_ref()?.limits.clone()
    }),
    ("requests", |container| {
        container.resources.as_ref()?.requests.clone()
    }),
];

/// The detail of a refusal for good, by its message.
pub fn infeasible_detail(message: &str) -> &'static str {
    let details = [
        ("In-place resize of static-pods", "static_pod"),
        ("In-place resize of containers with swap", "swap_limitation"),
        (
            "InPlacePodLevelResourcesVerticalScaling",
            "feature_gate_off",
        ),
        (
            "Resize is infeasible for Guaranteed Pods alongside CPU",
            "guaranteed_pod_cpu_manager_static_policy",
        ),
        (
            "Resize is infeasible for Guaranteed Pods alongside Memory",
            "guaranteed_pod_memory_manager_static_policy",
        ),
        (
            "Node didn't have enough capacity",
            "insufficient_node_allocatable",
        ),
    ];
    let found = details.iter().find(|(begin, _)| message.starts_with(begin));
    found.map_or("other", |(_, detail)| detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(resources: serde_json::Value) -> Pod {
        let pod =
            serde_json::json!({"spec": {"containers": [{"name": "c", "resources": resources}]}});
        serde_json::from_value(pod).unwrap()
    }

    /// Upstream's TestRecordContainerResizeOperations (in part).
    #[test]
    fn each_resource_of_a_container_counts_by_which_way_it_goes() {
        let before = pod(serde_json::json!({
            "limits": {"cpu": "1", "memory": "1Gi"},
            "requests": {"cpu": "500m"},
        }));
        let after = pod(serde_json::json!({
            "limits": {"cpu": "1000m", "memory": "512Mi"},
            "requests": {"cpu": "1", "memory": "256Mi"},
        }));
        let request = |resource, requirement, operation| Requested {
            resource,
            requirement,
            operation,
        };
        assert_eq!(
            requested(&before, &after),
            [
                request("memory", "limits", "decrease"),
                request("cpu", "requests", "increase"),
                request("memory", "requests", "add"),
            ]
        );
        let back = requested(&after, &before);
        assert!(
            back.contains(&request("memory", "requests", "remove")),
            "{back:?}"
        );
        assert_eq!(requested(&before, &before), []);
    }

    #[test]
    fn every_refusal_for_good_has_a_detail_of_its_own() {
        let sources = include_str!("allocation.rs");
        let refusals = [
            (
                "In-place resize of static-pods is not supported",
                "static_pod",
            ),
            (
                "In-place resize of containers with swap is not supported.",
                "swap_limitation",
            ),
            (
                "InPlacePodLevelResourcesVerticalScaling is disabled",
                "feature_gate_off",
            ),
        ];
        for (message, detail) in refusals {
            assert!(sources.contains(message), "{message}");
            assert_eq!(infeasible_detail(message), detail);
        }
        let node = "Node didn't have enough capacity: cpu, requested: 2, capacity: 1";
        assert_eq!(infeasible_detail(node), "insufficient_node_allocatable");
        assert_eq!(infeasible_detail("anything else"), "other");
    }
}
