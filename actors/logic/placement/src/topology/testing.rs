//! The simplest hint provider there can be, for tests of whoever holds assignments.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Container;

use super::{
    AssignedResources, Assignment, AssignmentError, AssignmentRequest, HintProvider, ProviderHints,
    TopologyHint, TopologyManager,
};

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
