//! The last touches: a terminated pod's containers are closed, and sizes and times are trimmed.
//!
//! Mirrors upstream's `TerminatePod` and `normalizeStatus` (status_manager.go).

use jiff::{Timestamp, Unit};
use k8s_openapi::api::core::v1::{ContainerState, ContainerStatus, Pod, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use logic_api::pod::labels::truncate;
use logic_api::pod::{PodView, is_sidecar};

use super::PodPhase;
use super::containers::{
    CONTAINER_STATUS_UNKNOWN, ContainerStatuses, LOST_AT_THE_END, lost, terminated,
};

/// All termination messages of a pod together.
const MAX_MESSAGES_BYTES: usize = 12 * 1024;

/// Whether the pod ever got as far as its app containers.
fn has_initialized(pod: &Pod, statuses: &ContainerStatuses) -> bool {
    if pod.init_containers().is_empty() || statuses.apps.iter().any(ever_started) {
        return true;
    }
    let Some((spec, last)) = pod.init_containers().last().zip(statuses.inits.last()) else {
        return false;
    };
    let state = last.state.as_ref();
    if is_sidecar(spec) {
        return state.is_some_and(|s| s.running.is_some()) && last.started == Some(true);
    }
    let succeeded = |state: Option<&ContainerState>| {
        let end = state.and_then(|s| s.terminated.as_ref());
        end.is_some_and(|end| end.exit_code == 0)
    };
    succeeded(state) || succeeded(last.last_state.as_ref())
}

/// Marks every container as terminated: one whose exit was not observed terminated in error.
pub(super) fn close_containers(pod: &Pod, statuses: &mut ContainerStatuses) {
    let initialized = has_initialized(pod, statuses);
    let ContainerStatuses { inits, apps, .. } = statuses;
    let last_started = inits.iter().rposition(ever_started);
    let attempted = last_started.map_or(inits.len().min(1), |index| index + 1);
    let apps = apps.iter_mut().filter(|_| initialized);
    for status in inits.iter_mut().take(attempted).chain(apps) {
        let state = status.state.as_ref();
        if state.is_none_or(|state| state.terminated.is_none()) {
            let end = lost(CONTAINER_STATUS_UNKNOWN, LOST_AT_THE_END);
            status.state = Some(terminated(end));
            status.ready = false;
            status.started = Some(false);
        }
    }
}

/// The last status of a pod without a worker: the known status, with all containers terminated.
pub fn closed(pod: &Pod, known: &PodStatus) -> PodStatus {
    let mut status = known.clone();
    let mut statuses = ContainerStatuses {
        inits: status.init_container_statuses.take().unwrap_or_default(),
        apps: status.container_statuses.take().unwrap_or_default(),
        ephemerals: Vec::new(),
    };
    close_containers(pod, &mut statuses);
    status.init_container_statuses = super::some_list(statuses.inits);
    status.container_statuses = super::some_list(statuses.apps);
    let phase = status.phase.as_deref().and_then(PodPhase::from_name);
    if !pod.is_static() && !phase.is_some_and(PodPhase::is_terminal) {
        status.phase = Some(PodPhase::Failed.as_str().to_owned());
    }
    normalize(pod, &mut status);
    status
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
    let containers = pod.all_containers().count() + pod.ephemeral_containers().len();
    let longest = MAX_MESSAGES_BYTES / containers.max(1);

    trim(&mut status.start_time);
    for condition in status.conditions.iter_mut().flatten() {
        trim(&mut condition.last_probe_time);
        trim(&mut condition.last_transition_time);
    }
    let inits = status.init_container_statuses.iter_mut().flatten();
    let apps = status.container_statuses.iter_mut().flatten();
    let ephemerals = status.ephemeral_container_statuses.iter_mut().flatten();
    for container in inits.chain(apps).chain(ephemerals) {
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
