//! A pod's phase by its containers (upstream's `getPhase` at v1.36).

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStateTerminated, ContainerStatus, Pod,
};
use logic_api::pod::{PodView, is_sidecar};
use logic_api::types::{ContainerId, RuntimePod};
use serde::{Deserialize, Serialize};

use super::StatusStage;
use super::restart_all::RESTARTING_ALL;
use crate::pod_actions::restarts_after;

/// The API's `PodPhase`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum PodPhase {
    Pending,
    Running,
    Succeeded,
    Failed,
}

impl PodPhase {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Running => "Running",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        let all = [Self::Pending, Self::Running, Self::Succeeded, Self::Failed];
        all.into_iter().find(|phase| phase.as_str() == name)
    }

    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

/// How many containers are in which state; regular init containers are counted apart.
#[derive(Default)]
struct Tally {
    pending_inits: usize,
    pending_sidecars: usize,
    init_failed_for_good: bool,

    running: usize,
    waiting: usize,
    stopped: usize,
    stopped_for_good: usize,
    succeeded: usize,
    unknown: usize,
}

/// Whether initialisation is done: an app container was made in the sandbox of today.
///
/// After a reboot it is done again, whatever is left of an earlier sandbox.
pub fn has_initialized(pod: &Pod, runtime: &RuntimePod) -> bool {
    let Some(current) = runtime.newest_sandbox().filter(|s| s.is_ready()) else {
        return false;
    };
    let of_today = |name: &str| runtime.instances(name).any(|c| c.sandbox == current.id);
    pod.app_containers().iter().any(|c| of_today(&c.name))
}

/// What a phase depends on besides the statuses of the containers.
#[derive(Clone, Copy, Debug)]
pub struct PhaseFacts<'a> {
    pub stage: StatusStage,
    /// See [`has_initialized`].
    pub initialized: bool,
    /// Instances that were ended to be started again: their exits are not final.
    pub replaced: &'a BTreeSet<ContainerId>,
}

pub fn phase(pod: &Pod, statuses: &[&ContainerStatus], facts: PhaseFacts<'_>) -> PodPhase {
    let tally = Tally::of(pod, statuses, facts.replaced);
    let sidecars_begin = tally.pending_sidecars > 0 && !facts.initialized;
    if tally.init_failed_for_good {
        return PodPhase::Failed;
    }
    if tally.pending_inits > 0 || sidecars_begin || tally.waiting > 0 || tally.unknown > 0 {
        return PodPhase::Pending;
    }
    if tally.running > 0 {
        return PodPhase::Running;
    }
    if tally.stopped == 0 {
        return PodPhase::Pending;
    }
    let is_over = facts.stage == StatusStage::Terminated && !pod.is_static();
    if !is_over && tally.stopped != tally.stopped_for_good {
        // Some are about to run again.
        return PodPhase::Running;
    }
    match tally.stopped == tally.succeeded {
        true => PodPhase::Succeeded,
        false => PodPhase::Failed,
    }
}

impl Tally {
    fn of(pod: &Pod, statuses: &[&ContainerStatus], replaced: &BTreeSet<ContainerId>) -> Self {
        let mut tally = Self::default();
        let find = |name: &str| statuses.iter().find(|s| s.name == name).copied();
        for container in pod.init_containers() {
            let status = find(&container.name);
            match is_sidecar(container) {
                true => tally.add_sidecar(status),
                false => tally.add_init(pod, container, status),
            }
        }
        for container in pod.app_containers() {
            let is_final = |end: &ContainerStateTerminated| {
                is_final(pod, container, end) && !is_replaced(replaced, end)
            };
            tally.add_app(find(&container.name), is_final);
        }
        tally
    }

    fn add_init(&mut self, pod: &Pod, container: &Container, status: Option<&ContainerStatus>) {
        match ContainerProgress::of(status) {
            ContainerProgress::Ended(end) | ContainerProgress::WaitsAfter(end) => {
                self.init_failed_for_good |= end.exit_code != 0 && is_final(pod, container, end);
            }
            ContainerProgress::Running | ContainerProgress::Waits | ContainerProgress::Unknown => {
                self.pending_inits += 1
            }
        }
    }

    /// A sidecar that has ended counts for nothing.
    fn add_sidecar(&mut self, status: Option<&ContainerStatus>) {
        match ContainerProgress::of(status) {
            ContainerProgress::Running => {
                let started = status.and_then(|s| s.started) == Some(true);
                self.pending_sidecars += usize::from(!started);
                self.running += 1;
            }
            ContainerProgress::Ended(_) | ContainerProgress::WaitsAfter(_) => {}
            ContainerProgress::Waits => {
                self.pending_sidecars += 1;
                self.waiting += 1;
            }
            ContainerProgress::Unknown => {
                self.pending_sidecars += 1;
                self.unknown += 1;
            }
        }
    }

    fn add_app(
        &mut self,
        status: Option<&ContainerStatus>,
        is_final: impl Fn(&ContainerStateTerminated) -> bool,
    ) {
        match ContainerProgress::of(status) {
            ContainerProgress::Running => self.running += 1,
            ContainerProgress::Ended(end) => {
                self.stopped += 1;
                self.stopped_for_good += usize::from(is_final(end));
                self.succeeded += usize::from(end.exit_code == 0);
            }
            ContainerProgress::WaitsAfter(end) => {
                self.stopped += 1;
                self.stopped_for_good += usize::from(is_final(end));
            }
            ContainerProgress::Waits => self.waiting += 1,
            ContainerProgress::Unknown => self.unknown += 1,
        }
    }
}

/// Where a container is in its life.
enum ContainerProgress<'a> {
    Running,
    Ended(&'a ContainerStateTerminated),
    /// To be started again.
    WaitsAfter(&'a ContainerStateTerminated),
    Waits,
    Unknown,
}

impl<'a> ContainerProgress<'a> {
    fn of(status: Option<&'a ContainerStatus>) -> Self {
        let end = |state: Option<&'a ContainerState>| state.and_then(|s| s.terminated.as_ref());
        let Some(state) = status.and_then(|s| s.state.as_ref()) else {
            return Self::Unknown;
        };
        if state.running.is_some() {
            Self::Running
        } else if let Some(end) = &state.terminated {
            Self::Ended(end)
        } else if state.waiting.is_none() {
            Self::Unknown
        } else {
            end(status.and_then(|s| s.last_state.as_ref())).map_or(Self::Waits, Self::WaitsAfter)
        }
    }
}

/// Whether nothing starts the container again after this end.
fn is_final(pod: &Pod, container: &Container, end: &ContainerStateTerminated) -> bool {
    let restarts = restarts_after(pod, container, end.exit_code)
        || end.reason.as_deref() == Some(RESTARTING_ALL);
    !restarts
}

/// Whether this instance was ended to be started again.
fn is_replaced(replaced: &BTreeSet<ContainerId>, end: &ContainerStateTerminated) -> bool {
    let full = end.container_id.as_deref().unwrap_or_default();
    let id = full.split_once("://").map(|(_, id)| id);
    id.is_some_and(|id| replaced.contains(&ContainerId::from(id)))
}
