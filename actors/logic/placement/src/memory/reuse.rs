//! Memory of init containers, which have ended when later containers start.
//!
//! A pod's blocks add up to what it has taken: a container that takes over memory of an init container makes the block of
//! that one smaller. Sidecars keep theirs. Mirrors `initContainersReusableMemory` and
//! `updateInitContainersMemoryBlocks` of upstream's memorymanager/policy_static.go and `AddContainer` of
//! memory_manager.go at v1.36.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod};
use logic_api::pod::{PodView, is_sidecar};

use crate::topology::{Assignment, MemoryBlock, NumaMask};

/// Bytes that the next container may take over, by nodes and resource.
#[derive(Debug, Default)]
pub(super) struct ReusableMemory(BTreeMap<(NumaMask, String), u64>);

impl ReusableMemory {
    /// What init containers of the pod have that end.
    pub(super) fn of(pod: &Pod, assignment: &Assignment) -> Self {
        let mut reusable = BTreeMap::new();
        for init in ending(pod) {
            let own = assignment.containers.get(&init.name);
            for block in own.into_iter().flat_map(|own| &own.memory) {
                let place = (block.nodes, block.resource.clone());
                let bytes: &mut u64 = reusable.entry(place).or_default();
                *bytes = bytes.saturating_add(block.bytes);
            }
        }
        Self(reusable)
    }

    pub(super) fn get(&self, nodes: NumaMask, resource: &str) -> u64 {
        let place = (nodes, resource.to_owned());
        self.0.get(&place).copied().unwrap_or(0)
    }
}

/// Has the container take over memory of the init containers before it, as much as it has itself.
pub(super) fn take_over(pod: &Pod, container: &Container, assigned: &mut Assignment) {
    let own = assigned.containers.get(&container.name);
    let own = own.map_or_else(Vec::new, |own| own.memory.clone());
    for block in own {
        let mut left = block.bytes;
        let before = ending(pod).take_while(|init| init.name != container.name);
        for init in before {
            let held = assigned.containers.get_mut(&init.name);
            for other in held.into_iter().flat_map(|held| &mut held.memory) {
                left -= shrink(other, &block, left);
            }
        }
    }
}

/// Makes a block smaller by at most so many bytes if it is of the same kind, and tells by how many.
fn shrink(block: &mut MemoryBlock, like: &MemoryBlock, most: u64) -> u64 {
    if block.resource != like.resource || block.nodes != like.nodes {
        return 0;
    }
    let taken = most.min(block.bytes);
    block.bytes -= taken;
    taken
}

/// Releases the memory of init containers that have ended when a container of this name starts.
pub fn release_ended(assignment: &mut Assignment, pod: &Pod, started: &str) {
    for init in ending(pod).take_while(|init| init.name != started) {
        if let Some(own) = assignment.containers.get_mut(&init.name) {
            own.memory.clear();
        }
    }
    assignment.containers.retain(|_, own| !own.is_empty());
}

/// Init containers that are no sidecars.
pub(super) fn ending(pod: &Pod) -> impl Iterator<Item = &Container> {
    let init = pod.init_containers().iter();
    init.filter(|init| !is_sidecar(init))
}
