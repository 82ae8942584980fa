//! The CPU manager as a hint provider.
//!
//! Mirrors upstream's GetTopologyHints, GetPodTopologyHints, Allocate and AllocatePod of cpumanager/policy_static.go at
//! v1.36.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod};
use logic_api::pod::{PodView, is_sidecar};
use logic_api::types::ContainerKind;

use super::allocation::unexpected;
use super::assigned::{all_of, assigned_cpus, cpus_alone, cpus_of};
use super::cpu_set::CpuSet;
use super::hints::HintFinder;
use super::manager::CpuManager;
use super::policy::StaticPolicy;
use crate::topology::{
    AssignedResources, Assignment, AssignmentError, AssignmentRequest, HintProvider,
    PlacementCounts, ProviderHints, ResourceHints, TopologyHint,
};

/// The resource of the hints.
const RESOURCE: &str = "cpu";

impl HintProvider for CpuManager {
    fn hints(&self, request: &AssignmentRequest<'_>, container: &Container) -> ProviderHints {
        let count = self.demand.of_container(request.pod, container);
        let Some(policy) = self.asked(request, count) else {
            return ProviderHints::new();
        };
        let finder = HintFinder::new(policy, count);
        by_resource(match kept(request, container) {
            Some(kept) if kept.len() != count => Vec::new(),
            Some(kept) => finder.hints(&kept, &CpuSet::default()),
            None => finder.hints(&policy.available(request), &reusable(request)),
        })
    }

    fn pod_hints(&self, request: &AssignmentRequest<'_>) -> ProviderHints {
        let pod = request.pod;
        let count = self.demand.of_pod(pod);
        let Some(policy) = self.asked(request, count) else {
            return ProviderHints::new();
        };
        if self.demand.is_pod_level(pod) && self.demand.check_shared_pool(pod).is_err() {
            return by_resource(Vec::new());
        }
        let held = request.held.get(&pod.uid());
        let all = held.map(|held| all_of(held)).unwrap_or_default();
        let changes = !self.demand.is_pod_level(pod)
            && pod.all_containers().any(|(_, container)| {
                let own = kept(request, container);
                own.is_some_and(|own| own.len() != self.demand.of_container(pod, container))
            });
        let finder = HintFinder::new(policy, count);
        by_resource(match changes {
            true => Vec::new(),
            false if all.len() == count => finder.hints(&all, &CpuSet::default()),
            false => finder.hints(&policy.available(request), &all),
        })
    }

    fn assign(
        &self,
        request: &AssignmentRequest<'_>,
        container: &Container,
        hint: TopologyHint,
    ) -> Result<AssignedResources, AssignmentError> {
        let count = self.demand.of_container(request.pod, container);
        let Some(policy) = self.asked(request, count) else {
            return Ok(AssignedResources::default());
        };
        if let Some(kept) = kept(request, container) {
            return Ok(assigned_cpus(&kept));
        }
        let available = policy.available(request).union(&reusable(request));
        policy.check_cores(&available, count)?;
        let cpus = policy.allocate(&available, count, hint)?;
        Ok(assigned_cpus(&cpus))
    }

    fn assign_pod(
        &self,
        request: &AssignmentRequest<'_>,
        hint: TopologyHint,
    ) -> Result<Assignment, AssignmentError> {
        let pod = request.pod;
        let count = self.demand.of_pod(pod);
        let Some(policy) = self.asked(request, count) else {
            return Ok(Assignment::default());
        };
        let held = request.held.get(&pod.uid());
        if let Some(held) = held.filter(|held| !all_of(held).is_empty()) {
            return Ok(cpus_alone(held));
        }
        let refused = |message: &str| AssignmentError::Refused {
            reason: "EmptyPodSharedPoolError",
            message: message.to_owned(),
        };
        self.demand.check_shared_pool(pod).map_err(refused)?;
        let available = policy.available(request);
        policy.check_cores(&available, count)?;
        let whole = policy.allocate(&available, count, hint)?;
        self.divide(policy, pod, &whole)
    }

    fn counts(
        &self,
        request: &AssignmentRequest<'_>,
        container: &Container,
        outcome: Result<&AssignedResources, &AssignmentError>,
    ) -> PlacementCounts {
        self.container_counts(request, container, outcome)
    }

    fn pod_counts(
        &self,
        request: &AssignmentRequest<'_>,
        outcome: Result<&Assignment, &AssignmentError>,
    ) -> PlacementCounts {
        self.whole_counts(request, outcome)
    }
}

impl CpuManager {
    /// The policy, if it has anything to do for this request.
    pub(super) fn asked(
        &self,
        request: &AssignmentRequest<'_>,
        count: u32,
    ) -> Option<&StaticPolicy> {
        let asked = count > 0 && !self.demand.is_left_out(request.pod);
        self.policy.as_ref().filter(|_| asked)
    }

    /// The parts of a pod with pod-level resources, out of the CPUs of the whole pod.
    fn divide(
        &self,
        policy: &StaticPolicy,
        pod: &Pod,
        whole: &CpuSet,
    ) -> Result<Assignment, AssignmentError> {
        let mut assigned = Assignment::default();
        let mut rest = whole.clone();
        for (kind, container) in pod.all_containers() {
            let count = self.demand.of_container(pod, container);
            let passes = kind == ContainerKind::Init && !is_sidecar(container);
            let own = match count {
                0 if passes => rest.clone(),
                0 => continue,
                count => policy.take(&rest, count).map_err(unexpected)?,
            };
            if !passes {
                rest = rest.difference(&own);
            }
            assigned.assign(&container.name, assigned_cpus(&own));
        }
        assigned.pod = assigned_cpus(&rest);
        Ok(assigned)
    }
}

/// What a container has to itself already.
pub(super) fn kept(request: &AssignmentRequest<'_>, container: &Container) -> Option<CpuSet> {
    let held = request.held.get(&request.pod.uid())?;
    let own = held.containers.get(&container.name).map(cpus_of);
    own.filter(|cpus| !cpus.is_empty())
}

/// What init containers of this request have had and later containers have not taken again. Sidecars keep theirs.
fn reusable(request: &AssignmentRequest<'_>) -> CpuSet {
    let mut reusable = CpuSet::default();
    for (kind, container) in request.pod.all_containers() {
        let Some(own) = request.assigned.containers.get(&container.name) else {
            continue;
        };
        reusable = match kind == ContainerKind::Init && !is_sidecar(container) {
            true => reusable.union(&cpus_of(own)),
            false => reusable.difference(&cpus_of(own)),
        };
    }
    reusable
}

fn by_resource(hints: Vec<TopologyHint>) -> ProviderHints {
    BTreeMap::from([(RESOURCE.to_owned(), ResourceHints::Possible(hints))])
}
