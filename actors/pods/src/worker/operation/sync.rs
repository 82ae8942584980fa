//! The worker's next operation: one at a time, from the goal and the observed state.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kernel::{Context, Exit};
use logic_api::pod::{PodView, is_terminal};
use logic_api::types::{ContainerId, ContainerState, EventLevel, HistoryEvent, PodFailure};
use logic_pods::pod_actions::{
    ActionGate, BackoffUpdate, PodAction, PodObservation, PodPlan, RemovedLog, compute_pod_actions,
    kill,
};
use logic_pods::runtime::runtime_class::HandlerFeatures;

use super::completion::{FetchedPod, WorkerCompletion};
use super::repeat_guard::RuntimeWork;
use super::spans;
use crate::runtime::call_limiter::CallRank;
use crate::worker::context::{PlanExecutor, PlanProgress};
use crate::worker::executor::sandbox::addresses;
use crate::worker::executor::start_turns::has_post_start;
use crate::worker::executor::{files, remove};
use crate::worker::mounts::asks_for_recursive_read_only;
use crate::worker::retries::RetryKey;
use crate::worker::{Activity, Msg, PodGoal, PodWorker, PodWorkerState};

impl PodWorker {
    /// Begins the next operation, if none is running.
    pub(in crate::worker) fn reconcile(&mut self, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        self.peers.rules.clone_from(&self.updates.rules.borrow());
        if self.operation.activity.is_some() {
            let pod = self.updates.goal.borrow().allocated.clone();
            self.pin(&pod, ctx);
            self.publish_while_executing(ctx);
            self.notify_peers(ctx);
            return Ok(());
        }
        if self.updates.goal.has_changed().unwrap_or(false) {
            self.metrics.note_change();
            self.operation.repeat_guard.forget();
        }
        let desired = self.updates.goal.borrow_and_update().clone();
        self.pin(&desired.allocated, ctx);
        self.observed.stale |= self.updates.missed.take();
        let handover = self.peers.gate.step();
        self.observed.stale |=
            handover.is_none() && std::mem::take(&mut self.operation.handed_over);
        if !desired.is_run() && self.sync_status.state == PodWorkerState::Syncing {
            self.fail_by_decree(&desired, ctx);
        }
        if self.sync_status.state == PodWorkerState::Syncing {
            self.want_volumes(&desired.allocated, ctx);
        }
        if self.observed.stale || self.observed.runtime_state.is_none() {
            self.fetch(&desired.allocated, ctx);
            return Ok(());
        }
        if self.sync_status.state == PodWorkerState::Terminating {
            self.terminate(&desired.allocated, ctx);
        }
        match (self.sync_status.state, handover) {
            (PodWorkerState::Terminating, _) => {}
            (PodWorkerState::Syncing, None) => self.sync(&desired.allocated, ctx),
            (PodWorkerState::Terminated, None) => {}
            (PodWorkerState::Syncing | PodWorkerState::Terminated, Some(step)) => {
                self.hand_over(step, &desired.allocated, ctx);
            }
        }
        self.release_volumes(ctx);
        let is_over =
            self.sync_status.state == PodWorkerState::Terminated && self.volumes.is_released();
        if is_over && desired.is_end() && self.operation.activity.is_none() {
            self.remove(&desired, ctx);
        }
        self.notify_peers(ctx);
        Ok(())
    }

    fn sync(&mut self, pod: &Arc<Pod>, ctx: &mut Context<Msg>) {
        if self.deadline_passed(pod, ctx) {
            self.sync_status.state = PodWorkerState::Terminating;
            self.terminate(pod, ctx);
            return;
        }
        let Some(seen) = &self.observed.runtime_state else {
            return;
        };
        let observed = PodObservation {
            runtime: seen.pod(),
            exits: &self.checkpoint.record.exits,
            backoffs: &self.checkpoint.record.backoffs,
            log_counts: &self.observed.log_counts,
            health: &self.checkpoint.record.health,
            actuated: &self.checkpoint.record.actuated,
            replaced: &self.checkpoint.record.replaced,
        };
        let plan = compute_pod_actions(ctx.timestamp(), pod, &observed, &self.peers.rules.policy);
        self.history
            .tell(pod, &plan.why, ctx.timestamp(), &self.peers.recorder);
        let plan = self.drop_backed_off(plan, ctx.now());
        self.published.waiting.clone_from(&plan.waiting);
        self.publish(pod, &plan.waiting, ctx);
        self.checkpoint.allocate(pod);
        self.checkpoint
            .save(&self.uid, &self.peers.state.checkpoints);

        if self
            .published
            .status
            .as_ref()
            .is_some_and(|s| is_terminal(s))
        {
            self.sync_status.state = PodWorkerState::Terminating;
            self.terminate(pod, ctx);
        } else if plan.actions.is_empty() {
            self.retry_when_due(&plan, pod, ctx);
            self.collect_garbage(pod, ctx);
        } else {
            self.execute(plan, pod, PodWorkerState::Syncing, ctx);
        }
    }

