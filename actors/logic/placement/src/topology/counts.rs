//! What is counted of placements: each value is one step of a counter.
//!
//! Mirrors where upstream's cpumanager/policy_static.go, memorymanager/policy_static.go and topologymanager/scope_*.go
//! count, and the labels of pkg/kubelet/metrics/metrics.go, at v1.36.

use super::manager::TopologyScope;

/// The steps of counters that follow from a decision, in their order.
pub type PlacementCounts = Vec<PlacementCount>;

/// One step of one counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PlacementCount {
    /// The topology manager had to admit a pod.
    Requested,
    /// It has a policy and refused the pod, by that policy or because a provider did.
    Refused,
    /// A container, or a pod as a whole, was to have some of the resource to itself.
    PinningRequested(ManagedResource),
    PinningFailed(ManagedResource),
    /// All that a container or a pod was assigned lies within one such boundary.
    Aligned(TopologyScope, AlignmentBoundary),
    /// It had to and could not.
    NotAligned(TopologyScope, AlignmentBoundary),
    /// Some of the resource was allocated. This and the two below are counted under the feature gate
    /// `PodLevelResourceManagers` alone.
    Allocated(ManagedResource, AllocationSource),
    AllocationFailed(ManagedResource, AllocationSource),
    /// A container has its part of the resource in this manner.
    Assigned(ManagedResource, AssignmentType),
}

impl PlacementCount {
    /// Whether its metric is one of the feature gate `PodLevelResourceManagers`.
    pub(crate) fn is_gated(self) -> bool {
        match self {
            Self::Allocated(..) | Self::AllocationFailed(..) | Self::Assigned(..) => true,
            Self::Requested
            | Self::Refused
            | Self::PinningRequested(_)
            | Self::PinningFailed(_)
            | Self::Aligned(..)
            | Self::NotAligned(..) => false,
        }
    }
}

/// A resource with a manager that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ManagedResource {
    Cpu,
    Memory,
}

/// What is not to be crossed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AlignmentBoundary {
    PhysicalCpu,
    NumaNode,
    UncoreCache,
}

/// What an allocation is taken from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AllocationSource {
    Node,
    /// The resources of a pod as a whole.
    Pod,
}

/// Whether a container shares its part, and whose it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AssignmentType {
    NodeExclusive,
    PodShared,
    PodExclusive,
}

impl ManagedResource {
    /// The label `resource_name`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Memory => "memory",
        }
    }
}

impl AlignmentBoundary {
    /// The label `boundary`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::PhysicalCpu => "physical_cpu",
            Self::NumaNode => "numa_node",
            Self::UncoreCache => "uncore_cache",
        }
    }
}

impl AllocationSource {
    /// The label `source`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Pod => "pod",
        }
    }
}

impl AssignmentType {
    /// The label `assignment_type`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NodeExclusive => "node_exclusive",
            Self::PodShared => "pod_shared",
            Self::PodExclusive => "pod_exclusive",
        }
    }
}
