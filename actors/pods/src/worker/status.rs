//! The pod's status, published from the first sync on.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kernel::Context;
use logic_api::types::{
    ContainerId, ContainerState, EventLevel, HistoryEvent, RuntimePod, WaitingReason,
};
use logic_pods::api::take_over;
use logic_pods::resize::ResizeState;
use logic_pods::status::{self, StatusInput, StatusStage};
use state::status as status_manager;

use super::notify::{CarriedOut, LastNotified};
use super::{Activity, Msg, PodWorker, PodWorkerState, history};

/// The published status, and what the next one depends on.
#[derive(Debug, Default)]
pub(super) struct PublishedStatus {
    pub(super) status: Option<Arc<PodStatus>>,
    /// The status before this worker; none once the first status has been derived from it.
    pub(super) previous: Option<Box<PodStatus>>,
    /// Waiting reasons of the last plan, by container, for the status.
    pub(super) waiting: BTreeMap<String, WaitingReason>,
    pub(super) resize: ResizeState,
    /// None while a resize is in progress.
    pub(super) carried_out: Option<CarriedOut>,
    pub(super) last_notified: LastNotified,
}

impl PodWorker {
    /// Begins with the remembered status; records once which fields of the spec are not supported.
    pub(super) fn begin(&mut self, ctx: &Context<Msg>) {
        let is_new = self.checkpoint.is_new();
        let runtime = self.observed.pod();
        let given = self.updates.goal.borrow().allocated.clone();
        self.checkpoint.begin(&given, runtime, ctx.timestamp());
        // Another agent may have run the pod: its last status is continued once. After an earlier life of this agent
        // only the times are.
        self.published.previous = self.checkpoint.record.started.map(|started| {
            let runtime = self.observed.pod();
            let earlier = take_over::earlier(&given, runtime, started);
            Box::new(match is_new {
                true => earlier,
                false => PodStatus {
                    start_time: earlier.start_time,
                    conditions: earlier.conditions,
                    ..PodStatus::default()
                },
            })
        });
        let start_time = self.checkpoint.record.started.map(Time);
        self.published.status = Some(Arc::new(PodStatus {
            start_time,
            ..PodStatus::default()
        }));
        self.metrics.register(&given, is_new);
        let fields = logic_api::decode::unsupported_fields::unsupported_fields(&given);
        if !fields.is_empty() && is_new {
            let message = format!("this version does not act on: {}", fields.join(", "));
            let why = HistoryEvent {
                object: None,
                weight: EventLevel::Warning,
                reason: "FieldsNotHonoured".to_owned(),
                message,
            };
            self.history
                .tell(&given, &[why], ctx.timestamp(), &self.peers.recorder);
        }
    }

    pub(super) fn publish(
        &mut self,
        pod: &Arc<Pod>,
        waiting: &BTreeMap<String, WaitingReason>,
        ctx: &Context<Msg>,
    ) {
        if !self.observed.pending_messages.is_empty() {
            return;
        }
        self.follow_resize(pod, ctx);
        let Some(seen) = &self.observed.runtime_state else {
            return;
        };
        let earlier = self.published.previous.take();
        let input = StatusInput {
            now: ctx.timestamp(),
            pod,
            runtime: &self.shown(seen.pod()),
            runtime_name: &self.peers.runtime.name(),
            handler: self.observed.features,
            waiting,
            previous: earlier.as_deref().or(self.published.status.as_deref()),
            host_ips: &self.peers.rules.node.host_ips,
            stage: match self.sync_status.state {
                PodWorkerState::Syncing => StatusStage::Syncing,
                PodWorkerState::Terminating => StatusStage::Terminating,
                PodWorkerState::Terminated => StatusStage::Terminated,
            },
            failure: self.sync_status.failure.as_ref(),
            health: &self.checkpoint.record.health,
            replaced: &self.checkpoint.record.replaced,
            resize: &self.published.resize,
            last_words: &self.checkpoint.record.termination_messages,
        };
        let mut status = status::pod_status(&input);
        let (devices, assignments) = (&self.peers.devices, &self.peers.assignments);
        devices.show_health(&mut status, &self.uid, assignments);
        self.peers.claims.show(&mut status, pod, ctx.timestamp());
        if self.published.status.as_deref() != Some(&status) {
            for why in history::changes(self.published.status.as_deref(), &status) {
                self.history.note(&why, ctx.timestamp());
            }
            self.count_publish(pod, &status, ctx);
            self.published.status = Some(Arc::new(status));
            self.publish_now();
        }
    }

    /// The runtime state without running containers whose postStart hook has not ended, and without those that never ran
    /// because their start was broken off.
    fn shown<'a>(&self, seen: &'a RuntimePod) -> Cow<'a, RuntimePod> {
        let cancelled = seen.containers.iter().any(|c| c.start_was_cancelled());
        if self.operation.awaiting_post_start.is_empty() && !cancelled {
            return Cow::Borrowed(seen);
        }
        let newest = self
            .operation
            .awaiting_post_start
            .iter()
            .filter_map(|name| seen.newest(name));
        let running = newest.filter(|newest| newest.state == ContainerState::Running);
        let hidden: Vec<&ContainerId> = running.map(|newest| &newest.id).collect();
        let mut shown = seen.clone();
        shown
            .containers
            .retain(|c| !hidden.contains(&&c.id) && !c.start_was_cancelled());
        Cow::Owned(shown)
    }

    /// Publishes observed changes during a plan: a container shows as running at once, not only when the
    /// last one's image has been pulled.
    pub(super) fn publish_while_executing(&mut self, ctx: &Context<Msg>) {
        if self.operation.activity == Some(Activity::ExecutingPlan) {
            let (pod, waiting) = (
                self.updates.goal.borrow().allocated.clone(),
                self.published.waiting.clone(),
            );
            self.publish(&pod, &waiting, ctx);
        }
    }

    pub(super) fn publish_now(&self) {
        let Some(status) = self.published.status.clone() else {
            return;
        };
        let uid = self.uid.clone();
        if let Err(full) = self
            .peers
            .state
            .statuses
            .tell(status_manager::Msg::Changed { uid, status })
        {
            tracing::warn!("status not kept: {full}");
        }
    }
}
