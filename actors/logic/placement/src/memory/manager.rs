//! The memory manager by its settings, and what of the machine it assigns.
//!
//! Mirrors upstream's memorymanager/memory_manager.go and policy_none.go at v1.36.

use logic_api::pod::requests::{MEMORY, ResourceAmounts};
use thiserror::Error;

use super::amount::MemoryAmounts;
use super::machine::MachineMemory;
use super::numa_state::{MachineState, NodeState};
use super::pod_level::blocks;
use super::reserved::{MemoryReservation, ReservedMemoryError, reserved_memory};
use crate::topology::{
    AssignedResources, Assignment, MemoryBlock, NumaMask, NumaNodeId, PodLevelManagers,
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
}

/// The nodes that a container's memory comes from (`cpuset.mems`): none where it comes from anywhere.
pub fn memory_nodes(resources: &AssignedResources) -> NumaMask {
    let nodes = resources.memory.iter().map(|block| block.nodes);
    nodes.fold(NumaMask::EMPTY, |all, nodes| all | nodes)
}
