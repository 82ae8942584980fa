//! Where on the machine a pod's exclusive resources lie, and whether they lie together.
//!
//! Hint providers (CPUs, memory, devices) say from which NUMA nodes a container's or a pod's resources could come; the
//! policy merges what they say into one hint, or refuses the pod; the providers then assign by that hint. All of it is
//! data: a provider is asked with what every pod holds, changes nothing, and answers with an [`Assignment`], which the
//! caller holds from then on. A pod that is refused has taken nothing.
//! Mirrors upstream's pkg/kubelet/cm/topologymanager at v1.36.

mod assignment;
mod counts;
mod hint;
mod manager;
mod manager_counts;
mod merge;
mod numa_mask;
mod numa_topology;
mod policy;
mod policy_options;
mod provider;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;

pub use self::assignment::{
    AssignedResources, Assignment, AssignmentError, HeldAssignments, MemoryBlock,
};
pub use self::counts::{
    AlignmentBoundary, AllocationSource, AssignmentType, ManagedResource, PlacementCount,
    PlacementCounts,
};
pub use self::hint::{ProviderHints, ResourceHints, TopologyHint};
pub use self::manager::{
    PodLevelManagers, TopologyAdmission, TopologyManager, TopologyManagerError, TopologyScope,
    TopologySettings,
};
pub use self::numa_mask::{NumaMask, NumaNodeId, NumaNodeOutOfRange};
pub use self::numa_topology::{DistancesUnknown, NumaTopology};
pub use self::policy::TopologyPolicy;
pub use self::policy_options::{PolicyOptionError, PolicyOptions};
pub use self::provider::{AssignmentRequest, HintProvider};
