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
use logic::pod::PodView;
use logic::sandbox::SandboxConfig;
use logic::types::{ContainerId, PodUid, RuntimePod, SandboxId, Waiting};
use logic::volumes::Mounted;
use logic::worker::{Action, Log, PodPlan};
use tokio::sync::watch;

use super::counted::Pulls;
use super::kill::{Endings, Killed};
use super::sandbox::SandboxError;
use super::start::{Start, Started};
use super::{ENDING, LATER, Peers, SANDBOX, SOON, Stage, remove};
use crate::directory::Desired;
use crate::hosts;
use crate::records::Resources;
use crate::runtime::RuntimeError;

/// What came of a plan.
#[derive(Debug)]
pub struct Report {
    /// What failed, by container name, [`SANDBOX`] or [`ENDING`].
    pub(super) problems: Vec<(String, Problem)>,
    /// Containers that run now, with the resources that they were started with or resized to.
    pub(super) started: Vec<(String, ResourceRequirements)>,
    /// Endings that were begun; those that are over are forgotten when the container is seen ended.
    pub(super) endings: Endings,
    /// Everything that exists of the pod after the last step.
    pub(super) runtime: Result<RuntimePod, RuntimeError>,
}

/// Why something was not done, and when to try again.
#[derive(Debug)]
pub(super) struct Problem {
    pub(super) waiting: Option<Waiting>,
    pub(super) again_after: Duration,
}

impl Problem {
    /// What must end is tried again soon, however it was refused; so is a sandbox that came without an address.
    fn soon() -> Self {
        Problem {
            waiting: None,
            again_after: SOON,
        }
    }

    pub(super) fn of(error: &RuntimeError) -> Self {
        // A name is still reserved, or a container still starting, while the runtime clears up an interrupted call.
        let clearing_up = matches!(error, RuntimeError::Refused { message, .. } if message.contains("is reserved for") || message.contains("in starting state"));
        let soon = error.transient() || clearing_up;
        Problem {
            waiting: None,
            again_after: if soon { SOON } else { LATER },
        }
    }
}

/// Everything that carrying a plan out needs, and how far it has come.
#[derive(Debug)]
pub(super) struct Carrier {
    pub(super) peers: Peers,
    pub(super) uid: PodUid,
    pub(super) pod: Arc<Pod>,
    /// Watched for the pod's end while it syncs, and for less grace.
    pub(super) desired: watch::Receiver<Desired>,
    pub(super) stage: Stage,
    pub(super) ips: Vec<String>,
    pub(super) endings: Endings,
    pub(super) actuated: Resources,
    /// The containers that run, by name.
    pub(super) running: BTreeMap<String, ContainerId>,
    /// What the pod's containers find; empty until everything is mounted, and then nothing is started.
    pub(super) volumes: Arc<Mounted>,

    pub(super) sandbox: Option<SandboxId>,
    /// What the sandbox was asked for with, if this plan made it.
    pub(super) made: Option<Arc<SandboxConfig>>,
    pub(super) problems: Vec<(String, Problem)>,
    pub(super) started: Vec<(String, ResourceRequirements)>,
    /// Told as they end, not at the end of the plan.
    pub(super) pulls: Pulls,
}

/// Whether a plan goes on after a step.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Done,
    Last,
}

impl Carrier {
    pub(super) async fn carry(mut self, plan: PodPlan) -> Report {
        self.sandbox = plan.sandbox;
        for batch in batches(plan.actions) {
            if self.is_over() || self.step(batch).await == Step::Last {
                break;
            }
        }
        Report {
            runtime: self.peers.runtime.pod(&self.uid).await,
            problems: self.problems,
            started: self.started,
            endings: self.endings,
        }
    }

    /// Carries out steps that stand beside each other.
    async fn step(&mut self, batch: Vec<Action>) -> Step {
        match batch.first() {
            None => Step::Done,
            Some(Action::KillContainer { .. }) => self.kills(batch).await,
            Some(Action::StartContainer { .. }) => self.starts(batch).await,
            Some(Action::CreateSandbox { attempt }) => self.creation(*attempt).await,
            Some(Action::ResizeContainer { id, name }) => {
                let (id, name) = (id.clone(), name.clone());
                self.resize(&id, name).await;
                Step::Done
            }
            Some(Action::StopSandbox { sandbox }) => {
                let result = self.peers.runtime.stop_sandbox(sandbox).await;
                self.ending(result)
            }
            Some(Action::RemoveContainer { instance, log }) => {
                let result = match log {
                    Log::Removed => remove::instance(&self.peers, &self.pod, instance).await,
                    Log::Kept => self.peers.runtime.remove_container(&instance.id).await,
                };
                self.ending(result)
            }
        }
    }

