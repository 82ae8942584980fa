//! Container statuses (upstream's `convertToAPIContainerStatuses` at v1.36).

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    self as core, ContainerState, ContainerStateRunning, ContainerStateTerminated,
    ContainerStateWaiting, ContainerStatus, ContainerUser, LinuxContainerUser, Pod,
    VolumeMountStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use logic_api::pod::{PodView, is_sidecar};
use logic_api::types::{ContainerKind, ContainerState as Seen, RuntimeContainer, RuntimePod};

use super::restart_all::{RESTARTING_ALL, removes_all};
use super::{StatusInput, StatusStage, health, resources, was_terminal};
use crate::pod_actions::should_start;

/// The reason of an exit that was not observed.
pub const CONTAINER_STATUS_UNKNOWN: &str = "ContainerStatusUnknown";
pub const CONTAINER_CREATING: &str = "ContainerCreating";
pub const POD_INITIALIZING: &str = "PodInitializing";

const LOST_RUNNING: &str = "The container could not be located when the pod was deleted.  The container used to be Running";
pub(super) const LOST_AT_THE_END: &str =
    "The container could not be located when the pod was terminated";
const REMOVED_TO_RESTART: &str = "The container is removed because RestartAllContainers in place";
const INIT_FORGOTTEN: &str = "Unable to get init container status from container runtime and pod has been initialized, treat it as exited normally";

/// The statuses of all containers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ContainerStatuses {
    /// In the order of the spec.
    pub inits: Vec<ContainerStatus>,
    /// App containers' statuses, sorted by name.
    pub apps: Vec<ContainerStatus>,
    /// Ephemeral containers' statuses, sorted by name.
    pub ephemerals: Vec<ContainerStatus>,
}

impl ContainerStatuses {
    pub fn of(input: &StatusInput<'_>) -> Self {
        let old = input.old();
        let maker = ContainerStatusBuilder {
            input,
            restarting_all: removes_all(input.pod, input.runtime, old),
        };
        let inits = old.and_then(|s| s.init_container_statuses.as_deref());
        let apps = old.and_then(|s| s.container_statuses.as_deref());
        let ephemerals = old.and_then(|s| s.ephemeral_container_statuses.as_deref());
        let pod = input.pod;
        let by_name = |mut list: Vec<ContainerStatus>| {
            list.sort_by(|a, b| a.name.cmp(&b.name));
            list
        };
        Self {
            inits: maker.list(ContainerKind::Init, pod.init_containers(), inits),
            apps: by_name(maker.list(ContainerKind::App, pod.app_containers(), apps)),
            ephemerals: by_name(maker.list(
                ContainerKind::Ephemeral,
                &pod.ephemeral_containers(),
                ephemerals,
            )),
        }
    }

    /// Those of the containers that the pod's phase and conditions depend on.
    pub fn lasting(&self) -> Vec<&ContainerStatus> {
        self.inits.iter().chain(&self.apps).collect()
    }
}

/// Makes statuses of one pod.
struct ContainerStatusBuilder<'a> {
    input: &'a StatusInput<'a>,
    restarting_all: bool,
}

