//! The memory manager: hints and assignments by its policy.
//!
//! Mirrors upstream's memorymanager/memory_manager.go, policy_none.go and policy_static.go at v1.36.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, Pod};
use logic_api::pod::PodView;
use logic_api::pod::requests::{MEMORY, ResourceAmounts, has_pod_level};
use logic_resources::qos::{Qos, pod_qos};
use thiserror::Error;

use super::amount::MemoryAmounts;
use super::asked::{AskedMemory, EmptySharedPool, NotAnInteger};
use super::hints::MemorySearch;
use super::machine::MachineMemory;
use super::numa_state::{MachineState, NodeState};
use super::pod_level::{blocks, divide};
use super::reserved::{MemoryReservation, ReservedMemoryError, reserved_memory};
use super::reuse::{self, ReusableMemory};
use crate::topology::{
    AssignedResources, Assignment, AssignmentError, AssignmentRequest, HeldAssignments,
    HintProvider, MemoryBlock, NumaMask, NumaNodeId, PodLevelManagers, ProviderHints,
    ResourceHints, TopologyHint,
};

/// Sets of nodes are tried one by one, and of n nodes there are 2^n.
const MAX_NODES: usize = 16;

/// The policy that only Windows has.
const BEST_EFFORT: &str = "BestEffort";

/// `memoryManagerPolicy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryPolicy {
    /// Memory is not assigned.
    None,
    /// Guaranteed pods have memory to themselves.
    Static,
}

/// The configuration's section of the memory manager.
#[derive(Clone, Copy, Debug)]
pub struct MemorySettings<'a> {
    /// The policy's name.
    pub policy: &'a str,
    /// What the node as a whole reserves of each resource: `kubeReserved`, `systemReserved` and the threshold of hard
    /// eviction together.
    pub of_node: &'a ResourceAmounts,
    /// `reservedMemory`.
    pub reservations: &'a [MemoryReservation],
    /// The feature gate `PodLevelResourceManagers`.
    pub pod_level: PodLevelManagers,
}

