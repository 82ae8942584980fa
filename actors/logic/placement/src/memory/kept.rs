//! What a pod has of an earlier admission, and keeps.

use k8s_openapi::api::core::v1::{Container, Pod};
use logic_api::pod::PodView;

use super::amount::MemoryAmounts;
use super::reuse;
use crate::topology::{
    AssignedResources, Assignment, HeldAssignments, MemoryBlock, ProviderHints, ResourceHints,
    TopologyHint,
};

/// What a container has of an earlier admission.
pub(super) enum Kept<'a> {
    Memory(&'a [MemoryBlock]),
    /// It was an init container that has ended.
    Released,
    Nothing,
}

pub(super) fn kept<'a>(held: &'a HeldAssignments, pod: &Pod, container: &Container) -> Kept<'a> {
    let Some(held) = held.get(&pod.uid()) else {
        return Kept::Nothing;
    };
    let own = held.containers.get(&container.name);
    match own.filter(|own| !own.memory.is_empty()) {
        Some(own) => Kept::Memory(&own.memory),
        None if memory_of(held).is_empty() => Kept::Nothing,
        None if reuse::ending(pod).any(|init| init.name == container.name) => Kept::Released,
        None => Kept::Nothing,
    }
}

/// The nodes that the memory is on already, if it is what is asked for; no preference otherwise.
pub(super) fn kept_hints(held: &[MemoryBlock], asked: &MemoryAmounts) -> ProviderHints {
    let same = |block: &MemoryBlock| asked.get(&block.resource) == Some(&block.bytes);
    if held.len() != asked.len() || !held.iter().all(same) {
        return ProviderHints::new();
    }
    let hint = |block: &MemoryBlock| {
        let hint = TopologyHint {
            nodes: Some(block.nodes),
            preferred: true,
        };
        (block.resource.clone(), ResourceHints::Possible(vec![hint]))
    };
    held.iter().map(hint).collect()
}

/// The part of an assignment that is memory.
pub(super) fn memory_of(assignment: &Assignment) -> Assignment {
    let memory = |own: &AssignedResources| AssignedResources {
        memory: own.memory.clone(),
        ..AssignedResources::default()
    };
    let mut part = Assignment {
        pod: memory(&assignment.pod),
        ..Assignment::default()
    };
    for (container, own) in &assignment.containers {
        part.assign(container, memory(own));
    }
    part
}