impl ContainerStatusBuilder<'_> {
    fn list(
        &self,
        kind: ContainerKind,
        specs: &[core::Container],
        old: Option<&[ContainerStatus]>,
    ) -> Vec<ContainerStatus> {
        let old = old.unwrap_or_default().iter();
        let old: BTreeMap<&str, &ContainerStatus> = old.map(|s| (s.name.as_str(), s)).collect();
        let make = |spec: &core::Container| {
            let old = old.get(spec.name.as_str()).copied();
            let mut status = match newest_two(self.input.runtime, &spec.name) {
                (Some(newest), before) if !self.is_outlived(newest, old) => {
                    self.as_reported(spec, newest, before, old)
                }
                (Some(_) | None, _) => self.as_remembered(spec, old),
            };
            self.wait(kind, spec, &mut status);
            health::put(self.input, (kind, spec), old, &mut status);
            status
        };
        specs.iter().map(make).collect()
    }

    /// Whether this instance is older than the one that the pod ended with, which was removed before it. A terminal
    /// phase is never left, and stands beside the ends that it was made of.
    fn is_outlived(&self, newest: &RuntimeContainer, old: Option<&ContainerStatus>) -> bool {
        let Some(old) = old.filter(|old| state(old).terminated.is_some()) else {
            return false;
        };
        let is_known = |container: &RuntimeContainer| {
            old.container_id.as_ref() == Some(&self.input.full_id(container))
        };
        was_terminal(self.input)
            && newest.state == Seen::Exited
            && i64::from(newest.restart_count) <= i64::from(old.restart_count)
            && old.container_id.is_some()
            && !self.input.runtime.instances(&newest.name).any(is_known)
    }

    fn as_reported(
        &self,
        spec: &core::Container,
        newest: &RuntimeContainer,
        before: Option<&RuntimeContainer>,
        old: Option<&ContainerStatus>,
    ) -> ContainerStatus {
        let mut status = self.convert(newest, old);
        if let Some(before) = before {
            status.last_state = self.convert(before, old).state;
        }
        let kept = old.and_then(|old| old.volume_mounts.clone());
        status.volume_mounts = kept.or_else(|| self.volume_mounts(spec));
        let shown = resources::of_container(self.input, spec, newest, old);
        status.resources = Some(shown);
        let asked = spec.resources.as_ref().and_then(|r| r.requests.clone());
        status.allocated_resources = asked.filter(|list| !list.is_empty());
        status.user = newest.user.as_ref().map(|user| ContainerUser {
            linux: user.linux.as_ref().map(|user| LinuxContainerUser {
                uid: user.uid,
                gid: user.gid,
                supplemental_groups: some_list(user.supplemental_groups.clone()),
            }),
        });
        status.stop_signal.clone_from(&newest.stop_signal);
        status
    }

    fn convert(
        &self,
        container: &RuntimeContainer,
        old: Option<&ContainerStatus>,
    ) -> ContainerStatus {
        let id = self.input.full_id(container);
        let mut status = ContainerStatus {
            name: container.name.clone(),
            restart_count: i32::try_from(container.restart_count).unwrap_or(i32::MAX),
            image: container.image.clone(),
            image_id: container.image_id.clone(),
            container_id: Some(id.clone()),
            ..ContainerStatus::default()
        };
        if let Some(old) = old {
            carry_over(old, &mut status);
        }
        let was_running = old.is_some_and(|old| state(old).running.is_some());
        status.state = Some(match container.state {
            Seen::Running => {
                // Its predecessor was removed together with the count.
                if let Some(old) = old.filter(|old| state(old).terminated.is_some())
                    && old.container_id != status.container_id
                    && i64::from(old.restart_count) >= i64::from(container.restart_count)
                {
                    status.restart_count = old.restart_count.saturating_add(1);
                }
                ContainerState {
                    running: Some(ContainerStateRunning {
                        started_at: container.started_at.map(Time),
                    }),
                    ..ContainerState::default()
                }
            }
            Seen::Exited => terminated(ContainerStateTerminated {
                exit_code: container.exit_code,
                reason: some_text(&container.reason),
                message: some_text(&self.message(container)),
                started_at: container.started_at.map(Time),
                finished_at: container.finished_at.map(Time),
                container_id: Some(id),
                signal: None,
            }),
            Seen::Unknown if was_running => {
                let before = old.map_or(0, |old| old.restart_count);
                status.restart_count = before.saturating_add(1);
                let reason = match self.restarting_all {
                    true => RESTARTING_ALL,
                    false => CONTAINER_STATUS_UNKNOWN,
                };
                terminated(lost(reason, LOST_AT_THE_END))
            }
            // Seen between its making and its start: to whoever watches, nothing has changed since it was to be made.
            Seen::Created => waiting(self.creating(), ""),
            Seen::Unknown => waiting("", ""),
        });
        status
    }

    /// What the runtime says of the end, then the container's own last words.
    fn message(&self, container: &RuntimeContainer) -> String {
        let said = &container.message;
        match self
            .input
            .last_words
            .get(&container.id)
            .filter(|words| !words.is_empty())
        {
            Some(words) if said.is_empty() => words.clone(),
            Some(words) => format!("{said}: {words}"),
            None => said.clone(),
        }
    }

    /// A container that the runtime does not know: not made yet, or forgotten.
    fn as_remembered(
        &self,
        spec: &core::Container,
        old: Option<&ContainerStatus>,
    ) -> ContainerStatus {
        if let Some(old) = old.filter(|old| self.restarting_all && !waits(old)) {
            return self.removed_to_restart(spec, old);
        }
        if let Some(ended) = old.filter(|old| state(old).terminated.is_some()) {
            return ended.clone();
        }
        let mut status = self.blank(spec, old);
        let has_ended_before = status
            .last_state
            .as_ref()
            .is_some_and(|s| s.terminated.is_some());
        // It ran when last seen, so it ended, whatever removed it. As a mere waiting container it would put the pod
        // back to Pending.
        if old.is_some_and(|old| state(old).running.is_some()) && !has_ended_before {
            status.last_state = Some(terminated(lost(CONTAINER_STATUS_UNKNOWN, LOST_RUNNING)));
            if self.input.pod.metadata.deletion_timestamp.is_none() {
                status.restart_count = status.restart_count.saturating_add(1);
            }
        }
        status
    }

    fn removed_to_restart(&self, spec: &core::Container, old: &ContainerStatus) -> ContainerStatus {
        let mut status = match state(old).terminated.is_some() {
            true => old.clone(),
            false => self.blank(spec, Some(old)),
        };
        status.state = Some(waiting(RESTARTING_ALL, REMOVED_TO_RESTART));
        status.last_state = Some(terminated(lost(RESTARTING_ALL, REMOVED_TO_RESTART)));
        status.restart_count = old.restart_count.saturating_add(1);
        status
    }

    fn blank(&self, spec: &core::Container, old: Option<&ContainerStatus>) -> ContainerStatus {
        ContainerStatus {
            name: spec.name.clone(),
            image: spec.image.clone().unwrap_or_default(),
            state: Some(waiting(self.creating(), "")),
            restart_count: old.map_or(0, |old| old.restart_count),
            last_state: old.and_then(|old| old.last_state.clone()),
            volume_mounts: self.volume_mounts(spec),
            ..ContainerStatus::default()
        }
    }

    /// Why a container waits that nothing keeps from being started.
    fn creating(&self) -> &'static str {
        match self.input.pod.init_containers() {
            [] => CONTAINER_CREATING,
            _ => POD_INITIALIZING,
        }
    }

    /// The mounts as the spec has them: the runtime does not know the volumes' names.
    fn volume_mounts(&self, spec: &core::Container) -> Option<Vec<VolumeMountStatus>> {
        let mount = |mount: &core::VolumeMount| VolumeMountStatus {
            name: mount.name.clone(),
            mount_path: mount.mount_path.clone(),
            read_only: mount.read_only.filter(|read_only| *read_only),
            recursive_read_only: (mount.read_only == Some(true))
                .then(|| self.recursive_read_only(mount).to_owned()),
            volume_status: None,
        };
        some_list(spec.volume_mounts.iter().flatten().map(mount).collect())
    }

    fn recursive_read_only(&self, mount: &core::VolumeMount) -> &'static str {
        let asked = mount.recursive_read_only.as_deref();
        let propagates = mount
            .mount_propagation
            .as_deref()
            .is_some_and(|mode| mode != "None");
        let possible = self.input.handler.recursive_read_only_mounts && !propagates;
        match asked {
            Some("IfPossible" | "Enabled") if possible => "Enabled",
            _ => "Disabled",
        }
    }

    /// A container about to be started that could not be is waiting, whatever it did before.
    fn wait(&self, kind: ContainerKind, spec: &core::Container, status: &mut ContainerStatus) {
        let (pod, runtime) = (self.input.pod, self.input.runtime);
        let newest = runtime.newest(&spec.name);
        if kind == ContainerKind::Init {
            if newest.is_some_and(RuntimeContainer::succeeded) {
                return;
            }
            // One that was removed to start over is not forgotten, though some app container is still to be removed.
            let forgotten = newest.is_none() && !self.restarting_all && !is_sidecar(spec);
            let forgotten = forgotten && waits(status);
            // The app containers would not be there, had it not succeeded.
            if forgotten && any_app_created(pod, runtime) {
                status.state = Some(terminated(ContainerStateTerminated {
                    reason: Some("Completed".to_owned()),
                    message: Some(INIT_FORGOTTEN.to_owned()),
                    ..ContainerStateTerminated::default()
                }));
                return;
            }
        }
        let starts = should_start(pod, spec, newest);
        let (reason, message) = match self.input.waiting.get(&spec.name) {
            Some(reason) if starts || self.is_replaced(newest) => {
                (reason.reason.as_str(), reason.message.as_str())
            }
            // The API server lets none leave an end after which its policy starts nothing: this one is not shown.
            None if !starts && self.is_replaced(newest) => (CONTAINER_CREATING, ""),
            Some(_) | None => return,
        };
        let ended = status
            .state
            .take()
            .filter(|state| state.terminated.is_some());
        if ended.is_some() {
            status.last_state = ended;
        }
        status.state = Some(waiting(reason, message));
    }

    /// Whether the instance was ended so that the container is started again.
    fn is_replaced(&self, newest: Option<&RuntimeContainer>) -> bool {
        let ended = newest.filter(|newest| newest.state == Seen::Exited);
        self.input.stage == StatusStage::Syncing
            && ended.is_some_and(|ended| self.input.replaced.contains(&ended.id))
    }
}

