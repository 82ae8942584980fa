//! Probes: what they say before their first result, and what becomes of a result.
//!
//! - [`schedule`]: when a probe's turn comes;
//! - [`result`]: whether it is taken then, and what its outcome makes of the container's health;
//! - [`target`], [`redirect`]: where it reaches to, and how;
//! - [`messages`]: the words, which are upstream's.
//!
//! Mirrors upstream's pkg/kubelet/prober (worker.go, prober.go, prober_manager.go) and pkg/probe at v1.36.

pub mod messages;
pub mod redirect;
pub mod result;
pub mod schedule;
pub mod target;

use k8s_openapi::api::core::v1::{Container, Pod, Probe};
use logic_api::pod::{PodView, is_sidecar};
use logic_api::types::{ContainerHealth, ContainerKind, ProbeResult};
use serde::{Deserialize, Serialize};

/// Which of a container's probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ProbeKind {
    Startup,
    Liveness,
    Readiness,
}

impl ProbeKind {
    pub const ALL: [ProbeKind; 3] = [Self::Startup, Self::Liveness, Self::Readiness];

    /// The word that upstream's messages use.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Startup => "Startup",
            Self::Liveness => "Liveness",
            Self::Readiness => "Readiness",
        }
    }

    /// The definition of this probe, if the container has one.
    pub fn of(self, container: &Container) -> Option<&Probe> {
        match self {
            Self::Startup => container.startup_probe.as_ref(),
            Self::Liveness => container.liveness_probe.as_ref(),
            Self::Readiness => container.readiness_probe.as_ref(),
        }
    }

    pub fn verdict(self, health: &ContainerHealth) -> ProbeResult {
        match self {
            Self::Startup => health.startup,
            Self::Liveness => health.liveness,
            Self::Readiness => health.readiness,
        }
    }

    pub fn set(self, health: &mut ContainerHealth, verdict: ProbeResult) {
        match self {
            Self::Startup => health.startup = verdict,
            Self::Liveness => health.liveness = verdict,
            Self::Readiness => health.readiness = verdict,
        }
    }
}

impl From<ProbeKind> for &'static str {
    fn from(kind: ProbeKind) -> Self {
        kind.as_str()
    }
}

/// Whether a pod is kept alive or being ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum ProbeStage {
    Live,
    /// Readiness is probed to the end; what would restart a container is not.
    Terminating,
}

/// The health of a new instance before its first probe results: it lives, it has not started if it has a startup
/// probe, and it is not ready if it has a readiness probe.
pub fn initial_health(container: &Container) -> ContainerHealth {
    ContainerHealth {
        startup: match container.startup_probe {
            Some(_) => ProbeResult::Unknown,
            None => ProbeResult::Success,
        },
        liveness: ProbeResult::Success,
        readiness: match container.readiness_probe {
            Some(_) => ProbeResult::Failure,
            None => ProbeResult::Success,
        },
    }
}

/// The probes that a running container is to be given, in the order of their kinds.
///
/// Init containers have none, unless they are sidecars; ephemeral containers cannot have any.
pub fn probes_of_container(pod: &Pod, container: &str, stage: ProbeStage) -> Vec<ProbeKind> {
    let Some((kind, spec)) = pod.container(container) else {
        return Vec::new();
    };
    let probed = match kind {
        ContainerKind::App => true,
        ContainerKind::Init => is_sidecar(&spec),
        ContainerKind::Ephemeral => false,
    };
    let due = |kind: &ProbeKind| match stage {
        ProbeStage::Live => true,
        ProbeStage::Terminating => *kind == ProbeKind::Readiness,
    };
    let all = ProbeKind::ALL.into_iter().filter(|_| probed);
    all.filter(due)
        .filter(|kind| kind.of(&spec).is_some())
        .collect()
}

#[cfg(test)]
mod tests {
    use logic_api::testing::{PodBuilder, pod};

    use super::*;

    fn probed(container: &mut Container) {
        container.startup_probe = Some(Probe::default());
        container.liveness_probe = Some(Probe::default());
        container.readiness_probe = Some(Probe::default());
    }

    /// Upstream's TestAddRemovePods and TestAddRemovePodsWithRestartableInitContainer: who gets workers.
    #[test]
    fn app_containers_and_sidecars_are_probed_and_other_init_containers_are_not() {
        let mut pod = pod("a").app_with("app", probed).app("plain");
        let mut sidecar = logic_api::testing::spec_container("sidecar");
        probed(&mut sidecar);
        let mut init = sidecar.clone();
        init.name = "init".into();
        sidecar.restart_policy = Some("Always".into());
        pod = pod.spec_with(|spec| spec.init_containers = Some(vec![init, sidecar]));
        let count = |name| probes_of_container(&pod, name, ProbeStage::Live).len();
        let counts = ["app", "plain", "init", "sidecar", "unknown"].map(count);
        assert_eq!(counts, [3, 0, 0, 3, 0]);
    }

    /// Upstream's StopLivenessAndStartup.
    #[test]
    fn a_terminating_pod_is_asked_for_its_readiness_alone() {
        let pod = pod("a").app_with("app", probed);
        let kinds = probes_of_container(&pod, "app", ProbeStage::Terminating);
        assert_eq!(kinds, [ProbeKind::Readiness]);
    }

    /// Upstream's newWorker: the values before the first result.
    #[test]
    fn a_new_instance_lives_but_is_neither_started_nor_ready_before_its_probes_say_so() {
        let mut container = Container::default();
        let bare = initial_health(&container);
        let all = [bare.startup, bare.liveness, bare.readiness];
        assert_eq!(all, [ProbeResult::Success; 3]);
        probed(&mut container);
        let health = initial_health(&container);
        let all = [health.startup, health.liveness, health.readiness];
        let expected = [
            ProbeResult::Unknown,
            ProbeResult::Success,
            ProbeResult::Failure,
        ];
        assert_eq!(all, expected);
    }
}
