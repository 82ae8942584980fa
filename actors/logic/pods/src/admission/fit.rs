//! Whether what the pod asks for is left on the node.
//!
//! Mirrors upstream's `noderesources.Fits` and `removeMissingExtendedResources` at v1.36.

use std::borrow::Cow;

use k8s_openapi::api::core::v1::Pod;
use logic_api::pod::requests::{
    CPU, EPHEMERAL_STORAGE, HUGE_PAGES, MEMORY, OverheadPolicy, PODS, RequestBasis,
    ResourceAmounts, add, pod_requests, whole,
};
use logic_api::types::PodFailure;

use super::{Admission, total_requests};

/// A resource of which too little is left: thousandths of CPU, whole units otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Insufficient {
    /// By its name in the API.
    pub resource: String,
    /// In thousandths for CPU, else in bytes or pieces; as the other figures.
    pub requested: i64,
    /// By the pods that are here.
    pub used: i64,
    /// What the node has for pods.
    pub capacity: i64,
}

impl Insufficient {
    /// How much would have to be freed.
    pub fn missing(&self) -> i64 {
        let left = self.capacity.saturating_sub(self.used);
        self.requested.saturating_sub(left)
    }

    pub(super) fn failure(&self) -> PodFailure {
        let Self {
            resource,
            requested,
            used,
            capacity,
        } = self;
        PodFailure {
            reason: format!("OutOf{resource}"),
            message: format!(
                "Node didn't have enough resource: {resource}, requested: {requested}, used: {used}, \
                 capacity: {capacity}"
            ),
            disruption: None,
            ..PodFailure::default()
        }
    }
}

/// Everything that the pod would lack, in upstream's order: pods, CPU, memory, storage, then by name.
pub(super) fn insufficient(input: &Admission<'_>, others: &[&Pod]) -> Vec<Insufficient> {
    let (pod, allocatable) = (input.pod, &input.node.allocatable);
    let used = match input.used {
        Some(used) => Cow::Borrowed(used),
        None => Cow::Owned(total(others)),
    };
    let mut asked = pod_requests(pod, RequestBasis::Spec, OverheadPolicy::Counted);
    // What no node of this kind has may be a resource of the whole cluster.
    asked.retain(|name, _| !is_extended(name) || allocatable.contains_key(name));
    let row = |name: &str| Insufficient {
        resource: name.to_owned(),
        requested: amount(&asked, name),
        used: amount(&used, name),
        capacity: amount(allocatable, name),
    };
    let pods = Insufficient {
        requested: 1,
        used: i64::try_from(others.len()).unwrap_or(i64::MAX),
        ..row(PODS)
    };
    let known = [CPU, MEMORY, EPHEMERAL_STORAGE];
    let rest = asked.keys().map(String::as_str);
    let rest = rest.filter(|name| !known.contains(name) && is_scalar(name));
    let rows = known.into_iter().chain(rest).map(row);
    let all = std::iter::once(pods).chain(rows);
    all.filter(|row| row.requested > 0 && row.missing() > 0)
        .collect()
}

fn total(pods: &[&Pod]) -> ResourceAmounts {
    let mut total = ResourceAmounts::new();
    for pod in pods {
        add(&mut total, &total_requests(pod));
    }
    total
}

fn amount(list: &ResourceAmounts, name: &str) -> i64 {
    list.get(name).map_or(0, |amount| whole(name, amount))
}

/// An extended resource: its name has a slash and is not of the domain kubernetes.io.
pub(super) fn is_extended(name: &str) -> bool {
    name.contains('/') && !name.contains("kubernetes.io/") && !name.starts_with("requests.")
}

/// A resource that is counted beside CPU, memory and storage.
fn is_scalar(name: &str) -> bool {
    is_extended(name)
        || name.starts_with(HUGE_PAGES)
        || name.contains("kubernetes.io/")
        || name.starts_with("attachable-volumes-")
}
