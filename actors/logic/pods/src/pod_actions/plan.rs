//! A plan's shape, and the invariants that every plan keeps.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use logic_api::pod::{PodView, is_sidecar};
use logic_api::types::{
    ContainerId, ContainerInstance, ContainerKind, HistoryEvent, RuntimePod, SandboxId,
    WaitingReason,
};
use serde::{Deserialize, Serialize};

use super::kill::PreStopHooks;
use crate::resize::POD_LEVEL;

/// One step of a plan.
///
/// Steps are carried out in order; adjacent steps of the same kind run concurrently, as [`PodAction::beside`] has it.
/// A failed kill, stop, removal or creation of a sandbox ends the plan; a failed start or resize does not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PodAction {
    KillContainer {
        id: ContainerId,
        name: String,
        /// None for what the pod's definition does not know.
        kind: Option<ContainerKind>,
        /// From the beginning of this step; running hooks and waiting for its turn count.
        grace: Duration,
        /// Zero for all but sidecars. Begins when every container that it waits for ([`PodAction::waits_for`]) has
        /// ended, or when its own grace period has passed.
        turn: u32,
        /// The preStop hook is run at once, before the turn has come.
        hooks: PreStopHooks,
        message: String,
    },
    /// Stops the sandbox; what still runs in it dies at once.
    StopSandbox {
        sandbox: SandboxId,
    },
    /// Removes a container that does not run.
    RemoveContainer {
        instance: ContainerInstance,
        log: RemovedLog,
    },
    CreateSandbox {
        attempt: u32,
    },
    /// Gives the pod as a whole what it is allocated, where that changed or containers are restarted for theirs.
    ResizePod,
    /// Has the runtime enforce the container's allocated CPU and memory without a restart.
    ResizeContainer {
        id: ContainerId,
        name: String,
    },
    /// Starts a container in the sandbox just created, or else in [`PodPlan::sandbox`].
    StartContainer {
        name: String,
        kind: ContainerKind,
        restart_count: u32,
        /// Why it starts, for logs.
        message: String,
        /// Noted in the back-off table when the start is begun; none on a first start.
        backoff: Option<BackoffUpdate>,
    },
}

/// What is done with the log of a removed container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum RemovedLog {
    Removed,
    /// Until the pod is removed.
    Kept,
}

/// The arguments of [`logic_api::backoff::BackoffTable::next`] for one restart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackoffUpdate {
    /// The pod, the container, and the hash of its definition: upstream's stable key.
    pub key: String,
    /// When the container ended.
    pub since: Timestamp,
}

/// The actions for a pod, each with its reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodPlan {
    /// In their order; groups of them side by side.
    pub actions: Vec<PodAction>,
    /// The sandbox to keep; none when there is none, or when it is replaced.
    pub sandbox: Option<SandboxId>,
    /// Containers that stay down for now; the status shows it.
    pub waiting: BTreeMap<String, WaitingReason>,
    /// When to compute again even if nothing happens.
    pub retry_at: Option<Timestamp>,
    /// Instances that are ended to be started again: their exit codes end nothing.
    pub replaced: BTreeSet<ContainerId>,
    /// For the pod's history, and for events.
    pub why: Vec<HistoryEvent>,
}

impl PodAction {
    /// The container that this step starts, by name.
    pub fn started(&self) -> Option<&str> {
        match self {
            Self::StartContainer { name, .. } => Some(name),
            Self::KillContainer { .. }
            | Self::StopSandbox { .. }
            | Self::RemoveContainer { .. }
            | Self::CreateSandbox { .. }
            | Self::ResizePod
            | Self::ResizeContainer { .. } => None,
        }
    }

    /// Whether this step may be carried out beside the one before it: kills beside kills, starts beside
    /// starts, all that is resized together. App containers are not begun before the starts of sidecars have been tried.
    pub fn beside(&self, before: &PodAction) -> bool {
        match (before, self) {
            (Self::KillContainer { .. }, Self::KillContainer { .. }) => true,
            (Self::ResizePod | Self::ResizeContainer { .. }, Self::ResizeContainer { .. }) => true,
            (Self::StartContainer { kind: before, .. }, Self::StartContainer { kind, .. }) => {
                *kind != ContainerKind::App || *before != ContainerKind::Init
            }
            _ => false,
        }
    }
}

