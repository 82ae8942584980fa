//! A plan's shape, and the promises that every plan keeps.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use serde::{Deserialize, Serialize};

use crate::pod::PodView;
use crate::types::{ContainerId, ContainerKind, Instance, RuntimePod, SandboxId, Waiting, Why};

/// One step of a plan.
///
/// Steps are carried out in order; neighbouring `KillContainer` steps may run side by side. The first
/// step that fails ends the plan, except that one app container's failed start does not keep the next
/// from starting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Action {
    KillContainer {
        id: ContainerId,
        name: String,
        grace: Duration,
        message: String,
    },
    /// Stops the sandbox; what still runs in it dies at once.
    StopSandbox {
        sandbox: SandboxId,
    },
    /// Removes a container that does not run.
    RemoveContainer(Instance),
    CreateSandbox {
        attempt: u32,
    },
    /// Starts a container in the sandbox just created, or else in [`PodPlan::sandbox`].
    StartContainer {
        name: String,
        kind: ContainerKind,
        restart_count: u32,
        /// Why it starts, for logs.
        message: String,
        /// Noted in the back-off table when the start is begun; none on a first start.
        backoff: Option<BackoffStep>,
    },
}

/// The arguments of [`crate::backoff::Backoffs::next`] for one restart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackoffStep {
    pub key: String,
    pub since: Timestamp,
}

/// What to do for a pod, and why.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodPlan {
    pub actions: Vec<Action>,
    /// The sandbox to keep; none when there is none, or when it is replaced.
    pub sandbox: Option<SandboxId>,
    /// Containers that stay down for now; the status shows it.
    pub waiting: BTreeMap<String, Waiting>,
    /// When to compute again even if nothing happens.
    pub retry_at: Option<Timestamp>,
    pub why: Vec<Why>,
}

impl PodPlan {
    /// Names the first promise that the plan breaks; none is the only right answer.
    pub fn broken_promise(&self, pod: &Pod, runtime: &RuntimePod) -> Option<&'static str> {
        let mut started = BTreeSet::new();
        let mut kinds = BTreeSet::new();
        let mut gone = BTreeSet::new();
        let mut creates = 0;
        for action in &self.actions {
            match action {
                Action::KillContainer { id, .. } | Action::RemoveContainer(Instance { id, .. }) => {
                    gone.insert(id);
                }
                Action::StopSandbox { .. } => {}
                Action::CreateSandbox { .. } => creates += 1,
                Action::StartContainer { name, kind, .. } => {
                    if !started.insert(name) {
                        return Some("a container is started once");
                    }
                    if pod.container(name).is_none_or(|(k, _)| k != *kind) {
                        return Some("only what the pod defines is started");
                    }
                    if runtime
                        .instances(name)
                        .any(|c| c.may_run() && !gone.contains(&c.id))
                    {
                        return Some("a container has one instance");
                    }
                    kinds.insert(*kind);
                }
            }
        }
        if creates > 1 || (creates == 1 && self.sandbox.is_some()) {
            return Some("a pod has one sandbox");
        }
        if !started.is_empty() && creates == 0 && self.sandbox.is_none() {
            return Some("a container starts in a sandbox");
        }
        if kinds.len() > 1 {
            return Some("app containers wait for init containers");
        }
        None
    }
}
