//! What this node assigns, and what follows from it for each container.
//!
//! Mirrors upstream's internal_container_lifecycle_linux.go and the `HasExclusiveCPUs` of container_manager.go at v1.36.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, Pod};
use logic_api::pod::PodView;
use logic_resources::resources::LinuxResources;
use thiserror::Error;

use crate::cpus::{CpuMachine, CpuManager, CpuPolicy, CpuSet, CpuStateError, CpuStateFileError};
use crate::devices::checkpoint::DeviceCheckpoint;
use crate::devices::{DeviceProvider, DraResources};
use crate::memory::{self, MemoryManager, StateFileError as MemoryStateFileError, memory_nodes};
use crate::topology::{
    AssignedResources, Assignment, HeldAssignments, MemoryBlock, NumaMask, NumaNodeId,
    PlacementCounts, TopologyManager,
};

/// The name of the CPU manager's state file below the root folder.
const CPU_STATE_FILE: &str = "cpu_manager_state";

/// The device manager's checkpoint below the root folder.
const DEVICE_CHECKPOINT: &str = "device-plugins/kubelet_internal_checkpoint";

/// The managers of what pods have to themselves. The default one assigns nothing.
#[derive(Debug, Default)]
pub struct NodePlacement {
    /// Asks the managers when a pod is admitted.
    pub topology: TopologyManager,
    machine: CpuMachine,
    managers: Option<Managers>,
}

#[derive(Debug)]
struct Managers {
    cpus: Arc<CpuManager>,
    memory: Arc<MemoryManager>,
}

/// Where a container runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerPlacement {
    /// Empty leaves them to the runtime.
    pub cpus: CpuSet,
    /// The NUMA nodes that its memory comes from; empty leaves them to the runtime.
    pub memory: NumaMask,
    pub quota: QuotaRule,
}

/// Whether a limit of CPU is a quota of time as well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QuotaRule {
    #[default]
    Enforced,
    /// Exclusive CPUs are the limit (feature gate `DisableCPUQuotaWithExclusiveCPUs`).
    Off,
}

/// A file of a kubelet's folder that a manager keeps its state in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateFile {
    /// Its name below the root folder.
    pub name: &'static str,
    pub bytes: Vec<u8>,
}

