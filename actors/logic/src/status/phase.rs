//! A pod's phase by its containers (upstream's `getPhase`).

use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use serde::{Deserialize, Serialize};

use super::Stage;
use crate::pod::PodView;
use crate::types::RestartPolicy;

/// The phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Phase {
    Pending,
    Running,
    Succeeded,
    Failed,
}

impl Phase {
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

/// How many app containers are in which state.
#[derive(Default)]
struct Tally {
    running: usize,
    waiting: usize,
    stopped: usize,
    succeeded: usize,
    unknown: usize,
}

pub fn phase(pod: &Pod, statuses: &[&ContainerStatus], stage: Stage) -> Phase {
    let find = |name: &str| statuses.iter().find(|s| s.name == name).copied();
    let policy = pod.restart_policy();
    let inits = pod.init_containers().iter();
    let progress: Vec<_> = inits.map(|c| init_progress(find(&c.name))).collect();
    if progress.contains(&Init::Failed) && policy == RestartPolicy::Never {
        return Phase::Failed;
    }
    let mut tally = Tally::default();
    for container in pod.app_containers() {
        tally.add(find(&container.name));
    }
    if progress.contains(&Init::Pending) || tally.waiting > 0 || tally.unknown > 0 {
        return Phase::Pending;
    }
    if tally.running > 0 {
        return Phase::Running;
    }
    if tally.stopped == 0 {
        return Phase::Pending;
    }
    let all_succeeded = tally.stopped == tally.succeeded;
    let outcome = if all_succeeded {
        Phase::Succeeded
    } else {
        Phase::Failed
    };
    match policy {
        _ if stage == Stage::Terminated && !pod.is_static() => outcome,
        // They are about to run again.
        RestartPolicy::Always => Phase::Running,
        RestartPolicy::OnFailure if !all_succeeded => Phase::Running,
        RestartPolicy::OnFailure | RestartPolicy::Never => outcome,
    }
}

#[derive(PartialEq, Eq)]
enum Init {
    Pending,
    Succeeded,
    Failed,
}

fn init_progress(status: Option<&ContainerStatus>) -> Init {
    let now = status.and_then(|s| s.state.as_ref());
    let before = status.and_then(|s| s.last_state.as_ref());
    let ended = now.and_then(|s| s.terminated.as_ref());
    let waits = now.is_some_and(|s| s.waiting.is_some());
    let ended = ended.or(before.filter(|_| waits).and_then(|s| s.terminated.as_ref()));
    match ended {
        Some(end) if end.exit_code != 0 => Init::Failed,
        Some(_) => Init::Succeeded,
        None => Init::Pending,
    }
}

impl Tally {
    fn add(&mut self, status: Option<&ContainerStatus>) {
        let Some(state) = status.and_then(|s| s.state.as_ref()) else {
            self.unknown += 1;
            return;
        };
        let last = status.and_then(|s| s.last_state.as_ref());
        if state.running.is_some() {
            self.running += 1;
        } else if let Some(end) = &state.terminated {
            self.stopped += 1;
            self.succeeded += usize::from(end.exit_code == 0);
        } else if state.waiting.is_none() {
            self.unknown += 1;
        } else if last.is_some_and(|s| s.terminated.is_some()) {
            self.stopped += 1;
        } else {
            self.waiting += 1;
        }
    }
}
