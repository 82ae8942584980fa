//! What the topology manager counts itself, beside what the providers count.
//!
//! Mirrors `initializeMetrics` of upstream's topologymanager/topology_manager.go, and the counters of scope_container.go
//! and scope_pod.go, at v1.36.

use k8s_openapi::api::core::v1::Pod;
use logic_api::pod::PodView;

use super::assignment::{AssignedResources, Assignment, AssignmentError, HeldAssignments};
use super::counts::AlignmentBoundary::NumaNode;
use super::counts::PlacementCount::{Aligned, NotAligned, Refused, Requested};
use super::counts::PlacementCounts;
use super::manager::{TopologyManager, TopologyScope};
use super::policy::TopologyPolicy;
use super::provider::AssignmentRequest;
use crate::devices::{DeviceInventory, DevicePreferences};

impl TopologyManager {
    /// What is counted of a pod that runs already when the agent starts: upstream admits it again, and it keeps what it
    /// holds. It counts as aligned if its hints still are.
    pub fn running_counts(
        &self,
        pod: &Pod,
        held: &HeldAssignments,
        devices: &DeviceInventory,
    ) -> PlacementCounts {
        let (none, nothing) = (Assignment::default(), AssignedResources::default());
        let whole = AssignmentRequest {
            pod,
            held,
            assigned: &none,
            devices,
            preferences: &DevicePreferences::NONE,
        };
        let own = held.get(&pod.uid()).map_or(&none, |own| own);
        let mut counts = vec![Requested];
        if self.is_whole(pod) {
            for provider in &self.providers {
                counts.extend(provider.pod_counts(&whole, Ok(own)));
            }
        } else {
            for (_, container) in pod.all_containers() {
                let resources = own.containers.get(&container.name).unwrap_or(&nothing);
                for provider in &self.providers {
                    counts.extend(provider.counts(&whole, container, Ok(resources)));
                }
                if self.counts_alignment(TopologyScope::Container)
                    && self.container_affinity(&whole, container).is_ok()
                {
                    counts.push(Aligned(TopologyScope::Container, NumaNode));
                }
            }
        }
        if self.counts_alignment(TopologyScope::Pod) && self.pod_affinity(&whole).is_ok() {
            counts.push(Aligned(TopologyScope::Pod, NumaNode));
        }
        counts
    }

    /// The series that are there from the start.
    pub(crate) fn first_counts(&self) -> PlacementCounts {
        if self.policy == TopologyPolicy::None {
            return PlacementCounts::new();
        }
        let scopes = [TopologyScope::Container, TopologyScope::Pod];
        let both = |scope| [Aligned(scope, NumaNode), NotAligned(scope, NumaNode)];
        scopes.into_iter().flat_map(both).collect()
    }

    /// What is counted of a pod that is refused.
    pub(super) fn refusal_counts(&self, refusal: &AssignmentError) -> PlacementCounts {
        let mut counts = PlacementCounts::new();
        if self.policy != TopologyPolicy::None {
            counts.push(Refused);
        }
        if refusal.hints().is_some() && self.counts_alignment(self.scope) {
            counts.push(NotAligned(self.scope, NumaNode));
        }
        counts
    }

    /// Whether it is counted in this scope that resources lie in one NUMA node.
    pub(super) fn counts_alignment(&self, scope: TopologyScope) -> bool {
        self.policy.guarantees_alignment() && self.scope == scope
    }
}