/// Why a state file of an earlier life is of no use: the agent does not start, as the kubelet does not.
#[derive(Debug, Error)]
pub enum RestoreError {
    #[error(
        "start cpu manager error: could not restore state from checkpoint, please drain this node and delete the CPU \
         manager checkpoint file {CPU_STATE_FILE:?} before restarting Kubelet"
    )]
    CpuFile(#[source] CpuStateFileError),
    #[error("start cpu manager error")]
    Cpus(#[source] CpuStateError),
    #[error("start memory manager error: {}", .0.advice(memory::STATE_FILE))]
    Memory(MemoryStateFileError),
}

impl ContainerPlacement {
    /// The resources of a container that runs here.
    pub fn limit(&self, resources: LinuxResources) -> LinuxResources {
        let nodes = self.memory.nodes().map(|node| node.get().to_string());
        let nodes: Vec<String> = nodes.collect();
        let is_limited = resources.cpu_period != 0;
        LinuxResources {
            cpus: self.cpus.to_string(),
            memory_nodes: nodes.join(","),
            cpu_quota: match self.quota {
                QuotaRule::Off if is_limited => -1,
                QuotaRule::Off | QuotaRule::Enforced => resources.cpu_quota,
            },
            ..resources
        }
    }
}

impl From<TopologyManager> for NodePlacement {
    /// A node whose topology manager asks others than these managers.
    fn from(topology: TopologyManager) -> Self {
        Self {
            topology,
            ..Self::default()
        }
    }
}

impl NodePlacement {
    /// Has the topology manager ask these managers.
    pub fn new(
        mut topology: TopologyManager,
        machine: CpuMachine,
        cpus: CpuManager,
        memory: MemoryManager,
    ) -> Self {
        let (cpus, memory) = (Arc::new(cpus), Arc::new(memory));
        // In upstream's order: a container whose devices are refused is not counted by the others.
        let devices = DeviceProvider::new(machine.node_mask(), DraResources::Off);
        topology.add_hint_provider(Box::new(devices));
        topology.add_hint_provider(Box::new(cpus.clone()));
        topology.add_hint_provider(Box::new(memory.clone()));
        Self {
            topology,
            machine,
            managers: Some(Managers { cpus, memory }),
        }
    }

    /// The series of counters that are there from the start, at zero.
    pub fn first_counts(&self) -> PlacementCounts {
        let mut counts = self.topology.first_counts();
        if let Some(managers) = &self.managers {
            counts.extend(managers.cpus.first_counts());
        }
        counts
    }

    /// Where a container of the pod runs, by what all pods hold.
    pub fn container(&self, held: &HeldAssignments, pod: &Pod, name: &str) -> ContainerPlacement {
        let own = held.get(&pod.uid());
        let own = own.and_then(|own| own.containers.get(name));
        let memory = own.map(memory_nodes).unwrap_or_default();
        let Some(Managers { cpus, .. }) = &self.managers else {
            let cpus = own.map(|own| CpuSet::from_numbers(own.cpus.iter().copied()));
            return ContainerPlacement {
                cpus: cpus.unwrap_or_default(),
                memory,
                quota: QuotaRule::Enforced,
            };
        };
        let has_no_quota =
            |container: &Container| cpus.container_has_no_quota(pod, container, held);
        let container = pod.container(name);
        ContainerPlacement {
            cpus: cpus.affinity(pod, name, held),
            memory,
            quota: match container.is_some_and(|(_, container)| has_no_quota(&container)) {
                true => QuotaRule::Off,
                false => QuotaRule::Enforced,
            },
        }
    }

    /// The CPUs that a container is assigned, as the pod resources API tells them: its own ones, or those that the
    /// containers of its pod share (pod-level resources).
    pub fn assigned_cpus(&self, held: &HeldAssignments, pod: &Pod, name: &str) -> CpuSet {
        match &self.managers {
            Some(Managers { cpus, .. }) => cpus.given(pod, name, held),
            None => self.container(held, pod, name).cpus,
        }
    }

    /// Whether containers are moved when what pods hold changes.
    pub fn pins_cpus(&self) -> bool {
        let managers = self.managers.as_ref();
        managers.is_some_and(|managers| managers.cpus.policy() == CpuPolicy::Static)
    }

    /// Whether the pod as a whole has a quota of CPU.
    pub fn pod_quota(&self, held: &HeldAssignments, pod: &Pod) -> QuotaRule {
        let managers = self.managers.as_ref();
        match managers.is_some_and(|managers| managers.cpus.pod_has_no_quota(pod, held)) {
            true => QuotaRule::Off,
            false => QuotaRule::Enforced,
        }
    }

    /// The CPUs of the machine.
    pub fn machine(&self) -> &CpuMachine {
        &self.machine
    }

    /// The name of the CPU manager's policy.
    pub fn cpu_policy(&self) -> &'static str {
        let managers = self.managers.as_ref();
        managers.map_or("none", |managers| managers.cpus.policy().as_str())
    }

    /// The name of the memory manager's policy.
    pub fn memory_policy(&self) -> &'static str {
        let managers = self.managers.as_ref();
        managers.map_or("None", |managers| managers.memory.policy().as_str())
    }

    /// The CPUs that containers may have to themselves.
    pub fn allocatable_cpus(&self) -> CpuSet {
        let managers = self.managers.as_ref();
        managers.map_or_else(CpuSet::default, |managers| managers.cpus.allocatable())
    }

    /// The CPUs that no container ever has to itself; none where there are no others.
    pub fn reserved_cpus(&self) -> CpuSet {
        match self.pins_cpus() {
            true => self.machine.cpus().difference(&self.allocatable_cpus()),
            false => CpuSet::default(),
        }
    }

    /// The CPUs of all containers that have none to themselves; empty where CPUs are not assigned.
    pub fn shared_cpus(&self, held: &HeldAssignments) -> CpuSet {
        let managers = self.managers.as_ref();
        managers.map_or_else(CpuSet::default, |managers| managers.cpus.shared(held))
    }

    /// How many CPUs of each NUMA node pods have to themselves.
    pub fn exclusive_cpus(&self, held: &HeldAssignments) -> BTreeMap<NumaNodeId, u32> {
        let all = held.values().flat_map(|assigned| all_resources(assigned));
        let taken: BTreeSet<u32> = all.flat_map(|own| own.cpus.iter().copied()).collect();
        let taken = CpuSet::from_numbers(taken);
        let nodes = self.machine.nodes().iter();
        nodes
            .map(|(node, cpus)| (*node, cpus.common(&taken)))
            .collect()
    }

    /// The memory that containers may have to themselves.
    pub fn allocatable_memory(&self) -> Vec<MemoryBlock> {
        let managers = self.managers.as_ref();
        managers.map_or_else(Vec::new, |managers| managers.memory.allocatable())
    }

    /// The managers' state as a kubelet keeps it.
    pub fn state_files(&self, held: &HeldAssignments) -> Vec<StateFile> {
        let Some(Managers { cpus, memory }) = &self.managers else {
            return Vec::new();
        };
        vec![
            StateFile {
                name: CPU_STATE_FILE,
                bytes: cpus.write_state(&cpus.state(held, &BTreeMap::new())),
            },
            StateFile {
                name: memory::STATE_FILE,
                bytes: memory.save(held),
            },
        ]
    }

    /// What pods held in an earlier life of the agent, or of a kubelet; `read` returns the bytes of a state file, none if
    /// there is no such file.
    ///
    /// # Errors
    ///
    /// A file is damaged, of another policy or of another machine.
    pub fn restore(
        &self,
        read: impl Fn(&str) -> Option<Vec<u8>>,
    ) -> Result<HeldAssignments, RestoreError> {
        let Some(Managers { cpus, memory }) = &self.managers else {
            return Ok(HeldAssignments::new());
        };
        let mut held = HeldAssignments::new();
        if let Some(bytes) = read(CPU_STATE_FILE) {
            let state = cpus.read_state(&bytes, |_| None);
            let state = state.map_err(RestoreError::CpuFile)?;
            cpus.check_state(&state).map_err(RestoreError::Cpus)?;
            held = state.held(&BTreeMap::new());
        }
        if let Some(bytes) = read(memory::STATE_FILE) {
            for (pod, own) in memory.restore(&bytes).map_err(RestoreError::Memory)? {
                let all = held.entry(pod).or_default();
                Arc::make_mut(all).extend(Assignment::clone(&own));
            }
        }
        // The device manager tells of a checkpoint that does not read, and goes on without it, as upstream.
        let devices =
            read(DEVICE_CHECKPOINT).and_then(|bytes| DeviceCheckpoint::decode(&bytes).ok());
        for entry in devices.into_iter().flat_map(|devices| devices.allocations) {
            let ids = entry.devices.into_iter().flatten();
            let ids = ids.flat_map(|(_, ids)| ids).collect();
            let own = AssignedResources {
                devices: BTreeMap::from([(entry.resource, ids)]),
                ..AssignedResources::default()
            };
            let all = held.entry(entry.pod.as_str().into()).or_default();
            Arc::make_mut(all).assign(&entry.container, own);
        }
        Ok(held)
    }
}

fn all_resources(assigned: &Assignment) -> impl Iterator<Item = &AssignedResources> {
    assigned.containers.values().chain([&assigned.pod])
}
