//! The end of a pod or container: how long it gets, and in what order things stop.
//!
//! Mirrors upstream's `setTerminationGracePeriod` and `killContainer` (kuberuntime_container.go),
//! kuberuntime_termination_order.go and `calculateEffectiveGracePeriod` (pod_workers.go) at v1.36.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::{self as core, Pod};
use logic_api::pod::{PodView, is_sidecar};
use logic_api::types::{ContainerKind, EventLevel, HistoryEvent, RuntimeContainer, RuntimePod};
use serde::{Deserialize, Serialize};

use super::plan::{PodAction, PodPlan};

/// Every container gets at least this long, so that a short grace is not a bare SIGKILL.
pub const MINIMUM_GRACE: Duration = Duration::from_secs(2);
/// A pod that ends gets at least this long, so that its hooks begin.
const MINIMUM_TERMINATION: Duration = Duration::from_secs(1);
/// The API takes any number of seconds; a century later is still a time that a clock can tell.
const MAX_GRACE: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// Why a container is killed while its pod lives on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KillReason {
    StartupProbe,
    LivenessProbe,
    RestartAllContainers,
    /// Its resize policy wants it started with its new resources.
    Resize,
    Other,
}

/// Whether a container's preStop hook is run before it is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum PreStopHooks {
    Run,
    /// There is no time for it at all.
    Skip,
}

/// The grace period of a container that is killed while its pod lives on; zero kills it at once.
///
/// A failed probe's `terminationGracePeriodSeconds` overrides the pod's. Where all containers are restarted, there is
/// no grace period.
pub fn kill_grace(pod: &Pod, name: &str, cause: KillReason) -> Duration {
    if cause == KillReason::RestartAllContainers {
        return Duration::ZERO;
    }
    if let Some(deletion) = deletion_grace(pod) {
        return deletion;
    }
    let Some(defined) = defined_grace(pod) else {
        return MINIMUM_GRACE;
    };
    let spec = pod.container(name).map(|(_, spec)| spec);
    spec.and_then(|spec| probe_grace(&spec, cause))
        .unwrap_or(defined)
}

/// The grace period of a container whose pod terminates.
///
/// The shorter of the agent's own (eviction, shutdown) and the deletion's, and only without them the spec's. So a
/// second deletion shortens the first. Where the pod's object is gone, the container's own annotation stands in.
pub fn termination_grace(
    pod: Option<&Pod>,
    container: &RuntimeContainer,
    given: Option<Duration>,
) -> Duration {
    let asked = given.into_iter().chain(pod.and_then(deletion_grace)).min();
    let defined = || match pod {
        Some(pod) => defined_grace(pod),
        None => container.termination_grace.map(Duration::from_secs),
    };
    let grace = asked.or_else(defined).unwrap_or_default();
    grace.clamp(MINIMUM_TERMINATION, MAX_GRACE)
}

fn deletion_grace(pod: &Pod) -> Option<Duration> {
    pod.metadata.deletion_grace_period_seconds.map(seconds)
}

fn defined_grace(pod: &Pod) -> Option<Duration> {
    pod.spec()?.termination_grace_period_seconds.map(seconds)
}

fn probe_grace(spec: &core::Container, cause: KillReason) -> Option<Duration> {
    let probe = match cause {
        KillReason::StartupProbe => spec.startup_probe.as_ref(),
        KillReason::LivenessProbe => spec.liveness_probe.as_ref(),
        KillReason::RestartAllContainers | KillReason::Resize | KillReason::Other => None,
    };
    probe?.termination_grace_period_seconds.map(seconds)
}

fn seconds(count: i64) -> Duration {
    Duration::from_secs(u64::try_from(count).unwrap_or(0)).min(MAX_GRACE)
}

/// The plan that terminates a pod: every container that may run is killed, then every sandbox is stopped.
///
/// It is done when [`RuntimePod::is_stopped`]. Sandboxes are stopped even when they are not ready: only
/// that gives back their addresses. `pod` is none for an orphan that only the runtime knows.
pub fn termination_plan(
    pod: Option<&Pod>,
    runtime: &RuntimePod,
    given: Option<Duration>,
) -> PodPlan {
    let mut plan = PodPlan::default();
    plan.actions = kill_all(pod, runtime, |c| termination_grace(pod, c, given));
    plan.why = plan.actions.iter().filter_map(killing).collect();
    let mut sorted = runtime.clone();
    sorted.sort();
    let sandboxes = sorted.sandboxes.into_iter();
    plan.actions
        .extend(sandboxes.map(|s| PodAction::StopSandbox { sandbox: s.id }));
    plan
}

/// Kills every container of the pod that may run, sidecars after the app containers, the last one first.
pub(super) fn kill_all(
    pod: Option<&Pod>,
    runtime: &RuntimePod,
    grace: impl Fn(&RuntimeContainer) -> Duration,
) -> Vec<PodAction> {
    let mut sorted = runtime.clone();
    sorted.sort();
    let turns = pod
        .map(|pod| sidecar_turns(pod, runtime))
        .unwrap_or_default();
    let alive = sorted.containers.iter().filter(|c| c.may_run());
    let kill = |container: &RuntimeContainer| {
        let turn = turns.get(container.name.as_str()).copied().unwrap_or(0);
        let message = format!("Stopping container {}", container.name);
        kill(pod, container, grace(container), message).in_turn(turn)
    };
    alive.map(kill).collect()
}

/// The turns of the sidecars that may run, from the last to the first.
fn sidecar_turns<'a>(pod: &'a Pod, runtime: &RuntimePod) -> BTreeMap<&'a str, u32> {
    let alive = |name: &str| runtime.instances(name).any(RuntimeContainer::may_run);
    let sidecars = pod.init_containers().iter().rev().filter(|c| is_sidecar(c));
    let names = sidecars.map(|c| c.name.as_str()).filter(|name| alive(name));
    names.zip(1..).collect()
}

/// One kill in the first turn.
pub(super) fn kill(
    pod: Option<&Pod>,
    container: &RuntimeContainer,
    grace: Duration,
    message: String,
) -> PodAction {
    let kind = pod.and_then(|pod| Some(pod.container(&container.name)?.0));
    PodAction::KillContainer {
        id: container.id.clone(),
        name: container.name.clone(),
        kind,
        grace: grace.max(MINIMUM_GRACE),
        turn: 0,
        hooks: if grace.is_zero() {
            PreStopHooks::Skip
        } else {
            PreStopHooks::Run
        },
        message,
    }
}

impl PodAction {
    /// The same kill in a later turn; without a grace period it waits for no other container.
    fn in_turn(mut self, later: u32) -> Self {
        if let Self::KillContainer {
            turn,
            hooks: PreStopHooks::Run,
            ..
        } = &mut self
        {
            *turn = later;
        }
        self
    }

    /// Whether this kill begins only when that other kill's container has ended: a sidecar waits for the app
    /// containers and for the sidecars after it; init and ephemeral containers are never waited for.
    pub fn waits_for(&self, neighbour: &PodAction) -> bool {
        let (Self::KillContainer { turn: mine, .. }, Self::KillContainer { turn, kind, .. }) =
            (self, neighbour)
        else {
            return false;
        };
        turn < mine && (*turn > 0 || *kind == Some(ContainerKind::App))
    }
}

/// The event of a kill.
pub(super) fn killing(action: &PodAction) -> Option<HistoryEvent> {
    let PodAction::KillContainer { name, message, .. } = action else {
        return None;
    };
    Some(HistoryEvent {
        object: Some(name.clone()),
        weight: EventLevel::Normal,
        reason: "Killing".to_owned(),
        message: message.clone(),
    })
}