/// Whether any app container was ever made, in whatever sandbox.
fn any_app_created(pod: &Pod, runtime: &RuntimePod) -> bool {
    let newest = pod
        .app_containers()
        .iter()
        .filter_map(|c| runtime.newest(&c.name));
    newest.into_iter().any(|c| c.state != Seen::Unknown)
}

/// What the runtime may have forgotten, because a pod that starts over leaves nothing behind there.
fn carry_over(old: &ContainerStatus, status: &mut ContainerStatus) {
    status.restart_count = status.restart_count.max(old.restart_count);
    let is_other = old.container_id != status.container_id;
    let ended = state(old).terminated.filter(|_| is_other);
    // An instance whose start failed since stands there as ended: it is not its own predecessor.
    let before = old.last_state.as_ref().and_then(|s| s.terminated.clone());
    let before =
        before.filter(|end| end.container_id.is_none() || end.container_id != status.container_id);
    status.last_state = ended.or(before).map(terminated);
}

/// The newest two instances, the attempt before the time of creation.
fn newest_two<'a>(
    runtime: &'a RuntimePod,
    name: &str,
) -> (Option<&'a RuntimeContainer>, Option<&'a RuntimeContainer>) {
    let mut list: Vec<_> = runtime.instances(name).collect();
    list.sort_by(|a, b| (b.attempt, b.created_at, &a.id).cmp(&(a.attempt, a.created_at, &b.id)));
    let mut list = list.into_iter();
    (list.next(), list.next())
}

fn state(status: &ContainerStatus) -> ContainerState {
    status.state.clone().unwrap_or_default()
}

fn waits(status: &ContainerStatus) -> bool {
    state(status).waiting.is_some()
}

pub(super) fn lost(reason: &str, message: &str) -> ContainerStateTerminated {
    ContainerStateTerminated {
        reason: Some(reason.to_owned()),
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

fn some_list<T>(list: Vec<T>) -> Option<Vec<T>> {
    (!list.is_empty()).then_some(list)
}
