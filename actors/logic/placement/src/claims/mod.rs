//! Dynamic resource allocation: the ResourceClaims that pods need, and what drivers made of them.
//!
//! A pod names claims; the API server has said which driver's devices each is allocated. Before the pod's containers
//! are made every such driver prepares its part of the claim, and after the last pod is gone it undoes that. Decisions
//! are data: a plan says which drivers are to be called with which claims, and the answers are taken in afterwards, so
//! that a call that fails, or an agent that restarts in the middle, leaves a claim that is simply asked for again.
//! Mirrors upstream's pkg/kubelet/cm/dra and k8s.io/dynamic-resource-allocation/resourceclaim at v1.36. Claims of what
//! the node allocates itself (gate `DRANodeAllocatableResources`) are counted by the scheduler alone there: the kubelet
//! only keeps `status.nodeAllocatableResourceClaimStatuses` as it is.

mod cache;
mod checkpoint;
mod containers;
mod drivers;
mod eligibility;
mod entry;
mod failure;
pub mod health;
mod locks;
mod names;
mod prepare;
mod references;
#[cfg(test)]
mod tests;
mod unprepare;

pub use self::cache::ClaimCache;
pub use self::checkpoint::{ClaimStateFlaw, STATE_FILE, decode_claims, encode_claims};
pub use self::containers::{
    ClaimedDevice, ContainerClaimError, DynamicResource, container_devices, dynamic_resources,
};
pub use self::drivers::{
    Connection, DriverEndpoint, DriverError, DriverRegistry, NodeService, ResourceSliceSelector,
    VersionFlaw, validate_driver,
};
pub use self::eligibility::ClaimRefusal;
pub use self::entry::{ClaimDevice, ClaimEntry, Preparation};
pub use self::failure::{ClaimsError, JobFailure};
pub use self::locks::ClaimLocks;
pub use self::names::{ClaimIdentity, ClaimKey, ClaimUid, DriverName};
pub use self::prepare::{
    CallFailure, ClaimAnswer, DriverAnswer, PreparePlan, PrepareRefusal, check_answer,
};
pub use self::references::{
    ClaimNameError, ClaimOrigin, ClaimReference, has_claims, needed_claims,
};
pub use self::unprepare::{InactivePod, UnpreparePlan};

/// The feature gates that decide about claims; upstream's defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClaimGates {
    /// `DRAExtendedResource`: extended resources may be claims that the scheduler made.
    pub extended_resources: bool,
    /// `DRAWorkloadResourceClaims`: a claim may belong to the pod's PodGroup.
    pub pod_groups: bool,
    /// `ResourceHealthStatusMessage`: pods show the drivers' words about their devices.
    pub health_messages: bool,
}

impl Default for ClaimGates {
    fn default() -> Self {
        Self {
            extended_resources: true,
            pod_groups: false,
            health_messages: true,
        }
    }
}
