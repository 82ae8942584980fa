//! In-place resize: changes of a running pod's CPU and memory.
//!
//! A pod has *desired* resources (its spec), *allocated* ones (admitted by the node, and counted) and *actuated* ones
//! (the runtime's last update). [`allocate`] decides about the desired resources, [`apply`] makes the pod as it is
//! allocated, [`order`] says which pod is resized first, [`container_change`] what a running container needs,
//! [`resize_steps`] how it gets it, and [`ResizeEvent`] is for the user.
//! Mirrors upstream's pkg/kubelet/allocation and the resize parts of kuberuntime_manager.go at v1.36.

mod actuation;
mod allocation;
mod change;
mod event;
mod order;
mod progress;
mod requested;

pub use actuation::{PodResize, ResizeStep, limits_in_force, resize_steps};
pub use allocation::{
    AllocatedResources, Allocation, ResizeInput, ResizeOutcome, allocate, apply, pod_differs,
};
pub use change::{
    Actuated, POD_LEVEL, ResizeAction, ResizeDirection, ResizeDirections, allocated_and_actuated,
    container_change, directions, pod_level_differs,
};
pub use event::ResizeEvent;
use k8s_openapi::api::core::v1::PodStatus;
use logic_api::pod::conditions::{RESIZE_IN_PROGRESS, RESIZE_PENDING};
pub use order::{PendingResize, order};
pub use progress::{PodMemoryLimits, in_progress, memory_refusal};
pub use requested::{Requested, infeasible_detail, requested};
use serde::{Deserialize, Serialize};

/// Why a wanted change is not allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ResizeRefusal {
    /// It fits the node, but not beside the pods that are there now.
    Deferred,
    /// It can never fit this node.
    Infeasible,
}

impl ResizeRefusal {
    /// The reason of the condition `PodResizePending`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Deferred => "Deferred",
            Self::Infeasible => "Infeasible",
        }
    }
}

/// Where a resize stands; the default is: there is none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResizeState {
    /// The change that is wanted and not allocated: reason and message.
    pub pending: Option<(ResizeRefusal, String)>,
    /// The pod's generation that wants it.
    pub pending_generation: Option<i64>,
    /// An allocated change is being carried out.
    pub in_progress: bool,
    /// Why the last attempt at it failed.
    pub error: Option<String>,
    /// The pod's generation that is being carried out.
    pub generation: Option<i64>,
}

impl ResizeState {
    /// The progress as a status shows it: a restarted worker continues from there.
    ///
    /// Upstream: `BackfillPodResizeConditions` of status_manager.go (1.36).
    pub fn from_status(status: Option<&PodStatus>) -> Self {
        let conditions = status
            .into_iter()
            .flat_map(|s| s.conditions.iter().flatten());
        let mut state = Self::default();
        for condition in conditions.filter(|condition| condition.status == "True") {
            let message = || condition.message.clone().unwrap_or_default();
            match (condition.type_.as_str(), condition.reason.as_deref()) {
                (RESIZE_PENDING, reason) => {
                    let refusal = match reason {
                        Some("Infeasible") => ResizeRefusal::Infeasible,
                        Some(_) | None => ResizeRefusal::Deferred,
                    };
                    state.pending = Some((refusal, message()));
                    state.pending_generation = condition.observed_generation;
                }
                (RESIZE_IN_PROGRESS, reason) => {
                    state.in_progress = true;
                    state.error = (reason == Some("Error")).then(message);
                    state.generation = condition.observed_generation;
                }
                _ => {}
            }
        }
        state
    }

    /// Which generation is carried out: the one whose resources were `allocated` last, or the one that was carried
    /// out before. Without either it is the pod's `newest`. Newer ones that are refused, or ask for nothing else,
    /// change nothing.
    pub fn carried_out(&self, allocated: Option<i64>, newest: Option<i64>) -> Option<i64> {
        let before = self.generation.filter(|_| self.in_progress);
        allocated.or(before).or(newest)
    }

    /// What happened on the way to `next`. Each allocation starts a resize, one that overtakes another too. What waits
    /// is told once for each generation and refusal, whatever the refusal's words become while it waits.
    pub fn events<'a>(&self, next: &'a Self) -> impl Iterator<Item = ResizeEvent> + use<'a> {
        let waits = next
            .pending
            .as_ref()
            .filter(|_| next.refused() != self.refused());
        let failed = next.error.as_ref().filter(|_| next.error != self.error);
        let moved = match (self.in_progress, next.in_progress) {
            (true, true) if self.generation != next.generation => Some(ResizeEvent::Started),
            (false, true) => Some(ResizeEvent::Started),
            (true, false) => Some(ResizeEvent::Completed),
            (false, false) | (true, true) => None,
        };
        let waits = waits.map(|(refusal, why)| ResizeEvent::Waits(*refusal, why.clone()));
        let failed = failed.map(|why| ResizeEvent::Failed(why.clone()));
        moved.into_iter().chain(waits).chain(failed)
    }

    fn refused(&self) -> Option<(ResizeRefusal, Option<i64>)> {
        let (refusal, _) = self.pending.as_ref()?;
        Some((*refusal, self.pending_generation))
    }
}

#[cfg(test)]
mod tests;