    pub(super) fn terminate(&mut self, pod: &Arc<Pod>, ctx: &mut Context<Msg>) {
        let now = ctx.now();
        self.retries.forget_due(now);
        let Some(seen) = &self.observed.runtime_state else {
            return;
        };
        if seen.pod().is_stopped() {
            // The last status needs the termination messages, so none is published while they are read; the worker
            // comes back here afterwards.
            if self.observed.pending_messages.is_empty() && self.claims_are_undone(pod, ctx) {
                self.sync_status.state = PodWorkerState::Terminated;
                self.publish(pod, &BTreeMap::new(), ctx);
            }
            return;
        }
        let plan = kill::termination_plan(Some(pod), seen.pod(), self.sync_status.grace);
        self.history
            .tell(pod, &plan.why, ctx.timestamp(), &self.peers.recorder);
        self.publish(pod, &BTreeMap::new(), ctx);
        if self.retries.is_backed_off(&RetryKey::Teardown) {
            self.retry_when_due(&plan, pod, ctx);
        } else {
            self.execute(plan, pod, PodWorkerState::Terminating, ctx);
        }
    }

    /// Whether the drivers have undone the claims of a pod of which nothing runs; if not, has them do it. The pod is not
    /// over before, as upstream: its claims may be given to others then.
    fn claims_are_undone(&mut self, pod: &Arc<Pod>, ctx: &mut Context<Msg>) -> bool {
        if self.operation.claims_undone || !self.peers.claims.concerns(pod) {
            return true;
        }
        self.publish(pod, &BTreeMap::new(), ctx);
        if self.retries.is_backed_off(&RetryKey::Teardown) {
            self.retry_when_due(&PodPlan::default(), pod, ctx);
            return false;
        }
        self.operation.activity = Some(Activity::UndoingClaims);
        let (claims, pod) = (self.peers.claims.clone(), pod.clone());
        ctx.run(async move { WorkerCompletion::ClaimsUndone(claims.unprepare(&pod).await).into() });
        false
    }

    /// Begins to carry out a plan; one of a pod that syncs is broken off when the pod is to end.
    pub(super) fn execute(
        &mut self,
        plan: PodPlan,
        pod: &Arc<Pod>,
        stage: PodWorkerState,
        ctx: &mut Context<Msg>,
    ) {
        if !self.may_begin(RuntimeWork::Plan(plan.actions.clone()), ctx) {
            return;
        }
        self.operation.activity = Some(Activity::ExecutingPlan);
        self.metrics.begin(self.sync_status.state, pod, ctx);
        for step in plan.actions.iter().filter_map(backoff_step) {
            let policy = &self.peers.rules.policy.backoff;
            self.checkpoint
                .record
                .backoffs
                .next(&step.key, step.since, ctx.timestamp(), policy);
        }
        let replaces = self.checkpoint.replace(&plan);
        self.checkpoint.disinherit(plan.removed());
        self.checkpoint
            .save(&self.uid, &self.peers.state.checkpoints);
        let starts = plan.actions.iter().filter_map(PodAction::started);
        self.operation.starting = starts.map(str::to_owned).collect();
        let hooked = self.operation.starting.iter();
        let hooked = hooked.filter(|name| has_post_start(pod, name));
        self.operation.awaiting_post_start = hooked.cloned().collect();
        let executor = PlanExecutor {
            peers: self.peers.clone(),
            worker: ctx.addr().clone(),
            uid: self.uid.clone(),
            pod: pod.clone(),
            goal: self.updates.goal.clone(),
            stage,
            rank: CallRank::new(
                pod.priority(),
                self.sync_status.since.unwrap_or_else(|| ctx.now()),
            ),
            replaces,
            actuated: self.checkpoint.record.actuated.clone(),
            ips: self.addresses(pod),
            newest: self.newest_ids(),
            created: self.created_ids(&plan),
            volumes: self.volumes.mounted().cloned().unwrap_or_default(),
            pulls: self.metrics.pulls.clone(),
            placed: self.pins.placed(),
            progress: PlanProgress {
                kills_in_progress: self.operation.kills_in_progress.clone(),
                ..PlanProgress::default()
            },
        };
        let span = spans::of_plan(pod, stage);
        ctx.run(async move {
            let executed = span.scope().run(executor.execute(plan)).await;
            spans::end(&span, &executed);
            WorkerCompletion::PlanExecuted(executed).into()
        });
    }

