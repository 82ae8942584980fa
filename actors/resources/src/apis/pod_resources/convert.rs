//! What pods hold, as the pod resources API tells it.
//!
//! Upstream: pkg/kubelet/apis/podresources/server_v1.go, the `GetCPUs` and `GetMemory` of container_manager_linux.go
//! (1.36).

use k8s_openapi::api::core::v1::{Container, Pod};
use logic_api::pod::{PodView, is_sidecar};
use logic_placement::NodePlacement;
use logic_placement::claims::ClaimedDevice;
use logic_placement::claims::health::KnownClaims;
use logic_placement::devices::DeviceInventory;
use logic_placement::topology::{
    AssignedResources, HeldAssignments, MemoryBlock, NumaMask, NumaNodeId,
};
use proto::pod_resources as wire;

/// The containers that hold resources for as long as the pod lives, with these: sidecars first, then app containers.
pub(super) fn resources(
    pod: &Pod,
    (placement, held): (&NodePlacement, &HeldAssignments),
    (inventory, claims): (&DeviceInventory, &KnownClaims),
) -> wire::PodResources {
    let assigned = held.get(&pod.uid());
    let init = pod.init_containers().iter();
    let sidecars = init.filter(|container| is_sidecar(container));
    let of_container = |name: &str| assigned.and_then(|assigned| assigned.containers.get(name));
    wire::PodResources {
        name: pod.name().to_owned(),
        namespace: pod.namespace().to_owned(),
        containers: sidecars
            .chain(pod.app_containers())
            .map(|container| {
                let own = of_container(&container.name);
                let own_cpus = placement.assigned_cpus(held, pod, &container.name);
                wire::ContainerResources {
                    cpu_ids: cpus(own_cpus.iter()),
                    dynamic_resources: dynamic_resources(pod, container, claims),
                    ..container_resources(&container.name, own, inventory)
                }
            })
            .collect(),
    }
}

fn container_resources(
    name: &str,
    own: Option<&AssignedResources>,
    inventory: &DeviceInventory,
) -> wire::ContainerResources {
    let devices = own.into_iter().flat_map(|own| &own.devices);
    wire::ContainerResources {
        name: name.to_owned(),
        devices: devices
            .flat_map(|(resource, ids)| container_devices(resource, ids.iter(), inventory))
            .collect(),
        memory: own.map(|own| memory(&own.memory)).unwrap_or_default(),
        ..Default::default()
    }
}

/// The container's claims; none, as upstream, while one of them is not prepared.
fn dynamic_resources(
    pod: &Pod,
    container: &Container,
    claims: &KnownClaims,
) -> Vec<wire::DynamicResource> {
    let resources = claims.dynamic_resources(pod, container);
    let resources = resources.inspect_err(|error| {
        let (pod, container) = (pod.name(), &container.name);
        tracing::debug!("claims of container {container} of pod {pod} are not shown: {error}");
    });
    let resources = resources.unwrap_or_default().into_iter();
    resources
        .map(|resource| wire::DynamicResource {
            claim_name: resource.claim.name,
            claim_namespace: resource.claim.namespace,
            claim_resources: resource.devices.into_iter().map(claimed_device).collect(),
        })
        .collect()
}

fn claimed_device(claimed: ClaimedDevice) -> wire::ClaimResource {
    let device = claimed.device;
    let names = device.cdi_ids.into_iter();
    wire::ClaimResource {
        cdi_devices: names.map(|name| wire::CdiDevice { name }).collect(),
        driver_name: claimed.driver.to_string(),
        pool_name: device.pool,
        device_name: device.device,
        share_id: device.share,
    }
}

/// One message for each NUMA node of each device, as upstream.
fn container_devices<'a>(
    resource: &str,
    ids: impl Iterator<Item = &'a String>,
    inventory: &DeviceInventory,
) -> Vec<wire::ContainerDevices> {
    let known = inventory.resource(resource);
    let nodes = |id: &str| known.and_then(|known| Some(known.devices().get(id)?.nodes));
    let message = |id: &String, node: Option<NumaNodeId>| wire::ContainerDevices {
        resource_name: resource.to_owned(),
        device_ids: vec![id.clone()],
        topology: node.map(|node| topology(NumaMask::from_iter([node]))),
    };
    let mut messages = Vec::new();
    for id in ids {
        match nodes(id).filter(|nodes| !nodes.is_empty()) {
            Some(nodes) => messages.extend(nodes.nodes().map(|node| message(id, Some(node)))),
            None => messages.push(message(id, None)),
        }
    }
    messages
}

/// The healthy devices of the node, one message each.
pub(super) fn allocatable_devices(inventory: &DeviceInventory) -> Vec<wire::ContainerDevices> {
    let resources = inventory.resources();
    let devices = resources.flat_map(|(name, resource)| {
        let healthy: Vec<String> = resource.healthy().map(|(id, _)| id.to_owned()).collect();
        container_devices(name, healthy.iter(), inventory)
    });
    devices.collect()
}

pub(super) fn cpus(cpus: impl Iterator<Item = u32>) -> Vec<i64> {
    cpus.map(i64::from).collect()
}

pub(super) fn memory(blocks: &[MemoryBlock]) -> Vec<wire::ContainerMemory> {
    let of_block = |block: &MemoryBlock| wire::ContainerMemory {
        memory_type: block.resource.clone(),
        size: block.bytes,
        topology: Some(topology(block.nodes)),
    };
    blocks.iter().map(of_block).collect()
}

fn topology(nodes: NumaMask) -> wire::TopologyInfo {
    let id = |node: NumaNodeId| wire::NumaNode {
        id: node.get().into(),
    };
    wire::TopologyInfo {
        nodes: nodes.nodes().map(id).collect(),
    }
}
