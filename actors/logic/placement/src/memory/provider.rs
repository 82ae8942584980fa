//! The memory manager as a hint provider.
//!
//! Mirrors `GetTopologyHints`, `GetPodTopologyHints`, `Allocate` and `AllocatePod` of upstream's
//! memorymanager/policy_static.go at v1.36.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, Pod};
use logic_api::pod::PodView;
use logic_api::pod::requests::has_pod_level;
use logic_resources::qos::{Qos, pod_qos};

use super::amount::MemoryAmounts;
use super::asked::{AskedMemory, NotAnInteger};
use super::hints::MemorySearch;
use super::kept::{Kept, kept, kept_hints, memory_of};
use super::manager::{MemoryManager, MemoryPolicy};
use super::pod_level::{blocks, divide};
use super::reuse::{self, ReusableMemory};
use crate::topology::{
    AssignedResources, Assignment, AssignmentError, AssignmentRequest, HintProvider,
    PlacementCounts, PodLevelManagers, ProviderHints, ResourceHints, TopologyHint,
};

impl MemoryManager {
    /// Whether the pod's containers get memory of their own.
    pub(super) fn manages(&self, pod: &Pod) -> bool {
        self.policy() == MemoryPolicy::Static
            && pod_qos(pod) == Qos::Guaranteed
            && (self.pod_level() == PodLevelManagers::On || !has_pod_level(pod))
    }

    pub(super) fn asked<'a>(&self, pod: &'a Pod) -> AskedMemory<'a> {
        AskedMemory {
            pod,
            pod_level: self.pod_level(),
        }
    }

    /// Whatever the pod has: what this request has assigned, and what it held before of all else.
    fn own(request: &AssignmentRequest<'_>) -> Assignment {
        let held = request.held.get(&request.pod.uid());
        let mut own = held.map_or_else(Assignment::default, |held| (**held).clone());
        let assigned = request.assigned.containers.clone();
        own.containers.extend(assigned);
        own
    }

    /// Looks for nodes that have what is asked for.
    fn search<T>(
        &self,
        request: &AssignmentRequest<'_>,
        asked: &MemoryAmounts,
        find: impl FnOnce(&MemorySearch<'_>) -> T,
    ) -> T {
        let own = Self::own(request);
        let uid = request.pod.uid();
        let others = request.held.iter().filter(|(pod, _)| **pod != uid);
        let others = others.map(|(_, held)| Arc::as_ref(held));
        find(&MemorySearch {
            state: &self.state(others.chain([&own])),
            reusable: &ReusableMemory::of(request.pod, &own),
            asked,
        })
    }

    fn possible(&self, request: &AssignmentRequest<'_>, asked: &MemoryAmounts) -> ProviderHints {
        let hints = self.search(request, asked, |search| search.hints());
        if hints.is_empty() {
            return ProviderHints::new();
        }
        let all = |resource: &String| (resource.clone(), ResourceHints::Possible(hints.clone()));
        asked.keys().map(all).collect()
    }
}

impl HintProvider for MemoryManager {
    fn hints(&self, request: &AssignmentRequest<'_>, container: &Container) -> ProviderHints {
        if !self.manages(request.pod) {
            return ProviderHints::new();
        }
        match self.asked(request.pod).of_container(container) {
            Err(NotAnInteger) => ProviderHints::new(),
            Ok(asked) => match kept(request.held, request.pod, container) {
                Kept::Memory(held) => kept_hints(held, &asked),
                Kept::Released => ProviderHints::new(),
                Kept::Nothing => self.possible(request, &asked),
            },
        }
    }

    fn pod_hints(&self, request: &AssignmentRequest<'_>) -> ProviderHints {
        let pod = request.pod;
        if !self.manages(pod) {
            return ProviderHints::new();
        }
        let Ok(asked) = self.asked(pod).of_pod() else {
            return ProviderHints::new();
        };
        if self.asked(pod).leaves_a_shared_pool(&asked).is_err() {
            // No place at all: the topology manager refuses the pod.
            let nowhere = |resource| (resource, ResourceHints::Possible(Vec::new()));
            return asked.into_keys().map(nowhere).collect();
        }
        let mut containers = pod.all_containers();
        let held = containers.find_map(|(_, own)| match kept(request.held, pod, own) {
            Kept::Memory(held) => Some(held),
            Kept::Released | Kept::Nothing => None,
        });
        match held {
            Some(held) => kept_hints(held, &asked),
            None => self.possible(request, &asked),
        }
    }

    fn assign(
        &self,
        request: &AssignmentRequest<'_>,
        container: &Container,
        hint: TopologyHint,
    ) -> Result<AssignedResources, AssignmentError> {
        if !self.manages(request.pod) {
            return Ok(AssignedResources::default());
        }
        let memory = match kept(request.held, request.pod, container) {
            Kept::Memory(held) => held.to_vec(),
            Kept::Released => Vec::new(),
            Kept::Nothing => {
                let asked = self.asked(request.pod).of_container(container);
                let asked = asked.map_err(unexpected)?;
                // Upstream refuses a container that shares its pod's memory here, for want of a hint.
                if asked.is_empty() {
                    return Ok(AssignedResources::default());
                }
                let nodes = self.search(request, &asked, |search| search.nodes(hint))?;
                blocks(nodes, &asked)
            }
        };
        Ok(AssignedResources {
            memory,
            ..AssignedResources::default()
        })
    }

    fn assign_pod(
        &self,
        request: &AssignmentRequest<'_>,
        hint: TopologyHint,
    ) -> Result<Assignment, AssignmentError> {
        let pod = request.pod;
        if !self.manages(pod) {
            return Ok(Assignment::default());
        }
        let held = request.held.get(&pod.uid());
        if let Some(held) = held.filter(|held| !held.pod.memory.is_empty()) {
            return Ok(memory_of(held));
        }
        let asked = self.asked(pod);
        let Ok(total) = asked.of_pod() else {
            return Ok(Assignment::default());
        };
        let shared = asked.leaves_a_shared_pool(&total);
        shared.map_err(|error| AssignmentError::Refused {
            reason: "EmptyPodSharedPoolError",
            message: error.to_string(),
        })?;
        let nodes = self.search(request, &total, |search| search.nodes(hint))?;
        divide(&asked, &total, nodes).map_err(unexpected)
    }

    fn take_over(
        &self,
        request: &AssignmentRequest<'_>,
        container: &Container,
        assigned: &mut Assignment,
    ) {
        if let Some(held) = request.held.get(&request.pod.uid()) {
            // A pod that has memory as a whole keeps that, even where it is asked for container by container by now.
            assigned.pod.memory.clone_from(&held.pod.memory);
        }
        // A container that had its memory before has taken over what it could then.
        if let Kept::Nothing = kept(request.held, request.pod, container) {
            reuse::take_over(request.pod, container, assigned);
        }
    }

    fn counts(
        &self,
        request: &AssignmentRequest<'_>,
        container: &Container,
        outcome: Result<&AssignedResources, &AssignmentError>,
    ) -> PlacementCounts {
        self.container_counts(request, container, outcome)
    }

    fn pod_counts(
        &self,
        request: &AssignmentRequest<'_>,
        outcome: Result<&Assignment, &AssignmentError>,
    ) -> PlacementCounts {
        self.whole_counts(request, outcome)
    }
}

fn unexpected(error: NotAnInteger) -> AssignmentError {
    AssignmentError::Unexpected(error.to_string())
}
