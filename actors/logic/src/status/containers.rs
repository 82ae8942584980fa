//! Container statuses (upstream's `convertToAPIContainerStatuses`, and what its prober adds).

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    self as core, ContainerState, ContainerStateRunning, ContainerStateTerminated,
    ContainerStateWaiting, ContainerStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::StatusInput;
use crate::pod::PodView;
use crate::types::{Container, ContainerKind, ContainerState as Seen, RuntimePod};
use crate::worker::should_start;

/// The reason of an end that nobody saw.
pub const CONTAINER_STATUS_UNKNOWN: &str = "ContainerStatusUnknown";
pub const CONTAINER_CREATING: &str = "ContainerCreating";
pub const POD_INITIALIZING: &str = "PodInitializing";

/// Statuses of the init containers, in the order of the spec.
pub fn init_statuses(input: &StatusInput<'_>) -> Vec<ContainerStatus> {
    let old = input
        .old()
        .and_then(|s| s.init_container_statuses.as_deref());
    let mut statuses = statuses(input, ContainerKind::Init, old.unwrap_or_default());
    for status in &mut statuses {
        let state = status.state.as_ref();
        status.started = Some(state.is_some_and(|s| s.running.is_some()));
        let ended = state.and_then(|s| s.terminated.as_ref());
        status.ready = ended.is_some_and(|end| end.exit_code == 0);
    }
    statuses
}

/// Statuses of the app containers, by name.
pub fn app_statuses(input: &StatusInput<'_>) -> Vec<ContainerStatus> {
    let old = input.old().and_then(|s| s.container_statuses.as_deref());
    let mut statuses = statuses(input, ContainerKind::App, old.unwrap_or_default());
    for status in &mut statuses {
        // Without probes, what runs is started, and what is started is ready.
        let running = status.state.as_ref().is_some_and(|s| s.running.is_some());
        status.started = Some(running);
        status.ready = running;
    }
    statuses.sort_by(|a, b| a.name.cmp(&b.name));
    statuses
}

fn statuses(
    input: &StatusInput<'_>,
    kind: ContainerKind,
    old: &[ContainerStatus],
) -> Vec<ContainerStatus> {
    let old: BTreeMap<&str, &ContainerStatus> = old.iter().map(|s| (s.name.as_str(), s)).collect();
    let specs = match kind {
        ContainerKind::Init => input.pod.init_containers(),
        ContainerKind::App => input.pod.app_containers(),
    };
    specs
        .iter()
        .map(|spec| {
            let old = old.get(spec.name.as_str()).copied();
            let mut status = match newest_two(input.runtime, &spec.name) {
                (Some(newest), before) => from_runtime(input, spec, newest, before, old),
                (None, _) => from_memory(input, spec, old),
            };
            wait(input, kind, spec, &mut status);
            status
        })
        .collect()
}

/// The newest two instances by creation, as upstream orders them; the attempt stands in where a time is
/// missing.
fn newest_two<'a>(
    runtime: &'a RuntimePod,
    name: &str,
) -> (Option<&'a Container>, Option<&'a Container>) {
    let mut list: Vec<_> = runtime
        .containers
        .iter()
        .filter(|c| c.name == name)
        .collect();
    list.sort_by(|a, b| (b.attempt, b.created_at, &b.id).cmp(&(a.attempt, a.created_at, &a.id)));
    let mut list = list.into_iter();
    (list.next(), list.next())
}

fn from_runtime(
    input: &StatusInput<'_>,
    spec: &core::Container,
    newest: &Container,
    before: Option<&Container>,
    old: Option<&ContainerStatus>,
) -> ContainerStatus {
    let mut status = convert(input, newest, old);
    status.last_state = before.and_then(|before| convert(input, before, old).state);
    status.volume_mounts = old.and_then(|old| old.volume_mounts.clone());
    if input
        .pod
        .app_containers()
        .iter()
        .any(|c| c.name == spec.name)
    {
        status.resources = Some(spec.resources.clone().unwrap_or_default());
    }
    status
}

