//! Resizes of running pods' CPU and memory: allocated, deferred or refused, in upstream's order.
//!
//! Upstream: pkg/kubelet/allocation/allocation_manager.go (retryPendingResizes), 1.36. Decisions:
//! `logic_pods::resize`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kernel::{Addr, Context};
use logic_api::types::PodUid;
use logic_pods::admission;
use logic_pods::resize::{
    self, AllocatedResources, Allocation, PendingResize, Requested, ResizeInput, ResizeOutcome,
    ResizeRefusal,
};
use logic_pods::status::terminal_on_arrival;
use metrics::pods::resizes;
use state::checkpoints;

use super::assignments::count;
use super::{Msg, PodManager};
use crate::worker::PodGoal;

/// The checkpoint manager answers from memory.
const LOAD_TIMEOUT: Duration = Duration::from_secs(5);

/// Allocations of earlier lives, and pending resizes.
#[derive(Debug, Default)]
pub(super) struct PodResizes {
    /// Allocations of pods that an earlier life of the agent made and that have not started in this one.
    earlier: BTreeMap<PodUid, AllocatedResources>,
    /// The pods whose resizes wait for a decision, and since when each is deferred; none before the first decision.
    waiting: BTreeMap<PodUid, Option<Timestamp>>,
}

impl PodResizes {
    /// Loads the allocations of an earlier life.
    pub(super) async fn load(&mut self, checkpoints: &Addr<checkpoints::Msg>) {
        let ask = checkpoints.ask(LOAD_TIMEOUT, |reply| checkpoints::Msg::Allocations {
            reply,
        });
        match ask.await {
            Ok(allocations) => self.earlier = allocations,
            Err(error) => tracing::warn!("starting without earlier allocations: {error}"),
        }
    }

    pub(super) fn forget(&mut self, uid: &PodUid) {
        self.earlier.remove(uid);
        self.waiting.remove(uid);
    }

    /// A pod of which nothing runs any more is not resized.
    pub(super) fn stop_waiting(&mut self, uid: &PodUid) {
        self.waiting.remove(uid);
    }

    fn defer(&mut self, uid: &PodUid, now: Timestamp) {
        let since = self.waiting.entry(uid.clone()).or_default();
        since.get_or_insert(now);
    }

    /// Queues a pod; one that is deferred already keeps its place.
    pub(super) fn push(&mut self, uid: &PodUid) {
        self.waiting.entry(uid.clone()).or_default();
    }
}

/// Why pending resizes are decided again: upstream's label of the metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RetryTrigger {
    /// Every source has sent its pods, and all of them count.
    PodsAdded,
    PodUpdated,
    /// Another pod holds less than before.
    PodResized,
    PodTerminated,
    PodsRemoved,
    /// The node has changed, which upstream finds with its next period.
    NodeChanged,
}

impl RetryTrigger {
    fn as_str(self) -> &'static str {
        match self {
            Self::PodsAdded => "pods_added",
            Self::PodUpdated => "pod_updated",
            Self::PodResized => "pod_resized",
            Self::PodTerminated => "pod_terminated",
            Self::PodsRemoved => "pods_removed",
            Self::NodeChanged => "periodic_retry",
        }
    }
}

impl PodManager {
    /// Starts an admitted pod, with its earlier allocation if it has one.
    /// What it wants beyond that is decided when all pods of its source have been admitted: those that run already
    /// must count.
    pub(super) fn begin(&mut self, uid: &PodUid, spec: Arc<Pod>) {
        let desired = match self.resizes.earlier.remove(uid) {
            Some(allocated) if resize::pod_differs(&spec, &allocated) => PodGoal {
                allocated: Arc::new(resize::apply(&spec, &allocated)),
                ..PodGoal::run(spec.clone())
            },
            Some(_) | None => PodGoal::run(spec.clone()),
        };
        let wants_more = !Arc::ptr_eq(&desired.allocated, &desired.desired);
        self.workers.spawn(uid, desired);
        if wants_more {
            self.resizes.push(uid);
        }
    }

    /// Decides about the resizes that came with new pods.
    pub(super) fn decide_new_resizes(&mut self, ctx: &Context<Msg>) {
        if self.resizes.waiting.values().any(Option::is_none) {
            self.retry_resizes(RetryTrigger::PodsAdded, ctx);
        }
    }

