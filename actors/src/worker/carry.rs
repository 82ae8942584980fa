//! Carrying a plan out: one step after the other, and a fresh look at the pod at the end.
//!
//! Runs beside the worker, which does nothing else meanwhile. A step that fails ends the plan; the next
//! plan starts from what the final look shows. A wish to end the pod is heeded between steps and
//! during image pulls, never in the middle of a call that creates.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use k8s_openapi::api::core::v1::Pod;
use logic::sandbox::sandbox_config;
use logic::types::{ContainerId, PodUid, RuntimePod, SandboxId, SandboxState, Waiting};
use logic::worker::{Action, PodPlan};
use tokio::sync::watch;

use super::start::Start;
use super::{ENDING, LATER, Peers, SANDBOX, SOON, files, remove, why};
use crate::directory::Desired;
use crate::events::Type;
use crate::runtime::RuntimeError;

/// What came of a plan.
#[derive(Debug)]
pub struct Report {
    /// What failed, by container name, [`SANDBOX`] or [`ENDING`].
    pub(super) problems: Vec<(String, Problem)>,
    /// Containers that run now.
    pub(super) started: Vec<String>,
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
    /// What must end is tried again soon, however it was refused.
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

/// Everything that carrying a plan out needs.
#[derive(Debug)]
pub(super) struct Carrier {
    pub(super) peers: Peers,
    pub(super) uid: PodUid,
    pub(super) pod: Arc<Pod>,
    /// Watched for the pod's end; none when the plan is the end.
    pub(super) desired: Option<watch::Receiver<Desired>>,
    pub(super) ips: Vec<String>,
}

impl Carrier {
    pub(super) async fn carry(mut self, plan: PodPlan) -> Report {
        let mut problems = Vec::new();
        let mut started = Vec::new();
        let mut sandbox = plan.sandbox;
        let mut steps = plan.actions.into_iter().peekable();
        while let Some(step) = steps.next() {
            if self.is_over() {
                break;
            }
            let creates = matches!(step, Action::CreateSandbox { .. });
            let result = match step {
                Action::KillContainer { id, grace, .. } => {
                    let mut kills = vec![(id, grace)];
                    while let Some(Action::KillContainer { .. }) = steps.peek() {
                        kills.extend(steps.next().and_then(kill));
                    }
                    self.kill(kills).await
                }
                Action::StopSandbox { sandbox } => self.peers.runtime.stop_sandbox(&sandbox).await,
                Action::RemoveContainer(instance) => {
                    remove::instance(&self.peers, &self.pod, &instance).await
                }
                Action::CreateSandbox { attempt } => match self.create_sandbox(attempt).await {
                    Ok(id) => {
                        sandbox = Some(id);
                        Ok(())
                    }
                    Err(error) => Err(error),
                },
                start @ Action::StartContainer { .. } => {
                    let mut starts = vec![start];
                    while let Some(Action::StartContainer { .. }) = steps.peek() {
                        starts.extend(steps.next());
                    }
                    let Some(sandbox) = &sandbox else { break };
                    for (name, result) in self.start_all(starts, sandbox).await {
                        match result {
                            Ok(()) => started.push(name),
                            Err(problem) => problems.push((name, problem)),
                        }
                    }
                    Ok(())
                }
            };
            if let Err(error) = result {
                tracing::warn!(pod = %self.uid, "{}", error.told());
                problems.push(match creates {
                    true => (SANDBOX.to_owned(), Problem::of(&error)),
                    false => (ENDING.to_owned(), Problem::soon()),
                });
                break;
            }
        }
        Report {
            problems,
            started,
            runtime: self.peers.runtime.pod(&self.uid).await,
        }
    }

    fn is_over(&self) -> bool {
        self.desired
            .as_ref()
            .is_some_and(|desired| desired.borrow().is_end())
    }

    async fn kill(&self, kills: Vec<(ContainerId, Duration)>) -> Result<(), RuntimeError> {
        let stops = kills
            .iter()
            .map(|(id, grace)| self.peers.runtime.stop_container(id, *grace));
        join_all(stops).await.into_iter().collect()
    }

    async fn create_sandbox(&mut self, attempt: u32) -> Result<SandboxId, RuntimeError> {
        let node = &self.peers.rules.node;
        let config = sandbox_config(&self.pod, attempt, node);
        files::make_pod_folders(&self.pod, node).await;
        let answer = match self.peers.runtime.run_sandbox(&config).await {
            Err(error @ RuntimeError::Interrupted { .. }) => {
                self.find_sandbox(attempt).await?.ok_or(error)
            }
            answer => answer,
        };
        match &answer {
            Ok(_) if Start::wants_pod_ips(&self.pod) => {
                self.ips = self.peers.runtime.pod(&self.uid).await?.ips().to_vec();
            }
            Ok(_) => {}
            Err(error) => {
                let message = format!("Failed to create pod sandbox: {}", error.told());
                why::event(
                    &self.peers.recorder,
                    &self.pod,
                    None,
                    Type::Warning,
                    "FailedCreatePodSandBox",
                    message,
                );
            }
        }
        answer
    }

    /// What an interrupted creation left, if it is of use.
    async fn find_sandbox(&self, attempt: u32) -> Result<Option<SandboxId>, RuntimeError> {
        let pod = self.peers.runtime.pod(&self.uid).await?;
        let ready = |sandbox: &&logic::types::Sandbox| {
            sandbox.attempt == attempt && sandbox.state == SandboxState::Ready
        };
        Ok(pod
            .sandboxes
            .iter()
            .find(ready)
            .map(|sandbox| sandbox.id.clone()))
    }

    /// Starts containers side by side: none waits for its neighbour's image.
    async fn start_all(
        &self,
        starts: Vec<Action>,
        sandbox: &SandboxId,
    ) -> Vec<(String, Result<(), Problem>)> {
        let starts = starts.into_iter().filter_map(|action| match action {
            Action::StartContainer {
                name,
                restart_count,
                ..
            } => Some(Start {
                carrier: self,
                sandbox,
                name,
                restart_count,
            }),
            Action::KillContainer { .. }
            | Action::StopSandbox { .. }
            | Action::RemoveContainer(_)
            | Action::CreateSandbox { .. } => None,
        });
        join_all(starts.map(Start::start)).await
    }
}

fn kill(action: Action) -> Option<(ContainerId, Duration)> {
    match action {
        Action::KillContainer { id, grace, .. } => Some((id, grace)),
        Action::StopSandbox { .. }
        | Action::RemoveContainer(_)
        | Action::CreateSandbox { .. }
        | Action::StartContainer { .. } => None,
    }
}