    /// Whether this operation may begin now; if not, a timer brings the worker back when it may.
    fn may_begin(&mut self, work: RuntimeWork, ctx: &mut Context<Msg>) -> bool {
        let begun = self.operation.repeat_guard.begin(work, ctx.now());
        if let Err(wait) = begun {
            self.retry_after(wait, ctx);
        }
        begun.is_ok()
    }

    pub(in crate::worker) fn addresses(&self, pod: &Pod) -> Vec<String> {
        let found = self
            .observed
            .runtime_state
            .as_ref()
            .map_or(&[][..], |seen| seen.pod().ips());
        addresses(pod, found, &self.peers.rules.node.host_ips)
    }

    fn newest_ids(&self) -> BTreeMap<String, ContainerId> {
        let Some(seen) = self.observed.pod() else {
            return BTreeMap::new();
        };
        // The newest of each name comes first, so that it is the last one put in from the end.
        let oldest_first = seen.containers.iter().rev();
        let ids = oldest_first.map(|c| (c.name.clone(), c.id.clone()));
        ids.collect()
    }

    /// The newest instances that never ran and that the plan keeps: they are started as they are.
    fn created_ids(&self, plan: &PodPlan) -> BTreeMap<String, ContainerId> {
        let seen = self.observed.pod();
        let containers = seen.into_iter().flat_map(|seen| &seen.containers);
        let created = containers.filter(|container| {
            let removed = |action: &PodAction| matches!(action, PodAction::RemoveContainer { instance, .. } if instance.id == container.id);
            container.state == ContainerState::Created
                && plan.sandbox.as_ref() == Some(&container.sandbox)
                && !plan.actions.iter().any(removed)
        });
        created
            .map(|container| (container.name.clone(), container.id.clone()))
            .collect()
    }

    fn collect_garbage(&mut self, pod: &Arc<Pod>, ctx: &mut Context<Msg>) {
        let Some(seen) = &self.observed.runtime_state else {
            return;
        };
        let kept = self.peers.rules.container_gc.kept_by_worker();
        let garbage = logic_resources::gc::garbage(seen.pod(), kept);
        if garbage.is_empty() {
            self.operation.repeat_guard.forget();
            return;
        }
        let is_backed_off = self.retries.is_backed_off(&RetryKey::Garbage);
        if is_backed_off || !self.may_begin(RuntimeWork::Garbage(garbage.clone()), ctx) {
            return;
        }
        self.operation.activity = Some(Activity::CollectingGarbage);
        let sandboxes = garbage.sandboxes.iter().map(|id| id.as_str());
        let containers = garbage.containers.iter().map(|dead| dead.id.as_str());
        self.checkpoint.disinherit(sandboxes.chain(containers));
        let (peers, pod, kills_in_progress) = (
            self.peers.clone(),
            pod.clone(),
            self.operation.kills_in_progress.clone(),
        );
        ctx.run(async move {
            let report = remove::garbage(&peers, &pod, garbage, kills_in_progress).await;
            WorkerCompletion::PlanExecuted(report).into()
        });
    }

    fn fetch(&mut self, pod: &Arc<Pod>, ctx: &mut Context<Msg>) {
        // Later doubts need another fetch: this one may be older.
        self.observed.stale = false;
        self.operation.activity = Some(Activity::Fetching);
        let (runtime, uid, pod) = (self.peers.runtime.clone(), self.uid.clone(), pod.clone());
        let logs = self.peers.rules.node.pod_logs_dir.clone();
        let objects = self.peers.objects.clone();
        ctx.run(async move {
            let log_counts = files::log_counts(logs, pod.clone()).await;
            let features = match asks_for_recursive_read_only(&pod) {
                true => runtime.features(&pod, &*objects).await,
                false => HandlerFeatures::default(),
            };
            let answer = runtime.pod(&uid).await;
            let fetched = answer.map(|runtime| FetchedPod {
                runtime,
                log_counts,
                features,
            });
            WorkerCompletion::Fetched(fetched).into()
        });
    }