    /// Takes a running pod's new definition: its desired resources may differ.
    pub(super) fn change(
        &mut self,
        uid: &PodUid,
        desired: PodGoal,
        spec: Arc<Pod>,
        ctx: &Context<Msg>,
    ) {
        if Arc::ptr_eq(&desired.desired, &spec)
            || terminal_on_arrival::same_desired_state(&desired.desired, &spec)
        {
            return;
        }
        count_requested(&resize::requested(&desired.desired, &spec));
        if let Some(why) =
            admission::change_not_supported(&desired.desired, &spec, &self.node.facts)
        {
            self.workers.record(&spec, &why, ctx.timestamp());
        }
        let allocated = AllocatedResources::of(&desired.allocated);
        let same = !resize::pod_differs(&spec, &allocated);
        let pod = match same {
            true => spec.clone(),
            false => Arc::new(resize::apply(&spec, &allocated)),
        };
        let goal = PodGoal {
            pending: desired.pending.filter(|_| !same),
            desired: spec,
            allocated: pod,
            lifecycle: desired.lifecycle,
            resized: desired.resized,
        };
        self.workers.set_goal(uid, goal);
        if same {
            self.resizes.waiting.remove(uid);
        } else {
            self.resizes.push(uid);
            self.retry_resizes(RetryTrigger::PodUpdated, ctx);
        }
    }

    /// Decides about pending resizes, in upstream's order; not before all pods of this node are
    /// known.
    pub(super) fn retry_resizes(&mut self, trigger: RetryTrigger, ctx: &Context<Msg>) {
        if self.resizes.waiting.is_empty() || !self.all_pods_known() {
            return;
        }
        let waiting: Vec<(PodGoal, AllocatedResources, Option<Timestamp>)> = self
            .resizes
            .waiting
            .iter()
            .filter_map(|(uid, since)| {
                let desired = self.workers.desired(uid).filter(PodGoal::is_run)?;
                let allocated = AllocatedResources::of(&desired.allocated);
                Some((desired, allocated, *since))
            })
            .collect();
        let pending: Vec<PendingResize<'_>> = waiting
            .iter()
            .map(|(desired, allocated, since)| PendingResize {
                pod: &desired.desired,
                allocated,
                since: *since,
            })
            .collect();
        for uid in resize::order(&pending) {
            self.decide_resize(&uid, trigger, ctx);
        }
    }

    /// Decides what is allocated of a running pod's desired resources, and tells its worker.
    fn decide_resize(&mut self, uid: &PodUid, trigger: RetryTrigger, ctx: &Context<Msg>) {
        let Some(desired) = self.workers.desired(uid).filter(PodGoal::is_run) else {
            self.resizes.waiting.remove(uid);
            return;
        };
        let active = self.workers.active();
        let others: Vec<&Pod> = active.iter().map(|pod| &**pod).collect();
        let began = kernel::now();
        let ResizeOutcome { allocation, counts } = resize::allocate(&ResizeInput {
            wanted: &desired.desired,
            allocated: &AllocatedResources::of(&desired.allocated),
            others: &others,
            used: Some(&self.workers.used(uid)),
            node: &self.node.facts,
            topology: &self.workers.placement().topology,
            held: &self.workers.assignments(),
            devices: &self.workers.devices(),
            pressures: &self.node.pressures,
            shutting_down: self.node.shutting_down,
        });
        count(&counts, kernel::now().saturating_duration_since(began));
        let next = match allocation {
            Allocation::Unchanged => PodGoal {
                resized: desired.resized,
                ..PodGoal::run(desired.desired)
            },
            Allocation::Allocated { assigned, .. } => {
                self.workers.assign(uid, assigned);
                if matches!(desired.pending, Some((ResizeRefusal::Deferred, _))) {
                    let trigger = [trigger.as_str()];
                    resizes::DEFERRED_ACCEPTED.with_label_values(&trigger).inc();
                }
                PodGoal {
                    resized: desired.desired.metadata.generation,
                    ..PodGoal::run(desired.desired)
                }
            }
            Allocation::Preempt {
                victims, failure, ..
            } => {
                self.end_victims(&victims, &failure);
                // Retried when they have ended.
                return self.resizes.defer(uid, ctx.timestamp());
            }
            Allocation::Refused(refusal, why) => {
                match refusal {
                    ResizeRefusal::Deferred => self.resizes.defer(uid, ctx.timestamp()),
                    // Only another definition helps.
                    ResizeRefusal::Infeasible => {
                        self.resizes.waiting.remove(uid);
                        let detail = resize::infeasible_detail(&why);
                        resizes::INFEASIBLE.with_label_values(&[detail]).inc();
                    }
                }
                let pending = Some((refusal, why));
                self.workers.set_goal(uid, PodGoal { pending, ..desired });
                return;
            }
        };
        self.resizes.waiting.remove(uid);
        self.workers.set_goal(uid, next);
    }
}

fn count_requested(requested: &[Requested]) {
    for one in requested {
        let labels = [one.resource, one.requirement, one.operation];
        resizes::REQUESTED.with_label_values(&labels).inc();
    }
}
