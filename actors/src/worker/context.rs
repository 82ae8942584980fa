//! What the steps of a plan share: what they work with, how far they have come, what came of them.
//!
//! The executor depends on the steps (kills, starts, the sandbox, resizes, removals); each of them on this file alone.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{Pod, ResourceRequirements};
use logic_api::pod::PodView;
use logic_api::types::{ContainerId, PodUid, RuntimePod, SandboxId, WaitingReason};
use logic_pods::sandbox::SandboxConfig;
use logic_volumes::MountedVolumes;
use tokio::sync::watch;

use super::metrics::PullTimings;
use super::retries::RetryKey;
use super::{Peers, PodWorkerState, RETRY_BACKOFF, RETRY_PERIOD};
use crate::checkpoints::ContainerResources;
use crate::pod_manager::PodGoal;
use crate::runtime::RuntimeError;

/// What came of a plan.
#[derive(Debug)]
pub struct SyncResult {
    /// What failed.
    pub(super) problems: Vec<(RetryKey, SyncProblem)>,
    /// Containers that run now, with the resources that they were started with or resized to.
    pub(super) started: Vec<(String, ResourceRequirements)>,
    /// Endings that were begun; those that are over are forgotten when the container is seen ended.
    pub(super) kills_in_progress: KillsInProgress,
    /// Everything that exists of the pod after the last step.
    pub(super) runtime: Result<RuntimePod, RuntimeError>,
}

/// Why something was not done, and when to try again.
#[derive(Debug)]
pub(super) struct SyncProblem {
    pub(super) waiting: Option<WaitingReason>,
    pub(super) retry_after: Duration,
}

impl SyncProblem {
    /// What must end is tried again soon, however it was refused; so is a sandbox that came without an address.
    pub(super) fn soon() -> Self {
        SyncProblem {
            waiting: None,
            retry_after: RETRY_PERIOD,
        }
    }

    pub(super) fn of(error: &RuntimeError) -> Self {
        let soon = error.transient() || error.is_clearing_up();
        SyncProblem {
            waiting: None,
            retry_after: if soon { RETRY_PERIOD } else { RETRY_BACKOFF },
        }
    }
}

/// Everything that carrying a plan out needs, and how far it has come.
#[derive(Debug)]
pub(super) struct PlanExecutor {
    pub(super) peers: Peers,
    pub(super) uid: PodUid,
    pub(super) pod: Arc<Pod>,
    /// Watched for the pod's end while it syncs, and for less grace.
    pub(super) goal: watch::Receiver<PodGoal>,
    pub(super) stage: PodWorkerState,
    pub(super) ips: Vec<String>,
    pub(super) actuated: ContainerResources,
    /// The containers that run, by name.
    pub(super) running: BTreeMap<String, ContainerId>,
    /// What the pod's containers find; empty until everything is mounted, and then nothing is started.
    pub(super) volumes: Arc<MountedVolumes>,
    /// Told as they end, not at the end of the plan.
    pub(super) pulls: PullTimings,
    pub(super) progress: PlanProgress,
}

/// How far a plan has come.
#[derive(Debug, Default)]
pub(super) struct PlanProgress {
    pub(super) sandbox: Option<SandboxId>,
    /// What the sandbox was asked for with, if this plan made it.
    pub(super) made: Option<Arc<SandboxConfig>>,
    pub(super) kills_in_progress: KillsInProgress,
    pub(super) problems: Vec<(RetryKey, SyncProblem)>,
    pub(super) started: Vec<(String, ResourceRequirements)>,
}

impl PlanExecutor {
    /// Resolves when the pod is to end.
    pub(super) async fn wait_for_end(&self) {
        let mut desired = self.goal.clone();
        // Nobody who could end the pod is left: it goes on.
        if desired.wait_for(|desired| !desired.is_run()).await.is_err() {
            std::future::pending().await
        }
    }

    /// What is allocated to a container of the pod.
    pub(super) fn resources(&self, name: &str) -> Option<ResourceRequirements> {
        let (_, container) = self.pod.container(name)?;
        Some(container.resources.clone().unwrap_or_default())
    }
}

/// What all containers of a pod share.
#[derive(Debug)]
pub(super) struct PodContext {
    pub(super) sandbox: Arc<SandboxConfig>,
    /// The managed hosts file, once the pod has an address.
    pub(super) hosts: Option<PathBuf>,
}

/// How far the ending of a container has come.
#[derive(Debug, Clone, Copy)]
pub(super) struct KillProgress {
    /// Never moves back: whoever gives a grace anew can only shorten it.
    pub(super) until: Instant,
    pub(super) hook: PreStopState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PreStopState {
    Due,
    Run,
}

/// The kills under way, by instance.
pub(super) type KillsInProgress = BTreeMap<ContainerId, KillProgress>;
