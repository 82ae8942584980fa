//! What is counted of CPUs that were to be assigned.
//!
//! Mirrors the counters of upstream's Allocate, AllocatePod, updateMetricsOnAllocate and initializeMetrics of
//! cpumanager/policy_static.go at v1.36. A pod as a whole that keeps its CPUs is not allocated them again, as upstream's
//! is.

use k8s_openapi::api::core::v1::Container;
use logic_api::pod::PodView;

use super::assigned::{all_of, cpus_of};
use super::cpu_set::CpuSet;
use super::machine::UncoreAlignment;
use super::manager::CpuManager;
use super::options::CpuPolicyOption;
use super::policy::StaticPolicy;
use super::provider::kept;
use crate::topology::AlignmentBoundary::{PhysicalCpu, UncoreCache};
use crate::topology::AllocationSource::{Node, Pod};
use crate::topology::AssignmentType::{NodeExclusive, PodExclusive, PodShared};
use crate::topology::ManagedResource::Cpu;
use crate::topology::PlacementCount::{
    Aligned, Allocated, AllocationFailed, Assigned, NotAligned, PinningFailed, PinningRequested,
};
use crate::topology::TopologyScope::Container as OfContainer;
use crate::topology::{
    AssignedResources, Assignment, AssignmentError, AssignmentRequest, PlacementCounts,
    PodLevelManagers,
};

impl CpuManager {
    /// What is counted of a container: nothing of one that has no CPUs to itself.
    pub(super) fn container_counts(
        &self,
        request: &AssignmentRequest<'_>,
        container: &Container,
        outcome: Result<&AssignedResources, &AssignmentError>,
    ) -> PlacementCounts {
        let count = self.demand.of_container(request.pod, container);
        let Some(policy) = self.asked(request, count) else {
            return PlacementCounts::new();
        };
        let whole_cores = policy.has(CpuPolicyOption::FullPhysicalCpusOnly);
        let mut counts = vec![PinningRequested(Cpu)];
        match outcome.map(cpus_of) {
            Err(_) => {
                counts.extend([PinningFailed(Cpu), AllocationFailed(Cpu, Node)]);
                counts.extend(whole_cores.then_some(NotAligned(OfContainer, PhysicalCpu)));
            }
            // It runs since a time when CPUs were not assigned.
            Ok(cpus) if cpus.is_empty() => {}
            Ok(cpus) => {
                counts.extend(whole_cores.then_some(Aligned(OfContainer, PhysicalCpu)));
                if kept(request, container).is_none() {
                    counts.extend(uncore(policy, &cpus));
                    counts.extend([Allocated(Cpu, Node), Assigned(Cpu, NodeExclusive)]);
                }
            }
        }
        if self.demand.pod_level == PodLevelManagers::Off {
            counts.retain(|count| !count.is_gated());
        }
        counts
    }

    /// What is counted of a pod that has its CPUs as a whole.
    pub(super) fn whole_counts(
        &self,
        request: &AssignmentRequest<'_>,
        outcome: Result<&Assignment, &AssignmentError>,
    ) -> PlacementCounts {
        let pod = request.pod;
        let Some(policy) = self.asked(request, self.demand.of_pod(pod)) else {
            return PlacementCounts::new();
        };
        let Ok(assigned) = outcome else {
            return vec![PinningFailed(Cpu), AllocationFailed(Cpu, Pod)];
        };
        let (held, cpus) = (request.held.get(&pod.uid()), all_of(assigned));
        let is_new = !cpus.is_empty() && held.is_none_or(|held| all_of(held).is_empty());
        let mut counts = PlacementCounts::new();
        if is_new {
            counts.extend(uncore(policy, &cpus));
        }
        for (_, container) in pod.all_containers() {
            let is_exclusive = self.demand.of_container(pod, container) > 0;
            counts.extend(is_exclusive.then_some(PinningRequested(Cpu)));
            if is_new {
                let manner = if is_exclusive {
                    PodExclusive
                } else {
                    PodShared
                };
                counts.extend([Assigned(Cpu, manner), Allocated(Cpu, Pod)]);
            }
        }
        counts
    }

    /// The series that are there from the start.
    pub(crate) fn first_counts(&self) -> PlacementCounts {
        match self.policy {
            None => PlacementCounts::new(),
            Some(_) => vec![
                NotAligned(OfContainer, PhysicalCpu),
                Aligned(OfContainer, PhysicalCpu),
                Aligned(OfContainer, UncoreCache),
            ],
        }
    }
}

/// Counted by container, whoever the CPUs are for.
fn uncore(policy: &StaticPolicy, cpus: &CpuSet) -> PlacementCounts {
    match policy.machine.uncore_alignment(cpus) {
        UncoreAlignment::Aligned => vec![Aligned(OfContainer, UncoreCache)],
        UncoreAlignment::Split => PlacementCounts::new(),
    }
}
