//! Carrying a plan out: one step after the other, and a fresh look at the pod at the end.
//!
//! Runs beside the worker, which does nothing else meanwhile. A step that fails ends the plan; the next
//! plan starts from what the final look shows. A wish to end the pod is heeded between steps and
//! during image pulls, never in the middle of a call that creates.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use k8s_openapi::api::core::v1::{Pod, ResourceRequirements};
use logic_api::pod::PodView;
use logic_api::types::{ContainerId, PodUid, RuntimePod, SandboxId, WaitingReason};
use logic_pods::pod_actions::{PodAction, PodPlan, RemovedLog};
use logic_pods::sandbox::SandboxConfig;
use logic_volumes::MountedVolumes;
use tokio::sync::watch;

use super::kill::{KillOutcome, KillsInProgress};
use super::metrics::PullTimings;
use super::retries::RetryKey;
use super::sandbox::SandboxError;
use super::start::{ContainerStart, StartResult};
use super::{Peers, PodWorkerState, RETRY_BACKOFF, RETRY_PERIOD, remove};
use crate::checkpoints::ContainerResources;
use crate::hosts;
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
    fn soon() -> Self {
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
    pub(super) kills_in_progress: KillsInProgress,
    pub(super) actuated: ContainerResources,
    /// The containers that run, by name.
    pub(super) running: BTreeMap<String, ContainerId>,
    /// What the pod's containers find; empty until everything is mounted, and then nothing is started.
    pub(super) volumes: Arc<MountedVolumes>,

    pub(super) sandbox: Option<SandboxId>,
    /// What the sandbox was asked for with, if this plan made it.
    pub(super) made: Option<Arc<SandboxConfig>>,
    pub(super) problems: Vec<(RetryKey, SyncProblem)>,
    pub(super) started: Vec<(String, ResourceRequirements)>,
    /// Told as they end, not at the end of the plan.
    pub(super) pulls: PullTimings,
}

/// Whether a plan goes on after a step.
#[derive(Debug, PartialEq, Eq)]
enum StepOutcome {
    Done,
    Last,
}

impl PlanExecutor {
    pub(super) async fn execute(mut self, plan: PodPlan) -> SyncResult {
        self.sandbox = plan.sandbox;
        for batch in batches(plan.actions) {
            if self.is_over() || self.step(batch).await == StepOutcome::Last {
                break;
            }
        }
        SyncResult {
            runtime: self.peers.runtime.pod(&self.uid).await,
            problems: self.problems,
            started: self.started,
            kills_in_progress: self.kills_in_progress,
        }
    }

    /// Carries out steps that stand beside each other.
    async fn step(&mut self, batch: Vec<PodAction>) -> StepOutcome {
        match batch.first() {
            None => StepOutcome::Done,
            Some(PodAction::KillContainer { .. }) => self.kills(batch).await,
            Some(PodAction::StartContainer { .. }) => self.starts(batch).await,
            Some(PodAction::CreateSandbox { attempt }) => self.creation(*attempt).await,
            Some(PodAction::ResizeContainer { id, name }) => {
                let (id, name) = (id.clone(), name.clone());
                self.resize(&id, name).await;
                StepOutcome::Done
            }
            Some(PodAction::StopSandbox { sandbox }) => {
                let result = self.peers.runtime.stop_sandbox(sandbox).await;
                self.ending(result)
            }
            Some(PodAction::RemoveContainer { instance, log }) => {
                let result = match log {
                    RemovedLog::Removed => remove::instance(&self.peers, &self.pod, instance).await,
                    RemovedLog::Kept => self.peers.runtime.remove_container(&instance.id).await,
                };
                self.ending(result)
            }
        }
    }

    /// What must end and has not is tried again soon; nothing is built on it meanwhile.
    fn ending(&mut self, result: Result<(), RuntimeError>) -> StepOutcome {
        let Err(error) = result else {
            return StepOutcome::Done;
        };
        tracing::warn!(pod = %self.uid, "{}", error.describe());
        self.problems
            .push((RetryKey::Teardown, SyncProblem::soon()));
        StepOutcome::Last
    }

