//! The results of the worker's own tasks, and what it learns from them.

use std::collections::BTreeMap;
use std::sync::Arc;

use clients::runtime::RuntimeError;
use k8s_openapi::api::core::v1::Pod;
use kernel::{AskError, Context, Exit};
use logic_api::types::{ContainerId, EventLevel, HistoryEvent, RuntimePod, SandboxId};
use logic_pods::runtime::runtime_class::HandlerFeatures;
use logic_pods::runtime::runtime_state::PodRuntimeState;
use state::{checkpoints, status as status_manager};
use volumes::NotReleased;

use super::{MAX_SILENT_FAILURES, removal_pause};
use crate::pod_manager::claims::ClaimRequestError;
use crate::worker::context::SyncResult;
use crate::worker::executor::remove::NotRemoved;
use crate::worker::retries::RetryKey;
use crate::worker::{
    Msg, Pinned, PodWorker, RETRY_BACKOFF, RETRY_PERIOD, WorkerReport, metrics, mounts,
};

/// The result of a task that the worker began.
#[derive(Debug)]
pub enum WorkerCompletion {
    /// The pod's full state in the runtime.
    Fetched(Result<FetchedPod, RuntimeError>),
    /// What a plan did.
    PlanExecuted(SyncResult),
    /// The termination messages of containers that exited.
    TerminationMessages(BTreeMap<ContainerId, String>),
    /// The answer to a request for the pod's volumes.
    Mounted(Arc<Pod>, mounts::VolumesAnswer),
    /// Whether the pod's volumes are unmounted.
    Released(Result<Result<(), NotReleased>, AskError>),
    /// Whether a runtime that is handed over has nothing of the pod any more.
    Cleared(Result<(), NotRemoved>),
    /// Whether the drivers have undone the claims of a pod of which nothing runs.
    ClaimsUndone(Result<(), ClaimRequestError>),
    /// Whether the pod is removed.
    Removed(Result<(), NotRemoved>),
    /// Which containers were moved to other CPUs.
    Pinned(Vec<Pinned>),
}

impl From<WorkerCompletion> for Msg {
    fn from(completion: WorkerCompletion) -> Msg {
        Msg::Completed(Box::new(completion))
    }
}

/// The pod's full state in the runtime, its logs' restart counts, and its handler's features.
#[derive(Debug)]
pub struct FetchedPod {
    pub(super) runtime: RuntimePod,
    pub(super) log_counts: BTreeMap<String, u32>,
    pub(super) features: HandlerFeatures,
}

impl PodWorker {
    pub(in crate::worker) fn completed(
        &mut self,
        completion: WorkerCompletion,
        ctx: &mut Context<Msg>,
    ) -> Result<(), Exit> {
        match completion {
            WorkerCompletion::Fetched(answer) => self.fetched(answer, ctx),
            WorkerCompletion::PlanExecuted(report) => self.plan_executed(report, ctx),
            WorkerCompletion::TerminationMessages(texts) => {
                self.termination_messages_read(texts, ctx)
            }
            WorkerCompletion::Mounted(pod, answer) => {
                self.take_volumes(&pod, answer, ctx);
                self.reconcile(ctx)
            }
            WorkerCompletion::Released(answer) => {
                self.take_release(answer, ctx);
                self.reconcile(ctx)
            }
            WorkerCompletion::Cleared(result) => self.cleared(result, ctx),
            WorkerCompletion::ClaimsUndone(result) => self.claims_undone(result, ctx),
            WorkerCompletion::Removed(result) => self.removed(result, ctx),
            WorkerCompletion::Pinned(pins) => {
                self.pinned(pins, ctx);
                self.reconcile(ctx)
            }
        }
    }

