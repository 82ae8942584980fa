//! The hint provider of devices.
//!
//! Mirrors upstream's devicemanager/topology_hints.go and `Allocate` of manager.go at v1.36. Containers that run already
//! when the agent starts are not asked about: they are adopted with what they hold.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Container;
use logic_api::pod::PodView;

use super::choice::{self, ChoiceError, Demand};
use super::demand::{self, DeviceCounts};
use super::hints::{self, Offer};
use super::inventory::DeviceResource;
use super::preferences::PreferenceQuestion;
use crate::topology::{
    AssignedResources, Assignment, AssignmentError, AssignmentRequest, HintProvider, NumaMask,
    ProviderHints, ResourceHints, TopologyHint,
};

/// Whether extended resources may stand for claims (feature gate `DRAExtendedResource`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DraResources {
    On,
    #[default]
    Off,
}

/// Assigns the devices of plugins.
#[derive(Debug)]
pub struct DeviceProvider {
    machine: NumaMask,
    dra: DraResources,
}

impl DeviceProvider {
    /// A provider for a machine with these NUMA nodes.
    pub fn new(machine: NumaMask, dra: DraResources) -> Self {
        Self { machine, dra }
    }

    /// A container's devices of each resource, or every question that plugins have to answer first.
    fn choose(
        &self,
        request: &AssignmentRequest<'_>,
        container: &Container,
        affinity: Option<NumaMask>,
    ) -> Result<AssignedResources, AssignmentError> {
        let uid = request.pod.uid().to_string();
        let mut assigned = AssignedResources::default();
        let mut questions = Vec::<PreferenceQuestion>::new();
        for (resource, count) in demand::of_container(request, container, self.dra) {
            let demand = Demand {
                pod: &uid,
                container: &container.name,
                resource: &resource,
                count,
                held: demand::held_by_container(request, &container.name, &resource),
                reusable: demand::reusable(request, &container.name, &resource),
                in_use: demand::in_use(request, &resource),
                affinity,
            };
            match choice::choose(&demand, request.devices, request.preferences) {
                Ok(ids) if ids.is_empty() => {}
                Ok(ids) => drop(assigned.devices.insert(resource, ids)),
                Err(ChoiceError::Undecided(question)) => questions.push(question),
                Err(refusal) => return Err(AssignmentError::Unexpected(refusal.to_string())),
            }
        }
        match questions.is_empty() {
            true => Ok(assigned),
            false => Err(AssignmentError::Undecided(questions)),
        }
    }

    /// Hints for each resource that is asked for. `held` are the devices that are kept, `reusable` those to be given first.
    fn hints_for<'a>(
        &self,
        request: &AssignmentRequest<'a>,
        counts: DeviceCounts,
        held: impl Fn(&str) -> BTreeSet<String>,
        reusable: impl Fn(&str) -> BTreeSet<String>,
    ) -> ProviderHints {
        let hints = |resource: &str, count: usize| {
            let known = request.devices.resource(resource);
            let Some(known) = known.filter(|known| known.has_alignment()) else {
                return ResourceHints::NoPreference;
            };
            let held = held(resource);
            let possible = match held.is_empty() {
                true => {
                    let in_use = demand::in_use(request, resource);
                    self.new_hints(known, &in_use, reusable(resource), count)
                }
                false if held.len() != count => Vec::new(),
                false => {
                    let kept = Offer {
                        available: held,
                        reusable: BTreeSet::new(),
                    };
                    hints::generate(known, self.machine, &kept, count)
                }
            };
            ResourceHints::Possible(possible)
        };
        let counts = counts.into_iter();
        counts
            .map(|(resource, count)| {
                let hints = hints(&resource, count);
                (resource, hints)
            })
            .collect()
    }

    /// Hints for devices that are not held yet; none where there are too few.
    fn new_hints(
        &self,
        resource: &DeviceResource,
        in_use: &BTreeSet<String>,
        mut reusable: BTreeSet<String>,
        count: usize,
    ) -> Vec<TopologyHint> {
        reusable.retain(|id| resource.is_healthy(id));
        let ids = resource.healthy().map(|(id, _)| id.to_owned());
        let available: BTreeSet<String> = ids.filter(|id| !in_use.contains(id)).collect();
        if available.union(&reusable).count() < count {
            return Vec::new();
        }
        let offer = Offer {
            available,
            reusable,
        };
        hints::generate(resource, self.machine, &offer, count)
    }
}

impl HintProvider for DeviceProvider {
    fn hints(&self, request: &AssignmentRequest<'_>, container: &Container) -> ProviderHints {
        let counts = demand::of_container(request, container, self.dra);
        let name = &container.name;
        let held = |resource: &str| demand::held_by_container(request, name, resource).cloned();
        self.hints_for(
            request,
            counts,
            |resource| held(resource).unwrap_or_default(),
            |resource| demand::reusable(request, name, resource),
        )
    }

    fn pod_hints(&self, request: &AssignmentRequest<'_>) -> ProviderHints {
        let held = |resource: &str| demand::held_by_pod(request, resource);
        let counts = demand::of_pod(request);
        self.hints_for(request, counts, held, |_| BTreeSet::new())
    }

    fn assign(
        &self,
        request: &AssignmentRequest<'_>,
        container: &Container,
        hint: TopologyHint,
    ) -> Result<AssignedResources, AssignmentError> {
        self.choose(request, container, hint.nodes)
    }

    /// Pod-level resources are never devices: each container gets what it asks for by itself. Upstream does so too,
    /// though only when the container starts.
    fn assign_pod(
        &self,
        request: &AssignmentRequest<'_>,
        hint: TopologyHint,
    ) -> Result<Assignment, AssignmentError> {
        let mut assigned = Assignment::default();
        for (_, container) in request.pod.all_containers() {
            let request = AssignmentRequest {
                assigned: &assigned,
                ..*request
            };
            let resources = self.choose(&request, container, hint.nodes)?;
            assigned.assign(&container.name, resources);
        }
        Ok(assigned)
    }
}