    async fn kills(&mut self, batch: Vec<PodAction>) -> StepOutcome {
        match self.kill(batch).await {
            Ok(KillOutcome::Done) => StepOutcome::Done,
            Ok(KillOutcome::Superseded) => StepOutcome::Last,
            Err(error) => self.ending(Err(error)),
        }
    }

    async fn creation(&mut self, attempt: u32) -> StepOutcome {
        match self.create_sandbox(attempt).await {
            Ok(id) => {
                self.sandbox = Some(id);
                if self.ips.is_empty() && !self.pod.host_network() {
                    // It has to go again, and not as fast as the runtime makes such sandboxes.
                    self.problems.push((RetryKey::Sandbox, SyncProblem::soon()));
                }
                StepOutcome::Done
            }
            Err(error) => {
                tracing::warn!(pod = %self.uid, "{}", error.describe());
                self.problems.push((RetryKey::Sandbox, error.problem()));
                StepOutcome::Last
            }
        }
    }

    fn is_over(&self) -> bool {
        self.stage == PodWorkerState::Syncing && !self.goal.borrow().is_run()
    }

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

    /// Starts containers side by side: none waits for its neighbour's image.
    async fn starts(&mut self, batch: Vec<PodAction>) -> StepOutcome {
        let Some(sandbox) = self.sandbox.clone() else {
            return StepOutcome::Last;
        };
        let context = match self.pod_context().await {
            Ok(context) => context,
            Err(error) => {
                tracing::warn!(pod = %self.uid, "{}", error.describe());
                self.problems.push((RetryKey::Sandbox, error.problem()));
                return StepOutcome::Last;
            }
        };
        let executor = &*self;
        let starts = batch.iter().filter_map(|action| match action {
            PodAction::StartContainer {
                name,
                restart_count,
                ..
            } => Some(ContainerStart {
                executor,
                sandbox: &sandbox,
                context: &context,
                name: name.clone(),
                restart_count: *restart_count,
            }),
            PodAction::KillContainer { .. }
            | PodAction::StopSandbox { .. }
            | PodAction::RemoveContainer { .. }
            | PodAction::CreateSandbox { .. }
            | PodAction::ResizeContainer { .. } => None,
        });
        let ends = join_all(starts.map(ContainerStart::start)).await;
        let mut failed = Vec::new();
        for StartResult { name, result, kill } in ends {
            failed.extend(kill.map(|id| self.post_start_kill(id, &name)));
            match result {
                Ok(()) => {
                    let resources = self.resources(&name);
                    self.started
                        .extend(resources.map(|resources| (name, resources)));
                }
                Err(problem) => self.problems.push((RetryKey::Container(name), problem)),
            }
        }
        match failed.is_empty() {
            true => StepOutcome::Done,
            false => self.kills(failed).await,
        }
    }

    /// What all containers of the pod share.
    async fn pod_context(&mut self) -> Result<PodContext, SandboxError> {
        let sandbox = match &self.made {
            Some(made) => made.clone(),
            None => Arc::new(self.sandbox_config().await?),
        };
        let hosts = match self.ips.is_empty() {
            true => None,
            false => Some(hosts::ensure(&self.pod, &self.ips, &self.peers.rules.node).await?),
        };
        Ok(PodContext { sandbox, hosts })
    }
}

/// What all containers of a pod share.
#[derive(Debug)]
pub(super) struct PodContext {
    pub(super) sandbox: Arc<SandboxConfig>,
    /// The managed hosts file, once the pod has an address.
    pub(super) hosts: Option<PathBuf>,
}

/// The steps of a plan, those that stand beside each other together.
fn batches(actions: Vec<PodAction>) -> Vec<Vec<PodAction>> {
    let mut batches: Vec<Vec<PodAction>> = Vec::new();
    for action in actions {
        match batches.last_mut() {
            Some(batch) if batch.last().is_some_and(|last| action.beside(last)) => {
                batch.push(action);
            }
            Some(_) | None => batches.push(vec![action]),
        }
    }
    batches
}