/// An action that may have to wait; see [`PodPlan::due`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActionGate<'a> {
    /// Whatever must end first: nothing at all is built on it.
    End,
    /// A new sandbox, and starts in any.
    Sandbox,
    Start(&'a str),
    Resize(&'a str),
}

impl PodPlan {
    /// Drops what has to wait. What is left has an effect, and is not planned again once it is done.
    ///
    /// So a sandbox that is down already is stopped only when it is replaced: that releases its addresses, and shows
    /// nowhere. Planned alone it would be planned, and carried out, without end.
    pub fn due(mut self, runtime: &RuntimePod, waits: impl Fn(ActionGate<'_>) -> bool) -> Self {
        if waits(ActionGate::End) {
            self.actions.clear();
        }
        let no_sandbox = waits(ActionGate::Sandbox);
        let is_ready = |id: &SandboxId| {
            let mut all = runtime.sandboxes.iter();
            all.any(|sandbox| sandbox.id == *id && sandbox.is_ready())
        };
        self.actions.retain(|action| match action {
            PodAction::CreateSandbox { .. } => !no_sandbox,
            PodAction::StopSandbox { sandbox } => !no_sandbox || is_ready(sandbox),
            PodAction::StartContainer { name, .. } => {
                !no_sandbox && !waits(ActionGate::Start(name))
            }
            PodAction::ResizeContainer { name, .. } => !waits(ActionGate::Resize(name)),
            PodAction::ResizePod => !waits(ActionGate::Resize(POD_LEVEL)),
            PodAction::KillContainer { .. } | PodAction::RemoveContainer { .. } => true,
        });
        self
    }

    /// The instances that the plan ends to start their containers again, now or after a back-off.
    pub(super) fn find_replaced(&self) -> BTreeSet<ContainerId> {
        let starts = |name: &str| {
            let mut started = self.actions.iter().filter_map(PodAction::started);
            started.any(|started| started == name)
        };
        self.kills()
            .filter(|(_, name)| starts(name) || self.waiting.contains_key(*name))
            .map(|(id, _)| id.clone())
            .collect()
    }

    /// The instances that the plan ends, each with its container's name.
    pub fn kills(&self) -> impl Iterator<Item = (&ContainerId, &str)> {
        self.actions.iter().filter_map(|action| match action {
            PodAction::KillContainer { id, name, .. } => Some((id, name.as_str())),
            PodAction::StopSandbox { .. }
            | PodAction::RemoveContainer { .. }
            | PodAction::CreateSandbox { .. }
            | PodAction::ResizePod
            | PodAction::ResizeContainer { .. }
            | PodAction::StartContainer { .. } => None,
        })
    }

    /// The ids of the instances that the plan removes.
    pub fn removed(&self) -> impl Iterator<Item = &str> {
        self.actions.iter().filter_map(|action| match action {
            PodAction::RemoveContainer { instance, .. } => Some(instance.id.as_str()),
            PodAction::KillContainer { .. }
            | PodAction::StopSandbox { .. }
            | PodAction::CreateSandbox { .. }
            | PodAction::ResizePod
            | PodAction::ResizeContainer { .. }
            | PodAction::StartContainer { .. } => None,
        })
    }

    /// Names the first invariant that the plan breaks; none for a correct plan.
    pub fn broken_promise(&self, pod: &Pod, runtime: &RuntimePod) -> Option<&'static str> {
        let mut started = BTreeSet::new();
        let mut kinds = BTreeSet::new();
        let mut gone = BTreeSet::new();
        let mut creates = 0;
        for action in &self.actions {
            match action {
                PodAction::KillContainer { id, .. }
                | PodAction::RemoveContainer {
                    instance: ContainerInstance { id, .. },
                    ..
                } => {
                    gone.insert(id);
                }
                PodAction::StopSandbox { .. }
                | PodAction::ResizePod
                | PodAction::ResizeContainer { .. } => {}
                PodAction::CreateSandbox { .. } => creates += 1,
                PodAction::StartContainer { name, kind, .. } => {
                    if !started.insert(name) {
                        return Some("a container is started once");
                    }
                    let Some((_, spec)) = pod.container(name).filter(|(k, _)| k == kind) else {
                        return Some("only what the pod defines is started");
                    };
                    if runtime
                        .instances(name)
                        .any(|c| c.may_run() && !gone.contains(&c.id))
                    {
                        return Some("a container has one instance");
                    }
                    let sidecar = *kind == ContainerKind::Init && is_sidecar(&spec);
                    if !sidecar && !kinds.insert(*kind) && *kind == ContainerKind::Init {
                        return Some("init containers run one after the other");
                    }
                }
            }
        }
        if creates > 1 || (creates == 1 && self.sandbox.is_some()) {
            return Some("a pod has one sandbox");
        }
        if !started.is_empty() && creates == 0 && self.sandbox.is_none() {
            return Some("a container starts in a sandbox");
        }
        if kinds.contains(&ContainerKind::Init) && kinds.contains(&ContainerKind::App) {
            return Some("app containers wait for init containers");
        }
        None
    }
}
