//! A pod whose runtime is handed over to another one: it ends here, is remembered as it was, and goes on there.
//!
//! Beyond upstream, whose kubelet forgets what runs in the runtime that it had before. What is remembered stands for dead
//! instances of the new runtime, so that restart counts, last states and what never runs twice are as after a reboot of the node.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kernel::Context;
use logic_api::pod::PodView;
use logic_api::types::{ContainerId, EventLevel, HistoryEvent, PodFailure, RestartPolicy};
use logic_pods::pod_actions::{PodPlan, kill};

use super::completion::WorkerCompletion;
use crate::runtime::handover::HandoverStep;
use crate::worker::executor::remove;
use crate::worker::retries::RetryKey;
use crate::worker::{Activity, Msg, PodWorker, PodWorkerState};

/// The reason of a pod that runs once and was ended for the hand-over, and of what is told about it.
pub(in crate::worker) const RUNTIME_HANDOVER: &str = "RuntimeHandover";

impl PodWorker {
    /// Goes the pod's next step out of its runtime.
    pub(super) fn hand_over(&mut self, step: HandoverStep, pod: &Arc<Pod>, ctx: &mut Context<Msg>) {
        self.operation.handed_over = true;
        let Some(seen) = self.observed.pod() else {
            return;
        };
        // What is on record may still be there: an agent that was killed in between has not removed it.
        let is_gone = !self.observed.is_in_runtime && self.checkpoint.is_inherited(seen);
        if !seen.is_stopped() {
            return self.leave(pod, ctx);
        }
        self.publish(pod, &self.published.waiting.clone(), ctx);
        // The messages are part of what is remembered; the worker comes back when they have been read.
        let is_read = self.observed.pending_messages.is_empty();
        if step == HandoverStep::Clear && !is_gone && is_read {
            self.clear(pod, ctx);
        }
    }

    /// Ends what runs, within the pod's grace period.
    fn leave(&mut self, pod: &Arc<Pod>, ctx: &mut Context<Msg>) {
        self.retries.forget_due(ctx.now());
        let Some(seen) = self.observed.pod() else {
            return;
        };
        let mut plan = kill::termination_plan(Some(pod), seen, None);
        if pod.restart_policy() == RestartPolicy::Never && plan.kills().next().is_some() {
            self.sync_status.state = PodWorkerState::Terminating;
            self.sync_status.failure = Some(broken_off());
            return self.terminate(pod, ctx);
        }
        plan.replaced = restarted(&plan, pod);
        let note = HistoryEvent {
            object: None,
            weight: EventLevel::Note,
            reason: RUNTIME_HANDOVER.to_owned(),
            message: format!(
                "the pod ends in its runtime: {}",
                self.peers.gate.describe()
            ),
        };
        plan.why.insert(0, note);
        self.history
            .tell(pod, &plan.why, ctx.timestamp(), &self.peers.recorder);
        self.publish(pod, &self.published.waiting.clone(), ctx);
        match self.retries.is_backed_off(&RetryKey::Teardown) {
            true => self.retry_when_due(&plan, pod, ctx),
            false => self.execute(plan, pod, PodWorkerState::Terminating, ctx),
        }
    }

    /// Removes what is left of the pod in the runtime, once it is on record.
    fn clear(&mut self, pod: &Arc<Pod>, ctx: &mut Context<Msg>) {
        let Some(seen) = self.observed.pod().cloned() else {
            return;
        };
        self.checkpoint.inherit(&seen);
        self.checkpoint
            .save(&self.uid, &self.peers.state.checkpoints);
        self.operation.activity = Some(Activity::RemovingPod);
        let (peers, pod) = (self.peers.clone(), pod.clone());
        let stopped = std::mem::take(&mut self.operation.stopped);
        ctx.run(async move {
            let cleared = remove::cleared(&peers, &pod, &seen, stopped).await;
            WorkerCompletion::Cleared(cleared).into()
        });
    }
}

/// The instances that are started again whatever their exit codes: this agent ends them, not they themselves. A container
/// that runs once is not among them.
fn restarted(plan: &PodPlan, pod: &Pod) -> BTreeSet<ContainerId> {
    let runs_once = |name: &str| {
        let spec = pod.container(name).map(|(_, spec)| spec);
        spec.is_some_and(|spec| spec.restart_policy.as_deref() == Some("Never"))
    };
    let killed = plan.kills().filter(|(_, name)| !runs_once(name));
    killed.map(|(id, _)| id.clone()).collect()
}

/// Why a pod that runs once does not go on: nothing of it runs twice.
fn broken_off() -> PodFailure {
    let message = "Pod was terminated because its container runtime is replaced by another one";
    PodFailure {
        reason: RUNTIME_HANDOVER.to_owned(),
        message: message.to_owned(),
        disruption: Some(message.to_owned()),
        ..PodFailure::default()
    }
}