    fn fetched(
        &mut self,
        answer: Result<FetchedPod, RuntimeError>,
        ctx: &mut Context<Msg>,
    ) -> Result<(), Exit> {
        self.operation.activity = None;
        match answer {
            Ok(fetched) => {
                self.observed.log_counts = fetched.log_counts;
                self.observed.features = fetched.features;
                self.update_runtime_state(fetched.runtime, ctx);
                self.reconcile(ctx)
            }
            Err(error) => {
                tracing::warn!(pod = %self.pod_name(), "cannot look at the pod: {}", error.describe());
                self.observed.stale = true;
                self.retry_after(RETRY_PERIOD, ctx);
                Ok(())
            }
        }
    }

    fn plan_executed(&mut self, report: SyncResult, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        self.operation.activity = None;
        let now = ctx.now();
        self.metrics.end(now);
        for (name, resources) in report.started {
            self.retries.forget_reasons(&name);
            self.checkpoint.actuate(name, resources);
        }
        if let Some(at) = report.sandbox_made {
            self.retries.sandbox_made(at);
        }
        // After them: a resize that was carried out in part has failed all the same.
        for (key, problem) in report.problems {
            self.retries
                .add(key, now + problem.retry_after, problem.waiting);
        }
        self.operation.kills_in_progress = report.kills_in_progress;
        self.operation.stopped.extend(report.stopped);
        self.operation.starting.clear();
        self.operation.awaiting_post_start.clear();
        match report.runtime {
            Ok(runtime) => {
                let before = self.observed.container_names();
                self.update_runtime_state(runtime, ctx);
                self.observed.note_lost(&before, self.sync_status.state);
            }
            Err(error) => {
                tracing::warn!(pod = %self.pod_name(), "cannot look at the pod: {}", error.describe());
                self.observed.stale = true;
                self.retry_after(RETRY_PERIOD, ctx);
                return Ok(());
            }
        }
        self.reconcile(ctx)
    }

    fn termination_messages_read(
        &mut self,
        texts: BTreeMap<ContainerId, String>,
        ctx: &mut Context<Msg>,
    ) -> Result<(), Exit> {
        for (id, text) in texts {
            self.observed.pending_messages.remove(&id);
            self.checkpoint.record.termination_messages.insert(id, text);
        }
        self.reconcile(ctx)
    }

    fn cleared(
        &mut self,
        result: Result<(), NotRemoved>,
        ctx: &mut Context<Msg>,
    ) -> Result<(), Exit> {
        self.operation.activity = None;
        self.observed.stale = true;
        if let Err(left) = result {
            tracing::warn!(pod = %self.pod_name(), "the runtime that is handed over keeps {left}");
            self.retry_after(RETRY_PERIOD, ctx);
            return Ok(());
        }
        self.reconcile(ctx)
    }

    fn claims_undone(
        &mut self,
        result: Result<(), ClaimRequestError>,
        ctx: &mut Context<Msg>,
    ) -> Result<(), Exit> {
        self.operation.activity = None;
        match result {
            Ok(()) => self.operation.claims_undone = true,
            Err(error) => {
                tracing::warn!(pod = %self.pod_name(), "the pod is not over: {error}");
                let why = HistoryEvent {
                    object: None,
                    weight: EventLevel::Warning,
                    reason: "FailedUnprepareDynamicResources".to_owned(),
                    message: format!("Failed to unprepare dynamic resources: {error}"),
                };
                let pod = self.updates.goal.borrow().allocated.clone();
                let recorder = &self.peers.recorder;
                self.history.record(&pod, &why, ctx.timestamp(), recorder);
                let until = ctx.now() + RETRY_BACKOFF;
                self.retries.add(RetryKey::Teardown, until, None);
            }
        }
        self.reconcile(ctx)
    }