    /// What must end and has not is tried again soon; nothing is built on it meanwhile.
    fn ending(&mut self, result: Result<(), RuntimeError>) -> Step {
        let Err(error) = result else {
            return Step::Done;
        };
        tracing::warn!(pod = %self.uid, "{}", error.told());
        self.problems.push((ENDING.to_owned(), Problem::soon()));
        Step::Last
    }

    async fn kills(&mut self, batch: Vec<Action>) -> Step {
        match self.kill(batch).await {
            Ok(Killed::Done) => Step::Done,
            Ok(Killed::Superseded) => Step::Last,
            Err(error) => self.ending(Err(error)),
        }
    }

    async fn creation(&mut self, attempt: u32) -> Step {
        match self.create_sandbox(attempt).await {
            Ok(id) => {
                self.sandbox = Some(id);
                if self.ips.is_empty() && !self.pod.host_network() {
                    // It has to go again, and not as fast as the runtime makes such sandboxes.
                    self.problems.push((SANDBOX.to_owned(), Problem::soon()));
                }
                Step::Done
            }
            Err(error) => {
                tracing::warn!(pod = %self.uid, "{}", error.told());
                self.problems.push((SANDBOX.to_owned(), error.problem()));
                Step::Last
            }
        }
    }

    fn is_over(&self) -> bool {
        self.stage == Stage::Syncing && !self.desired.borrow().is_run()
    }

    /// Resolves when the pod is to end.
    pub(super) async fn ended(&self) {
        let mut desired = self.desired.clone();
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
    async fn starts(&mut self, batch: Vec<Action>) -> Step {
        let Some(sandbox) = self.sandbox.clone() else {
            return Step::Last;
        };
        let surroundings = match self.surroundings().await {
            Ok(surroundings) => surroundings,
            Err(error) => {
                tracing::warn!(pod = %self.uid, "{}", error.told());
                self.problems.push((SANDBOX.to_owned(), error.problem()));
                return Step::Last;
            }
        };
        let carrier = &*self;
        let starts = batch.iter().filter_map(|action| match action {
            Action::StartContainer {
                name,
                restart_count,
                ..
            } => Some(Start {
                carrier,
                sandbox: &sandbox,
                surroundings: &surroundings,
                name: name.clone(),
                restart_count: *restart_count,
            }),
            Action::KillContainer { .. }
            | Action::StopSandbox { .. }
            | Action::RemoveContainer { .. }
            | Action::CreateSandbox { .. }
            | Action::ResizeContainer { .. } => None,
        });
        let ends = join_all(starts.map(Start::start)).await;
        let mut failed = Vec::new();
        for Started { name, result, kill } in ends {
            failed.extend(kill.map(|id| self.killing(id, &name)));
            match result {
                Ok(()) => {
                    let resources = self.resources(&name);
                    self.started
                        .extend(resources.map(|resources| (name, resources)));
                }
                Err(problem) => self.problems.push((name, problem)),
            }
        }
        match failed.is_empty() {
            true => Step::Done,
            false => self.kills(failed).await,
        }
    }

    /// What all containers of the pod share.
    async fn surroundings(&mut self) -> Result<Surroundings, SandboxError> {
        let sandbox = match &self.made {
            Some(made) => made.clone(),
            None => Arc::new(self.sandbox_config().await?),
        };
        let hosts = match self.ips.is_empty() {
            true => None,
            false => Some(hosts::ensure(&self.pod, &self.ips, &self.peers.rules.node).await?),
        };
        Ok(Surroundings { sandbox, hosts })
    }
}

/// What all containers of a pod share.
#[derive(Debug)]
pub(super) struct Surroundings {
    pub(super) sandbox: Arc<SandboxConfig>,
    /// The managed hosts file, once the pod has an address.
    pub(super) hosts: Option<PathBuf>,
}

/// The steps of a plan, those that stand beside each other together.
fn batches(actions: Vec<Action>) -> Vec<Vec<Action>> {
    let mut batches: Vec<Vec<Action>> = Vec::new();
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
