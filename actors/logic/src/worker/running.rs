//! What is wrong with a container that runs, and what each container needs.

use k8s_openapi::api::core::v1 as core;

use super::Observed;
use super::kill::Cause;
use crate::hash::container_hash;
use crate::probes::initial_health;
use crate::resize::{Change, container_change};
use crate::types::{Container, Health, Verdict};

/// One thing to be done for one container.
#[derive(Debug, PartialEq)]
pub(super) enum Need<'a> {
    Start(&'a core::Container),
    /// Ends an instance that is no longer wanted.
    Kill {
        instance: &'a Container,
        cause: Cause,
        message: String,
    },
    /// Has a running instance enforce what is allocated now.
    Resize {
        instance: &'a Container,
        spec: &'a core::Container,
    },
}

/// Why a running container cannot go on as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Defect {
    Changed,
    Liveness,
    Startup,
    /// Its resize policy wants a restart.
    Resize,
}

impl Defect {
    pub(super) fn cause(self) -> Cause {
        match self {
            Self::Liveness => Cause::LivenessProbe,
            Self::Startup => Cause::StartupProbe,
            Self::Changed | Self::Resize => Cause::Other,
        }
    }

    /// What upstream's messages say after the container's name.
    pub(super) fn text(self) -> &'static str {
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
pub(super) struct Running<'a> {
    pub(super) spec: &'a core::Container,
    pub(super) instance: &'a Container,
    pub(super) health: Health,
    change: Change,
}

impl<'a> Running<'a> {
    pub(super) fn new(
        spec: &'a core::Container,
        instance: &'a Container,
        observed: &Observed<'_>,
    ) -> Self {
        let health = observed.health.get(&instance.id).copied();
        Self {
            spec,
            instance,
            health: health.unwrap_or_else(|| initial_health(spec)),
            change: change(spec, observed),
        }
    }

    /// The first of the defects, in the order in which they are asked for.
    pub(super) fn first(&self, order: &[Defect]) -> Option<Defect> {
        order.iter().copied().find(|defect| self.has(*defect))
    }

    fn has(&self, defect: Defect) -> bool {
        match defect {
            // A container without a hash was not made by a kubelet's kind: it counts as changed.
            Defect::Changed => self.instance.hash != Some(container_hash(self.spec)),
            Defect::Liveness => self.health.liveness == Verdict::Failure,
            Defect::Startup => self.health.startup == Verdict::Failure,
            Defect::Resize => self.change == Change::Restart,
        }
    }

    pub(super) fn kill(&self, defect: Defect, message: String) -> Need<'a> {
        Need::Kill {
            instance: self.instance,
            cause: defect.cause(),
            message,
        }
    }

    pub(super) fn resize(&self) -> Option<Need<'a>> {
        (self.change == Change::InPlace).then_some(Need::Resize {
            instance: self.instance,
            spec: self.spec,
        })
    }
}

/// Where nobody noted what was last carried out, the runtime is told, but nothing is restarted: a pod that
/// is taken over is adopted as it is.
fn change(spec: &core::Container, observed: &Observed<'_>) -> Change {
    let allocated = spec.resources.clone().unwrap_or_default();
    match observed.actuated.get(&spec.name) {
        Some(actuated) => {
            let policy = spec.resize_policy.as_deref().unwrap_or_default();
            container_change(&allocated, actuated, policy)
        }
        None => container_change(&allocated, &core::ResourceRequirements::default(), &[]),
    }
}