/// Why there can be no such memory manager on this machine.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum MemoryManagerError {
    #[error("unknown policy: {0:?}")]
    UnknownPolicy(String),
    #[error("policy {0:?} is not available for platform \"linux\"")]
    NotOnLinux(&'static str),
    #[error(transparent)]
    Reserved(#[from] ReservedMemoryError),
    #[error("[memorymanager] you should specify the system reserved memory")]
    NothingReserved,
    #[error("unsupported on machines with more than {MAX_NODES} NUMA Nodes")]
    TooManyNodes,
}

/// Assigns memory and huge pages.
#[derive(Debug)]
pub struct MemoryManager {
    policy: MemoryPolicy,
    pod_level: PodLevelManagers,
    /// The machine when no pod has anything; without nodes where there is no policy.
    unassigned: MachineState,
}

/// What an assignment of memory can fail on.
#[derive(Debug, Error)]
enum DivisionError {
    #[error(transparent)]
    Amount(#[from] NotAnInteger),
    #[error(transparent)]
    SharedPool(#[from] EmptySharedPool),
}

impl MemoryPolicy {
    /// The policy of this name in the configuration.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::None, Self::Static]
            .into_iter()
            .find(|policy| policy.as_str() == name)
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "None",
            Self::Static => "Static",
        }
    }
}

impl MemoryManager {
    /// # Errors
    ///
    /// The policy is unknown, or does not work with this machine and what is reserved on it.
    pub fn new(
        settings: &MemorySettings<'_>,
        machine: &MachineMemory,
    ) -> Result<Self, MemoryManagerError> {
        let policy = match settings.policy {
            BEST_EFFORT => return Err(MemoryManagerError::NotOnLinux(BEST_EFFORT)),
            name => MemoryPolicy::from_name(name)
                .ok_or_else(|| MemoryManagerError::UnknownPolicy(name.to_owned()))?,
        };
        let unassigned = match policy {
            MemoryPolicy::None => MachineState::default(),
            MemoryPolicy::Static => {
                let reserved = reserved_memory(machine, settings.of_node, settings.reservations)?;
                let memory = |of_node: &MemoryAmounts| of_node.get(MEMORY).copied().unwrap_or(0);
                if reserved.values().all(|of_node| memory(of_node) == 0) {
                    return Err(MemoryManagerError::NothingReserved);
                }
                if machine.len() > MAX_NODES {
                    return Err(MemoryManagerError::TooManyNodes);
                }
                MachineState::unassigned(machine, &reserved)
            }
        };
        Ok(Self {
            policy,
            pod_level: settings.pod_level,
            unassigned,
        })
    }

    pub fn policy(&self) -> MemoryPolicy {
        self.policy
    }

    pub(super) fn pod_level(&self) -> PodLevelManagers {
        self.pod_level
    }

    /// What pods may have of each node, in the order of nodes and resources, as the pod resources API tells it.
    pub fn allocatable(&self) -> Vec<MemoryBlock> {
        let of_node = |(node, state): (&NumaNodeId, &NodeState)| {
            let offered = state.tables.iter().filter(|(_, own)| own.allocatable > 0);
            let amounts = offered.map(|(resource, own)| (resource.clone(), own.allocatable));
            blocks(NumaMask::from_iter([*node]), &amounts.collect())
        };
        self.unassigned.nodes.iter().flat_map(of_node).collect()
    }

    /// The machine when the pods have what they hold.
    pub(super) fn state<'a>(&self, held: impl IntoIterator<Item = &'a Assignment>) -> MachineState {
        let mut state = self.unassigned.clone();
        held.into_iter().for_each(|own| state.take_all(own));
        state
    }

    /// Whether the pod's containers get memory of their own.
    fn manages(&self, pod: &Pod) -> bool {
        self.policy == MemoryPolicy::Static
            && pod_qos(pod) == Qos::Guaranteed
            && (self.pod_level == PodLevelManagers::On || !has_pod_level(pod))
    }

    fn asked<'a>(&self, pod: &'a Pod) -> AskedMemory<'a> {
        AskedMemory {
            pod,
            pod_level: self.pod_level,
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

    /// The memory of a pod with pod-level resources, where no container that needs some is left without.
    fn budget(&self, pod: &Pod) -> Result<MemoryAmounts, DivisionError> {
        let asked = self.asked(pod);
        let total = asked.of_pod()?;
        if asked.is_pod_level() {
            asked.leaves_a_shared_pool(&total)??;
        }
        Ok(total)
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
        let asked = match (self.budget(pod), self.asked(pod).of_pod()) {
            (Ok(asked), _) => asked,
            // No place at all: the topology manager refuses the pod.
            (Err(DivisionError::SharedPool(_)), Ok(asked)) => {
                let nowhere = |resource| (resource, ResourceHints::Possible(Vec::new()));
                return asked.into_keys().map(nowhere).collect();
            }
            (Err(_), _) => return ProviderHints::new(),
        };
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
                let asked =
                    asked.map_err(|error| AssignmentError::Unexpected(error.to_string()))?;
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
        let total = match self.budget(pod) {
            Ok(total) => total,
            Err(DivisionError::Amount(_)) => return Ok(Assignment::default()),
            Err(DivisionError::SharedPool(error)) => {
                return Err(AssignmentError::Refused {
                    reason: "EmptyPodSharedPoolError",
                    message: error.to_string(),
                });
            }
        };
        let nodes = self.search(request, &total, |search| search.nodes(hint))?;
        let divided = divide(&self.asked(pod), &total, nodes);
        divided.map_err(|error| AssignmentError::Unexpected(error.to_string()))
    }

    fn take_over(
        &self,
        request: &AssignmentRequest<'_>,
        container: &Container,
        assigned: &mut Assignment,
    ) {
        // A container that had its memory before has taken over what it could then.
        if let Kept::Nothing = kept(request.held, request.pod, container) {
            reuse::take_over(request.pod, container, assigned);
        }
    }
}

/// What a container has of an earlier admission.
enum Kept<'a> {
    Memory(&'a [MemoryBlock]),
    /// It was an init container that has ended.
    Released,
    Nothing,
}

fn kept<'a>(held: &'a HeldAssignments, pod: &Pod, container: &Container) -> Kept<'a> {
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
fn kept_hints(held: &[MemoryBlock], asked: &MemoryAmounts) -> ProviderHints {
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
fn memory_of(assignment: &Assignment) -> Assignment {
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

/// The nodes that a container's memory comes from (`cpuset.mems`): none where it comes from anywhere.
pub fn memory_nodes(resources: &AssignedResources) -> NumaMask {
    let nodes = resources.memory.iter().map(|block| block.nodes);
    nodes.fold(NumaMask::EMPTY, |all, nodes| all | nodes)
}
