//! Requests from limits, and the pod's own resources from its containers'.
//!
//! Upstream also rounds every resource to thousandths here. The text is left as it was written, because its readers
//! round in the same way; the UID's dump does the rounding itself. A pod-level request summed up from several
//! containers is written in canonical form; upstream hashes it without its text, so such a pod's UID is not
//! upstream's. Limits of a pod summed up from its containers, a default that newer versions have, are left out.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;

use crate::quantity::{Quantity, compare};

type DefaultResourceList = BTreeMap<String, ApiQuantity>;

pub(super) fn apply(spec: &mut PodSpec) {
    let containers = spec
        .containers
        .iter_mut()
        .chain(spec.init_containers.iter_mut().flatten());
    for resources in containers.filter_map(|container| container.resources.as_mut()) {
        requests_from_limits(resources);
    }
    if let Some(mut of_pod) = spec.resources.take() {
        huge_page_limits(spec, &mut of_pod);
        requests_of_pod(spec, &mut of_pod);
        spec.resources = Some(of_pod);
    }
}

fn requests_from_limits(resources: &mut ResourceRequirements) {
    let Some(limits) = &resources.limits else {
        return;
    };
    let requests = resources.requests.get_or_insert_default();
    for (name, limit) in limits {
        requests
            .entry(name.clone())
            .or_insert_with(|| limit.clone());
    }
}

fn is_huge_pages(name: &str) -> bool {
    name.starts_with("hugepages-")
}

fn is_supported_for_pod(name: &str) -> bool {
    matches!(name, "cpu" | "memory") || is_huge_pages(name)
}

fn is_empty(list: Option<&DefaultResourceList>) -> bool {
    list.is_none_or(BTreeMap::is_empty)
}

/// Defaults the pod-level limits of huge pages to the sums of the containers' limits.
fn huge_page_limits(spec: &PodSpec, of_pod: &mut ResourceRequirements) {
    if is_empty(of_pod.limits.as_ref()) && is_empty(of_pod.requests.as_ref()) {
        return;
    }
    let sums = sum(spec, |resources| resources.limits.as_ref());
    for (name, limit) in sums.into_iter().filter(|(name, _)| is_huge_pages(name)) {
        let requested = of_pod
            .requests
            .as_ref()
            .is_some_and(|requests| requests.contains_key(&name));
        if !requested {
            of_pod
                .limits
                .get_or_insert_default()
                .entry(name)
                .or_insert(limit);
        }
    }
}

/// A pod with limits asks for what its containers ask for, and for its limits where they ask for nothing.
fn requests_of_pod(spec: &PodSpec, of_pod: &mut ResourceRequirements) {
    let Some(limits) = of_pod.limits.clone().filter(|limits| !limits.is_empty()) else {
        return;
    };
    let sums = sum(spec, |resources| resources.requests.as_ref());
    let from_containers = sums
        .into_iter()
        .filter(|(name, _)| matches!(name.as_str(), "cpu" | "memory"));
    let from_limits = limits
        .into_iter()
        .filter(|(name, _)| is_supported_for_pod(name));
    for (name, quantity) in from_containers.chain(from_limits) {
        of_pod
            .requests
            .get_or_insert_default()
            .entry(name)
            .or_insert(quantity);
    }
}

/// What a pod needs at its most demanding moment: all containers together, or an init container on top of the sidecars
/// that started before it.
fn sum(
    spec: &PodSpec,
    part: impl Fn(&ResourceRequirements) -> Option<&DefaultResourceList>,
) -> DefaultResourceList {
    let of = |container: &Container| {
        container
            .resources
            .as_ref()
            .and_then(&part)
            .cloned()
            .unwrap_or_default()
    };
    let mut total = DefaultResourceList::new();
    for container in &spec.containers {
        add(&mut total, &of(container));
    }
    let (mut sidecars, mut peak) = (DefaultResourceList::new(), DefaultResourceList::new());
    for container in spec.init_containers.iter().flatten() {
        let mut needed = of(container);
        if container.restart_policy.as_deref() == Some("Always") {
            add(&mut total, &needed);
            add(&mut sidecars, &needed);
            needed.clone_from(&sidecars);
        } else {
            add(&mut needed, &sidecars);
        }
        raise(&mut peak, &needed);
    }
    raise(&mut total, &peak);
    total
}

fn add(total: &mut DefaultResourceList, more: &DefaultResourceList) {
    for (name, quantity) in more {
        match total.get_mut(name) {
            Some(sum) => {
                if let Some(text) = plus(sum, quantity) {
                    sum.0 = text;
                }
            }
            None => drop(total.insert(name.clone(), quantity.clone())),
        }
    }
}

/// None where one is no quantity: validation says so.
fn plus(left: &ApiQuantity, right: &ApiQuantity) -> Option<String> {
    let (left, right) = (
        Quantity::parse(&left.0).ok()?,
        Quantity::parse(&right.0).ok()?,
    );
    Some(left.plus(&right)?.to_string())
}

fn raise(total: &mut DefaultResourceList, floor: &DefaultResourceList) {
    for (name, quantity) in floor {
        let lower = total.get(name).is_none_or(|held| is_less(held, quantity));
        if lower {
            total.insert(name.clone(), quantity.clone());
        }
    }
}

fn is_less(left: &ApiQuantity, right: &ApiQuantity) -> bool {
    match (Quantity::parse(&left.0), Quantity::parse(&right.0)) {
        (Ok(left), Ok(right)) => compare(&left, &right).is_lt(),
        _ => false,
    }
}
