//! What the managers of exclusive resources have in common.
//!
//! Mirrors upstream's `HintProvider` of topologymanager/topology_manager.go at v1.36, where a provider keeps what it has
//! assigned; here it is told.

use std::fmt;

use k8s_openapi::api::core::v1::{Container, Pod};

use super::assignment::{AssignedResources, Assignment, AssignmentError, HeldAssignments};
use super::hint::{ProviderHints, TopologyHint};
use crate::devices::{DeviceInventory, DevicePreferences};

/// What a provider has to know to answer.
#[derive(Clone, Copy, Debug)]
pub struct AssignmentRequest<'a> {
    pub pod: &'a Pod,
    /// What every pod holds; this one as well, where it is admitted already and changes: it keeps what it can.
    pub held: &'a HeldAssignments,
    /// What containers of this pod have been assigned in this request already.
    pub assigned: &'a Assignment,
    /// The devices that plugins have told.
    pub devices: &'a DeviceInventory,
    /// What plugins have answered to the questions of earlier attempts at this request.
    pub preferences: &'a DevicePreferences,
}

/// Assigns one kind of resource, such as CPUs. It decides by its own settings and the request alone: the same request
/// has the same answer.
pub trait HintProvider: fmt::Debug + Send + Sync {
    /// Where a container's resources could come from.
    fn hints(&self, request: &AssignmentRequest<'_>, container: &Container) -> ProviderHints;

    /// Where all of the pod's resources could come from together.
    fn pod_hints(&self, request: &AssignmentRequest<'_>) -> ProviderHints;

    /// Assigns a container's resources, from the hint's nodes if that can be. No nodes are no constraint.
    ///
    /// # Errors
    ///
    /// The container cannot have what it asks for.
    fn assign(
        &self,
        request: &AssignmentRequest<'_>,
        container: &Container,
        hint: TopologyHint,
    ) -> Result<AssignedResources, AssignmentError>;

    /// The same for all containers of a pod with pod-level resources at once.
    ///
    /// # Errors
    ///
    /// The pod cannot have what it asks for.
    fn assign_pod(
        &self,
        request: &AssignmentRequest<'_>,
        hint: TopologyHint,
    ) -> Result<Assignment, AssignmentError>;
}
