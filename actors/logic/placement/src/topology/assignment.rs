//! What a pod has been assigned for itself alone, or why it cannot be.
//!
//! The fields are those of the pod resources API (`ContainerResources`) and of upstream's state of the CPU, memory and
//! device managers at v1.36.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use logic_api::types::PodUid;
use thiserror::Error;

use super::numa_mask::NumaMask;
use crate::devices::PreferenceQuestion;

/// What each pod holds.
pub type HeldAssignments = BTreeMap<PodUid, Arc<Assignment>>;

/// The resources that a pod has to itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assignment {
    /// What its containers share that have nothing of their own (pod-level resources).
    pub pod: AssignedResources,
    /// By container name; one that is absent has nothing of its own.
    pub containers: BTreeMap<String, AssignedResources>,
}

/// The resources that a container, or a pod as a whole, has to itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AssignedResources {
    /// Logical CPUs by their numbers.
    pub cpus: BTreeSet<u32>,
    pub memory: Vec<MemoryBlock>,
    /// Ids of devices by resource name.
    pub devices: BTreeMap<String, BTreeSet<String>>,
}

/// Memory or huge pages of certain NUMA nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryBlock {
    /// `memory`, or `hugepages-` with a size.
    pub resource: String,
    pub nodes: NumaMask,
    pub bytes: u64,
}

impl Assignment {
    pub fn is_empty(&self) -> bool {
        self.pod.is_empty() && self.containers.is_empty()
    }

    /// Adds what another provider has assigned to the same pod.
    pub fn extend(&mut self, other: Assignment) {
        self.pod.extend(other.pod);
        for (container, resources) in other.containers {
            self.assign(&container, resources);
        }
    }

    /// Adds what a container has been assigned.
    pub fn assign(&mut self, container: &str, resources: AssignedResources) {
        if !resources.is_empty() {
            let own = self.containers.entry(container.to_owned()).or_default();
            own.extend(resources);
        }
    }
}

impl AssignedResources {
    pub fn is_empty(&self) -> bool {
        self.cpus.is_empty() && self.memory.is_empty() && self.devices.is_empty()
    }

    fn extend(&mut self, other: AssignedResources) {
        self.cpus.extend(other.cpus);
        self.memory.extend(other.memory);
        for (resource, ids) in other.devices {
            self.devices.entry(resource).or_default().extend(ids);
        }
    }
}

/// Why a pod is assigned nothing: the message of its failure.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AssignmentError {
    #[error("Resources cannot be allocated with Topology locality")]
    TopologyAffinity {
        /// What the providers' hints were, for the operator.
        hints: String,
    },
    /// The same for a pod with pod-level resources.
    #[error("Pod Scope pod with pod-level resources failed admission {what}")]
    PodLevelTopologyAffinity { what: &'static str, hints: String },
    /// A provider refuses for a reason that has a name.
    #[error("{message}")]
    Refused {
        reason: &'static str,
        message: String,
    },
    /// A provider cannot, though its hints said that it could.
    #[error("Allocate failed due to {0}, which is unexpected")]
    Unexpected(String),
    /// Not a refusal: the request is to be made again, with the answers of device plugins to these questions.
    #[error("device plugins have not been asked yet which devices they prefer")]
    Undecided(Vec<PreferenceQuestion>),
}

impl AssignmentError {
    /// The reason in the status of the failed pod.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::TopologyAffinity { .. } | Self::PodLevelTopologyAffinity { .. } => {
                "TopologyAffinityError"
            }
            Self::Refused { reason, .. } => reason,
            Self::Unexpected(_) | Self::Undecided(_) => "UnexpectedAdmissionError",
        }
    }

    /// The hints that the policy refuses; none where something else is the reason.
    pub fn hints(&self) -> Option<&str> {
        match self {
            Self::TopologyAffinity { hints } | Self::PodLevelTopologyAffinity { hints, .. } => {
                Some(hints)
            }
            Self::Refused { .. } | Self::Unexpected(_) | Self::Undecided(_) => None,
        }
    }
}
