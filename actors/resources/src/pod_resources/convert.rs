//! What pods hold, as the pod resources API tells it.
//!
//! Upstream: pkg/kubelet/apis/podresources/server_v1.go, the `GetCPUs` and `GetMemory` of container_manager_linux.go
//! (1.36).

use k8s_openapi::api::core::v1::Pod;
use logic_api::pod::{PodView, is_sidecar};
use logic_placement::topology::{AssignedResources, Assignment, MemoryBlock, NumaMask};
use proto::pod_resources as wire;

/// The containers that hold resources for as long as the pod lives, with these: sidecars first, then app containers.
pub(super) fn resources(pod: &Pod, assigned: Option<&Assignment>) -> wire::PodResources {
    let init = pod.init_containers().iter();
    let sidecars = init.filter(|container| is_sidecar(container));
    let of_container = |name: &str| assigned.and_then(|assigned| assigned.containers.get(name));
    let whole = assigned.map(|assigned| &assigned.pod);
    wire::PodResources {
        name: pod.name().to_owned(),
        namespace: pod.namespace().to_owned(),
        containers: sidecars
            .chain(pod.app_containers())
            .map(|container| container_resources(&container.name, of_container(&container.name)))
            .collect(),
        cpu_ids: whole
            .map(|own| cpus(own.cpus.iter().copied()))
            .unwrap_or_default(),
        memory: whole.map(|own| memory(&own.memory)).unwrap_or_default(),
    }
}

fn container_resources(name: &str, own: Option<&AssignedResources>) -> wire::ContainerResources {
    wire::ContainerResources {
        name: name.to_owned(),
        cpu_ids: own
            .map(|own| cpus(own.cpus.iter().copied()))
            .unwrap_or_default(),
        memory: own.map(|own| memory(&own.memory)).unwrap_or_default(),
        ..Default::default()
    }
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
    let id = |node: logic_placement::topology::NumaNodeId| wire::NumaNode {
        id: node.get().into(),
    };
    wire::TopologyInfo {
        nodes: nodes.nodes().map(id).collect(),
    }
}
