//! What the managers of exclusive resources have in common.
//!
//! Mirrors upstream's `HintProvider` of topologymanager/topology_manager.go at v1.36, where a provider keeps what it has
//! assigned; here it is told.

use std::fmt;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, Pod};

use super::assignment::{AssignedResources, Assignment, AssignmentError, HeldAssignments};
use super::counts::PlacementCounts;
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

    /// Settles what else follows in `assigned` once a container has been assigned its own there: what it takes over from
    /// containers of its pod that have ended when it starts. By default all keep what they have. What wraps a provider
    /// passes this on.
    fn take_over(
        &self,
        _request: &AssignmentRequest<'_>,
        _container: &Container,
        _assigned: &mut Assignment,
    ) {
    }

    /// What is counted of a container that [`Self::assign`] has answered about, with that answer; or with what it holds,
    /// if it was not asked for as the pod runs already. By default nothing. What wraps a provider passes this on.
    fn counts(
        &self,
        _request: &AssignmentRequest<'_>,
        _container: &Container,
        _outcome: Result<&AssignedResources, &AssignmentError>,
    ) -> PlacementCounts {
        PlacementCounts::new()
    }

    /// The same of [`Self::assign_pod`].
    fn pod_counts(
        &self,
        _request: &AssignmentRequest<'_>,
        _outcome: Result<&Assignment, &AssignmentError>,
    ) -> PlacementCounts {
        PlacementCounts::new()
    }
}

/// A provider that others ask as well.
impl<P: HintProvider> HintProvider for Arc<P> {
    fn hints(&self, request: &AssignmentRequest<'_>, container: &Container) -> ProviderHints {
        P::hints(self, request, container)
    }

    fn pod_hints(&self, request: &AssignmentRequest<'_>) -> ProviderHints {
        P::pod_hints(self, request)
    }

    fn assign(
        &self,
        request: &AssignmentRequest<'_>,
        container: &Container,
        hint: TopologyHint,
    ) -> Result<AssignedResources, AssignmentError> {
        P::assign(self, request, container, hint)
    }

    fn assign_pod(
        &self,
        request: &AssignmentRequest<'_>,
        hint: TopologyHint,
    ) -> Result<Assignment, AssignmentError> {
        P::assign_pod(self, request, hint)
    }

    fn take_over(
        &self,
        request: &AssignmentRequest<'_>,
        container: &Container,
        assigned: &mut Assignment,
    ) {
        P::take_over(self, request, container, assigned);
    }

    fn counts(
        &self,
        request: &AssignmentRequest<'_>,
        container: &Container,
        outcome: Result<&AssignedResources, &AssignmentError>,
    ) -> PlacementCounts {
        P::counts(self, request, container, outcome)
    }

    fn pod_counts(
        &self,
        request: &AssignmentRequest<'_>,
        outcome: Result<&Assignment, &AssignmentError>,
    ) -> PlacementCounts {
        P::pod_counts(self, request, outcome)
    }
}
