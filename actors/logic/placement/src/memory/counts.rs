//! What is counted of memory that was to be assigned.
//!
//! Mirrors the counters of upstream's Allocate and AllocatePod of memorymanager/policy_static.go at v1.36. A pod as a
//! whole that keeps its memory is not allocated it again, as upstream's is.

use k8s_openapi::api::core::v1::Container;
use logic_api::pod::PodView;
use logic_api::types::ContainerKind;

use super::kept::{Kept, kept};
use super::manager::MemoryManager;
use crate::topology::AllocationSource::{Node, Pod};
use crate::topology::AssignmentType::{NodeExclusive, PodExclusive, PodShared};
use crate::topology::ManagedResource::Memory;
use crate::topology::PlacementCount::{
    Allocated, AllocationFailed, Assigned, PinningFailed, PinningRequested,
};
use crate::topology::{
    AssignedResources, Assignment, AssignmentError, AssignmentRequest, PlacementCounts,
    PodLevelManagers,
};

impl MemoryManager {
    /// What is counted of a container: an allocation of each resource that it is newly given.
    pub(super) fn container_counts(
        &self,
        request: &AssignmentRequest<'_>,
        container: &Container,
        outcome: Result<&AssignedResources, &AssignmentError>,
    ) -> PlacementCounts {
        if !self.manages(request.pod) {
            return PlacementCounts::new();
        }
        let mut counts = vec![PinningRequested(Memory)];
        match (outcome, kept(request.held, request.pod, container)) {
            (Err(_), _) => counts.extend([PinningFailed(Memory), AllocationFailed(Memory, Node)]),
            (Ok(own), Kept::Nothing) if !own.memory.is_empty() => {
                counts.extend(own.memory.iter().map(|_| Allocated(Memory, Node)));
                counts.push(Assigned(Memory, NodeExclusive));
            }
            (Ok(_), Kept::Memory(_) | Kept::Released | Kept::Nothing) => {}
        }
        if self.pod_level() == PodLevelManagers::Off {
            counts.retain(|count| !count.is_gated());
        }
        counts
    }

    /// What is counted of a pod that has its memory as a whole: a request for the pod, each of its init containers, and
    /// each app container that asks for its own.
    pub(super) fn whole_counts(
        &self,
        request: &AssignmentRequest<'_>,
        outcome: Result<&Assignment, &AssignmentError>,
    ) -> PlacementCounts {
        let pod = request.pod;
        let asked = self.asked(pod);
        if !self.manages(pod) || asked.of_pod().is_err() {
            return PlacementCounts::new();
        }
        let mut counts = vec![PinningRequested(Memory)];
        let Ok(assigned) = outcome else {
            counts.extend([PinningFailed(Memory), AllocationFailed(Memory, Pod)]);
            return counts;
        };
        let had_none = match request.held.get(&pod.uid()) {
            Some(held) => held.pod.memory.is_empty(),
            None => true,
        };
        let is_new = had_none && !assigned.pod.memory.is_empty();
        for (kind, container) in pod.all_containers() {
            let own = asked.of_container(container);
            let is_exclusive = own.is_ok_and(|own| !own.is_empty());
            if is_exclusive || kind == ContainerKind::Init {
                counts.push(PinningRequested(Memory));
            }
            if is_new {
                let manner = if is_exclusive {
                    PodExclusive
                } else {
                    PodShared
                };
                counts.extend([Assigned(Memory, manner), Allocated(Memory, Pod)]);
            }
        }
        counts
    }
}
