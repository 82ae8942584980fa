//! Carries out a plan: one step after the other, then fetches the pod's state.
//!
//! Runs beside the worker, which starts nothing else meanwhile. A step that fails ends the plan; the next
//! plan starts from the state fetched at the end. A request to end the pod is checked between steps and
//! during image pulls, never during a call that creates.

mod creation;
pub(super) mod files;
mod kill;
mod present_images;
pub(super) mod remove;
pub(super) mod sandbox;
mod start;
pub(super) mod start_turns;

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use clients::runtime::RuntimeError;
use futures_util::future::{Either, join, join_all, select, try_join};
use logic_api::pod::PodView;
use logic_placement::devices::DeviceCallError;
use logic_placement::topology::{AssignmentError, TopologyPolicy};
use logic_pods::admission;
use logic_pods::pod_actions::{PodAction, PodPlan, RemovedLog};
use logic_pods::runtime::call_limit::RuntimeCall;
use metrics::pods as counted;
use state::{checkpoints, placement_files};

use self::kill::KillOutcome;
use self::sandbox::SandboxError;
use self::start::{ContainerStart, StartResult};
use self::start_turns::StartTurns;
use super::context::{PlanExecutor, PodContext, SyncProblem, SyncResult};
use super::retries::RetryKey;
use super::{PodWorkerState, WorkerReport};
use crate::hosts;

/// The wait for the pod's record to be on the disk.
const STORED_TIMEOUT: Duration = Duration::from_secs(2);

/// Whether a plan goes on after a step.
#[derive(Debug, PartialEq, Eq)]
enum StepOutcome {
    Done,
    Last,
}

impl PlanExecutor {
    pub(super) async fn execute(mut self, plan: PodPlan) -> SyncResult {
        self.progress.sandbox = plan.sandbox;
        if self.replaces {
            self.await_record().await;
        }
        let starts = plan.actions.iter().any(|action| action.started().is_some());
        if starts && self.peers.assignments.held().contains_key(&self.uid) {
            self.await_placement().await;
        }
        let may_start = !starts || !self.has_devices(None) || self.allocate_devices().await;
        for batch in batches(plan.actions) {
            if !may_start || self.is_over() || self.step(batch).await == StepOutcome::Last {
                break;
            }
        }
        SyncResult {
            runtime: self.peers.runtime.pod(&self.uid).await,
            problems: self.progress.problems,
            started: self.progress.started,
            kills_in_progress: self.progress.kills_in_progress,
            sandbox_made: self.progress.made_at,
            stopped: self.progress.stopped,
        }
    }

    /// Waits until the record is on the disk: were the agent killed before, it would take the exit code of a container that
    /// it ended itself for the container's own.
    async fn await_record(&self) {
        let stored = |reply| checkpoints::Msg::Stored { reply };
        let checkpoints = &self.peers.state.checkpoints;
        if let Err(error) = checkpoints.ask(STORED_TIMEOUT, stored).await {
            tracing::warn!(pod = %self.uid, "a container is ended before that is on record: {error}");
        }
    }

    /// Waits until what the pod has to itself is on the disk: were the agent killed before, another pod might get it too.
    async fn await_placement(&self) {
        let stored = |reply| placement_files::Msg::Stored { reply };
        let files = &self.peers.state.placement_files;
        if let Err(error) = files.ask(STORED_TIMEOUT, stored).await {
            tracing::warn!(pod = %self.uid, "its containers start before what it has to itself is on record: {error}");
        }
    }

    /// Has the plugins give the pod its devices; whether its containers may start. A pod of which nothing was made yet and
    /// that does not get them is rejected, as upstream does at admission; another one is tried again.
    async fn allocate_devices(&mut self) -> bool {
        let held = self.peers.assignments.held();
        let Some(assignment) = held.get(&self.uid) else {
            return true;
        };
        let allocated = self.peers.devices.allocate(&self.uid, assignment.clone());
        let answer = match select(pin!(allocated), pin!(self.wait_for_end())).await {
            Either::Left((answer, _)) => answer,
            Either::Right(((), _)) => return false,
        };
        match answer {
            Ok(Ok(())) => return true,
            Ok(Err(error)) if self.newest.is_empty() && self.report_refusal(&error) => {
                return false;
            }
            Ok(Err(error)) => tracing::warn!(pod = %self.uid, "no devices yet: {error}"),
            Err(error) => tracing::warn!(pod = %self.uid, "no devices yet: {error}"),
        }
        let problem = (RetryKey::Sandbox, SyncProblem::soon());
        self.progress.problems.push(problem);
        false
    }

    /// Has the pod manager fail the pod; whether that was heard.
    fn report_refusal(&self, error: &DeviceCallError) -> bool {
        let refused = AssignmentError::Unexpected(error.to_string());
        let failure = admission::not_assigned(&refused);
        let reason = admission::counted_reason(&failure.reason);
        let report = WorkerReport::Rejected {
            uid: self.uid.clone(),
            failure: Box::new(failure),
        };
        let is_told = self.peers.pod_manager.tell(report).is_ok();
        if is_told {
            counted::REJECTIONS.with_label_values(&[reason]).inc();
            if self.peers.assignments.placement.topology.policy() != TopologyPolicy::None {
                counted::placement::REFUSALS.inc();
            }
        }
        is_told
    }

