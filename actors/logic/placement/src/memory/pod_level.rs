//! The memory of a pod with pod-level resources, divided among its containers.
//!
//! Mirrors `AllocatePod` of upstream's memorymanager/policy_static.go at v1.36.

use k8s_openapi::api::core::v1::Container;
use logic_api::pod::{PodView, is_sidecar};
use logic_api::types::ContainerKind;

use super::amount::{MemoryAmounts, add, less};
use super::asked::{AskedMemory, NotAnInteger};
use crate::topology::{AssignedResources, Assignment, MemoryBlock, NumaMask};

/// What the pod as a whole has, and which part of it each container: its own requests, or what is left for all that ask
/// for nothing of their own. To an init container that ends everything is left but what sidecars before it have.
pub(super) fn divide(
    asked: &AskedMemory<'_>,
    total: &MemoryAmounts,
    nodes: NumaMask,
) -> Result<Assignment, NotAnInteger> {
    let (mut sidecars, mut lasting) = (MemoryAmounts::new(), MemoryAmounts::new());
    let mut assignment = Assignment {
        pod: resources(nodes, total),
        ..Assignment::default()
    };
    let mut sharing: Vec<&Container> = Vec::new();
    for (kind, container) in asked.pod.all_containers() {
        let own = asked.of_container(container)?;
        let ends = kind == ContainerKind::Init && !is_sidecar(container);
        match (own.is_empty(), ends) {
            (true, true) => {
                let rest = less(total, &sidecars);
                assignment.assign(&container.name, resources(nodes, &rest));
            }
            (true, false) => sharing.push(container),
            (false, _) => assignment.assign(&container.name, resources(nodes, &own)),
        }
        if !ends {
            add(&mut lasting, &own);
        }
        if !ends && kind == ContainerKind::Init {
            add(&mut sidecars, &own);
        }
    }
    let shared = less(total, &lasting);
    for container in sharing {
        assignment.assign(&container.name, resources(nodes, &shared));
    }
    Ok(assignment)
}

fn resources(nodes: NumaMask, amounts: &MemoryAmounts) -> AssignedResources {
    let mut memory = blocks(nodes, amounts);
    memory.retain(|block| block.bytes > 0);
    AssignedResources {
        memory,
        ..AssignedResources::default()
    }
}

/// A block of each resource, in the order of their names.
pub(super) fn blocks(nodes: NumaMask, amounts: &MemoryAmounts) -> Vec<MemoryBlock> {
    let amounts = amounts.iter();
    let block = |(resource, bytes): (&String, &u64)| MemoryBlock {
        resource: resource.clone(),
        nodes,
        bytes: *bytes,
    };
    amounts.map(block).collect()
}
