//! What is wrong with a container that runs, and what each container needs.

use k8s_openapi::api::core::v1::{self as core, Pod};
use logic_api::pod::hash::container_hash;
use logic_api::types::{ContainerHealth, ProbeResult, RuntimeContainer};

use super::PodObservation;
use super::kill::KillReason;
use crate::probes::initial_health;
use crate::resize::{ResizeAction, allocated_and_actuated, container_change};

/// One thing to be done for one container.
#[derive(Debug, PartialEq)]
pub(super) enum ContainerAction<'a> {
    Start(&'a core::Container),
    /// Ends an instance that is no longer wanted.
    Kill {
        instance: &'a RuntimeContainer,
        cause: KillReason,
        message: String,
    },
    /// Has a running instance enforce what is allocated now.
    Resize {
        instance: &'a RuntimeContainer,
        spec: &'a core::Container,
    },
}

/// Why a running container cannot go on as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RestartReason {
    Changed,
    Liveness,
    Startup,
    /// Its resize policy wants a restart.
    Resize,
}

impl RestartReason {
    pub(super) fn cause(self) -> KillReason {
        match self {
            Self::Liveness => KillReason::LivenessProbe,
            Self::Startup => KillReason::StartupProbe,
            Self::Resize => KillReason::Resize,
            Self::Changed => KillReason::Other,
        }
    }

    /// What upstream's messages say after the container's name.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Changed => "definition changed",
            Self::Liveness => "failed liveness probe",
            Self::Startup => "failed startup probe",
            Self::Resize => "resize requires restart",
        }
    }
}

/// What is known of one running instance.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunningContainer<'a> {
    pub(super) spec: &'a core::Container,
    pub(super) instance: &'a RuntimeContainer,
    pub(super) health: ContainerHealth,
    change: ResizeAction,
}

impl<'a> RunningContainer<'a> {
    pub(super) fn new(
        pod: &Pod,
        (spec, instance): (&'a core::Container, &'a RuntimeContainer),
        observed: &PodObservation<'_>,
    ) -> Self {
        let health = observed.health.get(&instance.id).copied();
        Self {
            spec,
            instance,
            health: health.unwrap_or_else(|| initial_health(spec)),
            change: change(pod, spec, observed),
        }
    }

    /// The first of the defects, in the order in which they are asked for.
    pub(super) fn first(&self, order: &[RestartReason]) -> Option<RestartReason> {
        order.iter().copied().find(|defect| self.has(*defect))
    }

    fn has(&self, defect: RestartReason) -> bool {
        match defect {
            // A container without a hash was not made by a kubelet's kind: it counts as changed.
            RestartReason::Changed => self.instance.hash != Some(container_hash(self.spec)),
            RestartReason::Liveness => self.health.liveness == ProbeResult::Failure,
            RestartReason::Startup => self.health.startup == ProbeResult::Failure,
            RestartReason::Resize => self.change == ResizeAction::Restart,
        }
    }

    pub(super) fn kill(&self, defect: RestartReason, message: String) -> ContainerAction<'a> {
        ContainerAction::Kill {
            instance: self.instance,
            cause: defect.cause(),
            message,
        }
    }

    pub(super) fn resize(&self) -> Option<ContainerAction<'a>> {
        (self.change == ResizeAction::InPlace).then_some(ContainerAction::Resize {
            instance: self.instance,
            spec: self.spec,
        })
    }
}

/// Without a record of the resources last actuated, the runtime is updated, but nothing is restarted: a pod that is
/// taken over is adopted as it is.
fn change(pod: &Pod, spec: &core::Container, observed: &PodObservation<'_>) -> ResizeAction {
    let (allocated, actuated) = allocated_and_actuated(pod, spec, observed.actuated);
    match actuated {
        Some(actuated) => {
            let policy = spec.resize_policy.as_deref().unwrap_or_default();
            container_change(&allocated, &actuated, policy)
        }
        None => container_change(&allocated, &core::ResourceRequirements::default(), &[]),
    }
}