    fn remove(&mut self, goal: &PodGoal, ctx: &mut Context<Msg>) {
        let pod = &goal.allocated;
        let keeps = !self.peers.rules.container_gc_period.is_zero();
        let leaves = goal.is_ending_static() && keeps;
        let logs = match goal.leaves_logs() && keeps {
            true => RemovedLog::Kept,
            false => RemovedLog::Removed,
        };
        let Some(seen) = &self.observed.runtime_state else {
            return;
        };
        self.operation.activity = Some(Activity::RemovingPod);
        self.metrics.begin(self.sync_status.state, pod, ctx);
        let (peers, pod, runtime) = (self.peers.clone(), pod.clone(), seen.pod().clone());
        let stopped = self.operation.stopped.clone();
        let span = spans::of_plan(&pod, PodWorkerState::Terminated);
        let removing = async move {
            match leaves {
                true => {
                    remove::all_but_containers(&peers, &pod).await;
                    Ok(())
                }
                false => remove::everything(&peers, &pod, (&runtime, stopped), logs).await,
            }
        };
        ctx.run(async move {
            let removed = span.scope().run(removing).await;
            WorkerCompletion::Removed(removed).into()
        });
    }

    /// Drops the steps that are backed off, and the starts whose volumes are not mounted.
    fn drop_backed_off(&mut self, plan: PodPlan, now: Instant) -> PodPlan {
        self.retries.forget_due(now);
        let Some(seen) = &self.observed.runtime_state else {
            return plan;
        };
        let (retries, mounted) = (&self.retries, self.volumes.mounted().is_some());
        let creates = |action: &PodAction| matches!(action, PodAction::CreateSandbox { .. });
        let paused = plan.actions.iter().any(creates)
            && retries.is_backed_off(&RetryKey::SandboxReplacement);
        let mut plan = plan.due(seen.pod(), |wait| match wait {
            ActionGate::End => retries.is_backed_off(&RetryKey::Teardown),
            ActionGate::Sandbox => paused || retries.is_backed_off(&RetryKey::Sandbox) || !mounted,
            ActionGate::Start(name) => retries.is_backed_off(&RetryKey::Container(name.to_owned())),
            ActionGate::Resize(name) => retries.is_backed_off(&RetryKey::Resize(name.to_owned())),
        });
        for (name, waiting) in self.retries.start_reasons() {
            plan.waiting
                .entry(name.clone())
                .or_insert_with(|| waiting.clone());
        }
        plan
    }

    pub(super) fn retry_when_due(&mut self, plan: &PodPlan, pod: &Pod, ctx: &mut Context<Msg>) {
        let now = ctx.timestamp();
        let times = [plan.retry_at, self.deadline(pod)];
        let waits = times
            .into_iter()
            .flatten()
            .map(|at| Duration::try_from(at.duration_since(now)).unwrap_or_default());
        let backed_off = self
            .retries
            .times()
            .map(|until| until.saturating_duration_since(ctx.now()));
        if let Some(wait) = waits.chain(backed_off).min() {
            self.retry_after(wait, ctx);
        }
    }

    pub(in crate::worker) fn retry_after(&mut self, wait: Duration, ctx: &mut Context<Msg>) {
        if let Some(timer) = self.retries.timer.take() {
            ctx.cancel(timer);
        }
        self.retries.timer = Some(ctx.after(wait, Msg::Retry));
    }

    /// Fails a pod that has exceeded its `activeDeadlineSeconds`.
    fn deadline_passed(&mut self, pod: &Pod, ctx: &Context<Msg>) -> bool {
        let Some(deadline) = self.deadline(pod) else {
            return false;
        };
        if ctx.timestamp() < deadline {
            return false;
        }
        let failure = PodFailure {
            reason: "DeadlineExceeded".to_owned(),
            message: "Pod was active on the node longer than the specified deadline".to_owned(),
            disruption: None,
            ..PodFailure::default()
        };
        let why = HistoryEvent {
            object: None,
            weight: EventLevel::Normal,
            reason: failure.reason.clone(),
            message: failure.message.clone(),
        };
        self.history
            .tell(pod, &[why], ctx.timestamp(), &self.peers.recorder);
        self.sync_status.failure = Some(failure);
        true
    }

    fn deadline(&self, pod: &Pod) -> Option<Timestamp> {
        let seconds = pod.spec.as_ref()?.active_deadline_seconds?;
        let started = self.checkpoint.record.started?;
        started
            .checked_add(jiff::SignedDuration::from_secs(seconds))
            .ok()
    }
}

fn backoff_step(action: &PodAction) -> Option<&BackoffUpdate> {
    match action {
        PodAction::StartContainer { backoff, .. } => backoff.as_ref(),
        PodAction::KillContainer { .. }
        | PodAction::StopSandbox { .. }
        | PodAction::RemoveContainer { .. }
        | PodAction::CreateSandbox { .. }
        | PodAction::ResizePod
        | PodAction::ResizeContainer { .. } => None,
    }
}
