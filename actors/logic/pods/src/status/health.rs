//! Whether containers have started and are ready (upstream's `UpdatePodStatus` of its prober).

use k8s_openapi::api::core::v1::{self as core, ContainerStatus};
use logic_api::pod::is_sidecar;
use logic_api::types::{ContainerKind, ProbeResult};

use super::StatusInput;
use crate::probes::initial_health;

/// Puts `started` and `ready` into a status.
pub(super) fn put(
    input: &StatusInput<'_>,
    (kind, spec): (ContainerKind, &core::Container),
    old: Option<&ContainerStatus>,
    status: &mut ContainerStatus,
) {
    let (started, ready) = probed(input, spec, old, status);
    match kind {
        // Nothing probes it, and nothing waits for it.
        ContainerKind::Ephemeral => (status.started, status.ready) = (None, false),
        ContainerKind::Init if !is_sidecar(spec) => {
            let ended = status.state.as_ref().and_then(|s| s.terminated.as_ref());
            status.started = Some(started);
            status.ready = ended.is_some_and(|end| end.exit_code == 0);
        }
        ContainerKind::Init | ContainerKind::App => {
            (status.started, status.ready) = (Some(started), ready);
        }
    }
}

/// By its probes; where they have no result yet, the last status of the same instance stays: a restart of the agent
/// makes no container unready.
fn probed(
    input: &StatusInput<'_>,
    spec: &core::Container,
    old: Option<&ContainerStatus>,
    status: &ContainerStatus,
) -> (bool, bool) {
    if status
        .state
        .as_ref()
        .is_none_or(|state| state.running.is_none())
    {
        return (false, false);
    }
    let newest = input.runtime.newest(&spec.name);
    if let Some(health) = newest.and_then(|c| input.health.get(&c.id)) {
        let started = health.startup == ProbeResult::Success;
        return (started, started && health.readiness == ProbeResult::Success);
    }
    let initial = initial_health(spec);
    let same = old.filter(|old| old.container_id == status.container_id);
    let was_started = same.is_some_and(|old| old.started == Some(true));
    let was_ready = same.is_some_and(|old| old.ready);
    let started = initial.startup == ProbeResult::Success || was_started;
    (
        started,
        started && (initial.readiness == ProbeResult::Success || was_ready),
    )
}
