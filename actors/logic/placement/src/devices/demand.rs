//! How many devices of which resources a container or a pod asks for, and which devices are spoken for.
//!
//! Mirrors upstream's `getContainerDeviceRequest`, `getPodDeviceRequest` (devicemanager/topology_hints.go) and the
//! reuse of init containers' devices (manager.go, pod_devices.go) at v1.36.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, Pod};
use logic_api::pod::requests::{self, OverheadPolicy, RequestBasis, ResourceAmounts};
use logic_api::pod::{PodView, is_sidecar};
use logic_api::types::ContainerKind;

use super::provider::DraResources;
use crate::topology::{Assignment, AssignmentRequest};

/// Numbers of devices by resource name.
pub(super) type DeviceCounts = BTreeMap<String, usize>;

/// What a container asks for: limits and requests of devices are the same. Extended resources that claims stand for
/// are no devices of plugins.
pub(super) fn of_container(
    request: &AssignmentRequest<'_>,
    container: &Container,
    dra: DraResources,
) -> DeviceCounts {
    let limits = container.resources.as_ref();
    let limits = limits.and_then(|resources| resources.limits.as_ref());
    let mut counts = devices_of(request, requests::read(limits));
    if dra == DraResources::On {
        counts.retain(|resource, _| !is_claimed(request.pod, &container.name, resource));
    }
    counts
}

/// What all containers ask for together.
pub(super) fn of_pod(request: &AssignmentRequest<'_>) -> DeviceCounts {
    let limits = requests::pod_limits(request.pod, RequestBasis::Spec, OverheadPolicy::Left);
    devices_of(request, limits)
}

/// Those of the amounts that plugins provide, or have provided to a pod.
fn devices_of(request: &AssignmentRequest<'_>, amounts: ResourceAmounts) -> DeviceCounts {
    let is_device = |resource: &str| {
        let known = request.devices.resource(resource).is_some();
        known || assignments(request).any(|assigned| holds(assigned, resource))
    };
    let amounts = amounts.into_iter();
    let devices = amounts.filter(|(resource, _)| is_device(resource));
    let whole = |amount: i64| usize::try_from(amount).unwrap_or_default();
    devices
        .map(|(resource, amount)| (resource, whole(amount.value())))
        .collect()
}

fn holds(assigned: &Assignment, resource: &str) -> bool {
    let mut containers = assigned.containers.values();
    containers.any(|container| container.devices.contains_key(resource))
}

fn is_claimed(pod: &Pod, container: &str, resource: &str) -> bool {
    let status = pod.status.as_ref();
    let claim = status.and_then(|status| status.extended_resource_claim_status.as_ref());
    claim.is_some_and(|claim| {
        let mut mappings = claim.request_mappings.iter();
        mappings.any(|it| it.container_name == container && it.resource_name == resource)
    })
}

/// What pods hold, and what this request has assigned.
fn assignments<'a>(request: &AssignmentRequest<'a>) -> impl Iterator<Item = &'a Assignment> {
    let held = request.held.values().map(Arc::as_ref);
    held.chain([request.assigned])
}

/// The ids of the resource's devices that a container of any pod has.
pub(super) fn in_use(request: &AssignmentRequest<'_>, resource: &str) -> BTreeSet<String> {
    let containers = assignments(request).flat_map(|assigned| assigned.containers.values());
    let devices = containers.filter_map(|container| container.devices.get(resource));
    devices.flatten().cloned().collect()
}

/// The ids of the resource's devices that a container holds already.
pub(super) fn held_by_container<'a>(
    request: &AssignmentRequest<'a>,
    container: &str,
    resource: &str,
) -> Option<&'a BTreeSet<String>> {
    let held = request.held.get(&request.pod.uid())?;
    held.containers.get(container)?.devices.get(resource)
}

/// The ids of the resource's devices that the pod holds already.
pub(super) fn held_by_pod(request: &AssignmentRequest<'_>, resource: &str) -> BTreeSet<String> {
    let held = request.held.get(&request.pod.uid());
    let containers = held.into_iter().flat_map(|held| held.containers.values());
    let devices = containers.filter_map(|container| container.devices.get(resource));
    devices.flatten().cloned().collect()
}

/// The ids of the resource's devices that init containers have had before this container and that no container keeps
/// for longer: a sidecar or an app container keeps its own.
pub(super) fn reusable(
    request: &AssignmentRequest<'_>,
    container: &str,
    resource: &str,
) -> BTreeSet<String> {
    let before = request.pod.all_containers();
    let before = before.take_while(|(_, other)| other.name != container);
    let mut reusable = BTreeSet::new();
    for (kind, other) in before {
        let assigned = request.assigned.containers.get(&other.name);
        let Some(devices) = assigned.and_then(|assigned| assigned.devices.get(resource)) else {
            continue;
        };
        match kind == ContainerKind::Init && !is_sidecar(other) {
            true => reusable.extend(devices.iter().cloned()),
            false => reusable.retain(|id| !devices.contains(id)),
        }
    }
    reusable
}
