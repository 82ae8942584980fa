//! The last touches: a terminated pod's containers are closed, and sizes and times are trimmed.
//!
//! Mirrors upstream's `TerminatePod` and `normalizeStatus` (status_manager.go).

use jiff::{Timestamp, Unit};
use k8s_openapi::api::core::v1::{ContainerState, ContainerStatus, Pod, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::containers::{lost, terminated};
use crate::labels::truncate;
use crate::pod::PodView;

/// All termination messages of a pod together.
const LONGEST_MESSAGES: usize = 12 * 1024;

/// Whether the pod ever got as far as its app containers.
pub(super) fn has_initialized(
    pod: &Pod,
    inits: &[ContainerStatus],
    apps: &[ContainerStatus],
) -> bool {
    if pod.init_containers().is_empty() || apps.iter().any(ever_started) {
        return true;
    }
    let succeeded = |state: Option<&ContainerState>| {
        let end = state.and_then(|s| s.terminated.as_ref());
        end.is_some_and(|end| end.exit_code == 0)
    };
    let last = inits.last();
    last.is_some_and(|s| succeeded(s.state.as_ref()) || succeeded(s.last_state.as_ref()))
}

/// Every container that should have ended, ended: one whose end nobody saw ended in error.
pub(super) fn close_containers(
    inits: &mut [ContainerStatus],
    apps: &mut [ContainerStatus],
    initialized: bool,
) {
    let last_started = inits.iter().rposition(ever_started);
    let attempted = last_started.map_or(inits.len().min(1), |index| index + 1);
    let apps = if initialized { apps } else { &mut [] };
    for status in inits.iter_mut().take(attempted).chain(apps) {
        let ended = status
            .state
            .as_ref()
            .is_some_and(|s| s.terminated.is_some());
        if !ended {
            let text = "The container could not be located when the pod was terminated";
            status.state = Some(terminated(lost(text)));
            status.ready = false;
            status.started = Some(false);
        }
    }
}

fn ever_started(status: &ContainerStatus) -> bool {
    let waits = status.state.as_ref().is_some_and(|s| s.waiting.is_some());
    let ended_before = status
        .last_state
        .as_ref()
        .is_some_and(|s| s.terminated.is_some());
    !waits || ended_before
}

pub(super) fn normalize(pod: &Pod, status: &mut PodStatus) {
    let ephemeral = pod
        .spec()
        .and_then(|s| s.ephemeral_containers.as_ref())
        .map_or(0, Vec::len);
    let containers = pod.all_containers().count() + ephemeral;
    let longest = LONGEST_MESSAGES / containers.max(1);

    trim(&mut status.start_time);
    for condition in status.conditions.iter_mut().flatten() {
        trim(&mut condition.last_probe_time);
        trim(&mut condition.last_transition_time);
    }
    let inits = status.init_container_statuses.iter_mut().flatten();
    let apps = status.container_statuses.iter_mut().flatten();
    for container in inits.chain(apps) {
        for state in [&mut container.state, &mut container.last_state]
            .into_iter()
            .flatten()
        {
            normalize_state(state, longest);
        }
    }
}

fn normalize_state(state: &mut ContainerState, longest: usize) {
    if let Some(running) = &mut state.running {
        trim(&mut running.started_at);
    }
    if let Some(end) = &mut state.terminated {
        trim(&mut end.started_at);
        trim(&mut end.finished_at);
        if let Some(message) = &mut end.message {
            truncate(message, longest);
        }
    }
}

/// The API keeps whole seconds.
fn trim(time: &mut Option<Time>) {
    if let Some(Time(at)) = time {
        let whole = Timestamp::from_second(at.as_second());
        *at = whole.or_else(|_| at.round(Unit::Second)).unwrap_or(*at);
    }
}