    /// Carries out a batch of independent steps.
    async fn step(&mut self, batch: Vec<PodAction>) -> StepOutcome {
        match batch.first() {
            None => StepOutcome::Done,
            Some(PodAction::KillContainer { .. }) => self.kills(batch).await,
            Some(PodAction::StartContainer { .. }) => self.starts(batch).await,
            Some(PodAction::CreateSandbox { attempt }) => self.creation(*attempt).await,
            Some(PodAction::ResizePod | PodAction::ResizeContainer { .. }) => {
                self.resize(batch).await;
                StepOutcome::Done
            }
            Some(PodAction::StopSandbox { sandbox }) => {
                let stops = &self.peers.gate.stops;
                let permit = stops.enter(RuntimeCall::SandboxStop, self.rank).await;
                let result = self.peers.runtime.stop_sandbox(sandbox).await;
                if result.is_ok() {
                    permit.end();
                    self.progress.stopped.insert(sandbox.clone());
                }
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

    /// A failed kill, stop or removal ends the plan and is retried soon.
    fn ending(&mut self, result: Result<(), RuntimeError>) -> StepOutcome {
        let Err(error) = result else {
            return StepOutcome::Done;
        };
        tracing::warn!(pod = %self.uid, "{}", error.describe());
        self.progress
            .problems
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
                self.progress.sandbox = Some(id);
                self.note_pod_level();
                if self.ips.is_empty() && !self.pod.host_network() {
                    // It must be removed again, and the next one is delayed by a back-off.
                    self.progress
                        .problems
                        .push((RetryKey::Sandbox, SyncProblem::soon()));
                }
                StepOutcome::Done
            }
            Err(error) => self.no_sandbox(&error),
        }
    }

    /// Retries later. A pod that is deleted while its sandbox is being made takes its network and its objects with it,
    /// which is nothing to warn of.
    fn no_sandbox(&mut self, error: &SandboxError) -> StepOutcome {
        match self.is_over() {
            true => tracing::debug!(pod = %self.uid, "{}", error.describe()),
            false => tracing::warn!(pod = %self.uid, "{}", error.describe()),
        }
        let problem = (RetryKey::Sandbox, error.problem());
        self.progress.problems.push(problem);
        StepOutcome::Last
    }

    /// Whether the pod is to end while it is still being synced.
    pub(super) fn is_over(&self) -> bool {
        let is_to_end = || !self.goal.borrow().is_run() || self.peers.gate.step().is_some();
        self.stage == PodWorkerState::Syncing && is_to_end()
    }

    /// Starts containers: their images are pulled side by side, and one with a postStart hook is followed only when the
    /// hook has ended or its container could not be started (upstream starts one after the other).
    async fn starts(&mut self, batch: Vec<PodAction>) -> StepOutcome {
        let Some(sandbox) = self.progress.sandbox.clone() else {
            return StepOutcome::Last;
        };
        let (context, images) = join(self.pod_context(), self.present_images(&batch)).await;
        let context = match context {
            Ok(context) => context,
            Err(error) => return self.no_sandbox(&error),
        };
        let executor = &*self;
        let turns = StartTurns::of(&self.pod, &batch);
        let starts = batch.iter().filter_map(|action| match action {
            PodAction::StartContainer {
                name,
                restart_count,
                ..
            } => Some(ContainerStart {
                executor,
                sandbox: &sandbox,
                context: &context,
                turns: &turns,
                images: &images,
                name: name.clone(),
                restart_count: *restart_count,
            }),
            PodAction::KillContainer { .. }
            | PodAction::StopSandbox { .. }
            | PodAction::RemoveContainer { .. }
            | PodAction::CreateSandbox { .. }
            | PodAction::ResizePod
            | PodAction::ResizeContainer { .. } => None,
        });
        let ends = join_all(starts.map(|start| async {
            let ended = start.start().await;
            turns.end(&ended.name);
            ended
        }))
        .await;
        let failed = self.started(ends);
        match failed.is_empty() {
            true => StepOutcome::Done,
            false => self.kills(failed).await,
        }
    }

    /// Notes how starts ended; returns the kills of those whose hook has failed.
    fn started(&mut self, ends: Vec<StartResult>) -> Vec<PodAction> {
        let mut failed = Vec::new();
        for StartResult { name, result, kill } in ends {
            failed.extend(kill.map(|id| self.post_start_kill(id, &name)));
            match result {
                Ok(()) => {
                    let resources = self.resources(&name);
                    self.progress
                        .started
                        .extend(resources.map(|resources| (name, resources)));
                }
                Err(problem) => self
                    .progress
                    .problems
                    .push((RetryKey::Container(name), problem)),
            }
        }
        failed
    }

    /// The state that all containers of the pod share.
    async fn pod_context(&self) -> Result<PodContext, SandboxError> {
        let sandbox = async {
            Ok::<_, SandboxError>(match &self.progress.made {
                Some(made) => made.clone(),
                None => Arc::new(self.sandbox_config().await?),
            })
        };
        let hosts = async {
            Ok(match self.ips.is_empty() {
                true => None,
                false => Some(hosts::ensure(&self.pod, &self.ips, &self.peers.rules.node).await?),
            })
        };
        let (sandbox, hosts) = try_join(sandbox, hosts).await?;
        Ok(PodContext { sandbox, hosts })
    }
}

/// Groups consecutive independent steps of a plan.
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
