//! The simplest hint provider there can be, and counts as texts, for tests of whoever holds assignments.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Container;

use super::{
    AssignedResources, Assignment, AssignmentError, AssignmentRequest, HintProvider,
    PlacementCount, ProviderHints, TopologyHint, TopologyManager,
};

/// How often each step comes, such as `1 admission, 2 cpu requests`.
pub fn counted(counts: &[PlacementCount]) -> String {
    let mut sums: BTreeMap<PlacementCount, u32> = BTreeMap::new();
    for step in counts {
        *sums.entry(*step).or_default() += 1;
    }
    let words = sums.into_iter().map(|(step, sum)| match sum {
        1 => format!("1 {}", named(step)),
        sum => format!("{sum} {}s", named(step)),
    });
    words.collect::<Vec<_>>().join(", ")
}

fn named(step: PlacementCount) -> String {
    match step {
        PlacementCount::Requested => "admission".to_owned(),
        PlacementCount::Refused => "refusal".to_owned(),
        PlacementCount::PinningRequested(resource) => format!("{} request", resource.as_str()),
        PlacementCount::PinningFailed(resource) => format!("{} error", resource.as_str()),
        PlacementCount::Aligned(scope, boundary) => {
            format!("{} {} alignment", scope.as_str(), boundary.as_str())
        }
        PlacementCount::NotAligned(scope, boundary) => {
            format!("{} {} failure", scope.as_str(), boundary.as_str())
        }
        PlacementCount::Allocated(resource, source) => {
            format!("{} {} allocation", resource.as_str(), source.as_str())
        }
        PlacementCount::AllocationFailed(resource, source) => {
            format!("{} {} allocation error", resource.as_str(), source.as_str())
        }
        PlacementCount::Assigned(resource, manner) => {
            format!("{} {} assignment", resource.as_str(), manner.as_str())
        }
    }
}

/// Gives every container a CPU of its own, the lowest of so many that nobody holds, wherever it lies.
#[derive(Debug)]
pub struct OneCpuEach(pub u32);

impl OneCpuEach {
    /// A manager without a policy that asks nobody else.
    pub fn alone(self) -> TopologyManager {
        let mut manager = TopologyManager::default();
        manager.add_hint_provider(Box::new(self));
        manager
    }
}

impl HintProvider for OneCpuEach {
    fn hints(&self, _: &AssignmentRequest<'_>, _: &Container) -> ProviderHints {
        ProviderHints::new()
    }

    fn pod_hints(&self, _: &AssignmentRequest<'_>) -> ProviderHints {
        ProviderHints::new()
    }

    fn assign(
        &self,
        request: &AssignmentRequest<'_>,
        container: &Container,
        _: TopologyHint,
    ) -> Result<AssignedResources, AssignmentError> {
        let own = request.pod.metadata.uid.as_deref().unwrap_or_default();
        if let Some(kept) = request.held.get(&own.into()) {
            let kept = kept.containers.get(&container.name);
            return Ok(kept.cloned().unwrap_or_default());
        }
        let held = request.held.values().map(Arc::as_ref);
        let all = held.chain([request.assigned]);
        let all = all.flat_map(|assigned| assigned.containers.values());
        let taken: BTreeSet<u32> = all.flat_map(|own| own.cpus.iter().copied()).collect();
        let free = (0..self.0).find(|cpu| !taken.contains(cpu));
        let free = free.ok_or_else(|| AssignmentError::Unexpected("no CPU left".to_owned()))?;
        Ok(AssignedResources {
            cpus: [free].into(),
            ..AssignedResources::default()
        })
    }

    fn assign_pod(
        &self,
        _: &AssignmentRequest<'_>,
        _: TopologyHint,
    ) -> Result<Assignment, AssignmentError> {
        Ok(Assignment::default())
    }
}