    fn removed(
        &mut self,
        result: Result<(), NotRemoved>,
        ctx: &mut Context<Msg>,
    ) -> Result<(), Exit> {
        self.operation.activity = None;
        if let Err(left) = result {
            self.not_removed(&left, ctx);
            return Ok(());
        }
        self.metrics.end(ctx.now());
        metrics::forget_probes(&self.updates.goal.borrow().allocated);
        // Each of these managers has room for every pod, and these messages only clean up.
        let uid = &self.uid;
        let sent = [
            self.peers
                .state
                .checkpoints
                .tell(checkpoints::Msg::Forget { uid: uid.clone() })
                .is_ok(),
            self.peers
                .state
                .statuses
                .tell(status_manager::Msg::Forget { uid: uid.clone() })
                .is_ok(),
            self.peers
                .pod_manager
                .tell(WorkerReport::Finished { uid: uid.clone() })
                .is_ok(),
        ];
        if sent.contains(&false) {
            self.retry_after(RETRY_PERIOD, ctx);
            return Ok(());
        }
        Err(Exit::Done)
    }

    /// Retries the removal. A pod of which nothing runs is over for everybody else, whatever the runtime keeps of it: the API
    /// forgets it, as upstream, and its name is free.
    fn not_removed(&mut self, left: &NotRemoved, ctx: &mut Context<Msg>) {
        let failures = self.operation.removal.fail();
        self.operation.stopped.clear();
        tracing::warn!(pod = %self.pod_name(), failures, "cannot remove what is left of the pod: {left}");
        self.observed.stale = true;
        self.retry_after(removal_pause(failures), ctx);
        if left.is_alive() || (!left.is_refused() && failures < MAX_SILENT_FAILURES) {
            return;
        }
        let why = HistoryEvent {
            object: None,
            weight: EventLevel::Warning,
            reason: "FailedRemoval".to_owned(),
            message: format!("nothing of the pod runs, but the runtime keeps {left}"),
        };
        let pod = self.updates.goal.borrow().allocated.clone();
        let (now, uid) = (ctx.timestamp(), self.uid.clone());
        self.history
            .tell(&pod, std::slice::from_ref(&why), now, &self.peers.recorder);
        self.operation.removal.stuck = Some(why.message);
        let left = left.to_string();
        let forget = status_manager::Msg::Forget { uid: uid.clone() };
        let stuck = WorkerReport::Stuck { uid, left };
        let sent = [
            self.peers.state.statuses.tell(forget).is_ok(),
            self.peers.pod_manager.tell(stuck).is_ok(),
        ];
        if sent.contains(&false) {
            tracing::warn!(pod = %self.uid, "that it is stuck is sent again after the next attempt");
        }
    }

    fn update_runtime_state(&mut self, runtime: RuntimePod, ctx: &mut Context<Msg>) {
        self.observed.is_in_runtime =
            !runtime.sandboxes.is_empty() || !runtime.containers.is_empty();
        let runtime = self.checkpoint.with_inherited(runtime);
        let seen = match &mut self.observed.runtime_state {
            Some(seen) => {
                seen.replace(runtime);
                self.observed.stale |= seen.is_doubtful();
                seen
            }
            None => self
                .observed
                .runtime_state
                .insert(PodRuntimeState::new(runtime)),
        };
        let pod = self.updates.goal.borrow().allocated.clone();
        metrics::ends(&pod, seen.pod(), &self.checkpoint.record.exits);
        self.checkpoint.note_made(seen.pod());
        self.checkpoint.note_exits(seen.pod(), ctx.timestamp());
        self.checkpoint.forget_gone(seen.pod());
        let may_run = |id: &ContainerId| {
            let mut all = seen.pod().containers.iter();
            all.any(|container| container.id == *id && container.may_run())
        };
        self.operation.kills_in_progress.retain(|id, _| may_run(id));
        let sandboxes = &seen.pod().sandboxes;
        let exists = |id: &SandboxId| sandboxes.iter().any(|sandbox| sandbox.id == *id);
        self.operation.stopped.retain(exists);
        self.read_termination_messages(ctx);
        if self.published.status.is_none() {
            self.begin(ctx);
        }
    }
}