fn convert(
    input: &StatusInput<'_>,
    container: &Container,
    old: Option<&ContainerStatus>,
) -> ContainerStatus {
    let id = format!("{}://{}", input.runtime_name, container.id);
    let mut status = ContainerStatus {
        name: container.name.clone(),
        restart_count: i32::try_from(container.restart_count).unwrap_or(i32::MAX),
        image: container.image.clone(),
        image_id: container.image_id.clone(),
        container_id: Some(id.clone()),
        ..ContainerStatus::default()
    };
    let was_running = old.is_some_and(|s| s.state.as_ref().is_some_and(|s| s.running.is_some()));
    status.state = Some(match container.state {
        Seen::Running => ContainerState {
            running: Some(ContainerStateRunning {
                started_at: container.started_at.map(Time),
            }),
            ..ContainerState::default()
        },
        Seen::Exited => terminated(ContainerStateTerminated {
            exit_code: container.exit_code,
            reason: some_text(&container.reason),
            message: some_text(&container.message),
            started_at: container.started_at.map(Time),
            finished_at: container.finished_at.map(Time),
            container_id: Some(id),
            signal: None,
        }),
        Seen::Unknown if was_running => {
            status.restart_count = old.map_or(0, |s| s.restart_count).saturating_add(1);
            terminated(lost(
                "The container could not be located when the pod was terminated",
            ))
        }
        Seen::Created | Seen::Unknown => waiting("", ""),
    });
    status
}

/// A container that the runtime does not know: not made yet, or forgotten.
fn from_memory(
    input: &StatusInput<'_>,
    spec: &core::Container,
    old: Option<&ContainerStatus>,
) -> ContainerStatus {
    let state = |status: &ContainerStatus| status.state.clone().unwrap_or_default();
    if let Some(ended) = old.filter(|old| state(old).terminated.is_some()) {
        return ended.clone();
    }
    let initializing = !input.pod.init_containers().is_empty();
    let reason = if initializing {
        POD_INITIALIZING
    } else {
        CONTAINER_CREATING
    };
    let mut status = ContainerStatus {
        name: spec.name.clone(),
        image: spec.image.clone().unwrap_or_default(),
        state: Some(waiting(reason, "")),
        restart_count: old.map_or(0, |old| old.restart_count),
        last_state: old.and_then(|old| old.last_state.clone()),
        ..ContainerStatus::default()
    };
    let has_ended_before = status
        .last_state
        .as_ref()
        .is_some_and(|s| s.terminated.is_some());
    // It ran when last seen, so it ended, whoever removed it. As a mere waiting container it would put
    // the pod back to Pending.
    if old.is_some_and(|old| state(old).running.is_some()) && !has_ended_before {
        let text = "The container could not be located when the pod was deleted.  The container used to be Running";
        status.last_state = Some(terminated(lost(text)));
        if input.pod.metadata.deletion_timestamp.is_none() {
            status.restart_count = status.restart_count.saturating_add(1);
        }
    }
    status
}

/// A container about to be started that could not be is waiting, whatever it did before.
fn wait(
    input: &StatusInput<'_>,
    kind: ContainerKind,
    spec: &core::Container,
    status: &mut ContainerStatus,
) {
    let newest = input.runtime.newest(&spec.name);
    if kind == ContainerKind::Init && newest.is_some_and(Container::succeeded) {
        return;
    }
    let Some(reason) = input.waiting.get(&spec.name) else {
        return;
    };
    if !should_start(input.pod, spec, newest) {
        return;
    }
    let ended = status
        .state
        .take()
        .filter(|state| state.terminated.is_some());
    if ended.is_some() {
        status.last_state = ended;
    }
    status.state = Some(waiting(&reason.reason, &reason.message));
}

pub(super) fn lost(message: &str) -> ContainerStateTerminated {
    ContainerStateTerminated {
        reason: Some(CONTAINER_STATUS_UNKNOWN.to_owned()),
        message: Some(message.to_owned()),
        exit_code: 137,
        ..ContainerStateTerminated::default()
    }
}

pub(super) fn terminated(end: ContainerStateTerminated) -> ContainerState {
    ContainerState {
        terminated: Some(end),
        ..ContainerState::default()
    }
}

fn waiting(reason: &str, message: &str) -> ContainerState {
    let waiting = ContainerStateWaiting {
        reason: some_text(reason),
        message: some_text(message),
    };
    ContainerState {
        waiting: Some(waiting),
        ..ContainerState::default()
    }
}

fn some_text(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}
