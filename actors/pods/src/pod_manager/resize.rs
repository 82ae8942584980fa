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
use logic_pods::resize::{
    self, AllocatedResources, Allocation, PendingResize, Requested, ResizeInput, ResizeRefusal,
};
use logic_pods::status::terminal_on_arrival;
use metrics::pods::resizes;
use state::checkpoints;

use super::{Msg, PodManager};
use crate::worker::PodGoal;

/// The checkpoint manager answers from memory.
const LOAD_TIMEOUT: Duration = Duration::from_secs(5);

/// Allocations of earlier lives, and pending resizes.
#[derive(Debug, Default)]
pub(super) struct PodResizes {
    /// Allocations of pods that an earlier life of the agent made and that have not started in this one.
    earlier: BTreeMap<PodUid, AllocatedResources>,
    /// Since when each pod's resize is pending.
    waiting: BTreeMap<PodUid, Timestamp>,
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
}

impl PodManager {
    /// Starts an admitted pod, with its earlier allocation if it has one.
    pub(super) fn begin(&mut self, uid: &PodUid, spec: Arc<Pod>, ctx: &Context<Msg>) {
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
            self.answer(uid, "pods_added", ctx);
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
        let allocated = AllocatedResources::of(&desired.allocated);
        let same = !resize::pod_differs(&spec, &allocated);
        let pod = match same {
            true => spec.clone(),
            false => Arc::new(resize::apply(&spec, &allocated)),
        };
        let pending = desired.pending.filter(|_| !same);
        self.workers.set_goal(
            uid,
            PodGoal {
                desired: spec,
                allocated: pod,
                lifecycle: desired.lifecycle,
                pending,
            },
        );
        if !same {
            self.answer(uid, "pod_updated", ctx);
        }
    }

    /// Retries pending resizes, in upstream's order.
    pub(super) fn retry_resizes(&mut self, ctx: &Context<Msg>) {
        let waiting: Vec<(PodGoal, AllocatedResources, Timestamp)> = self
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
                since: Some(*since),
            })
            .collect();
        for uid in resize::order(&pending) {
            self.answer(&uid, "pods_removed", ctx);
        }
    }

    /// Decides what is allocated of a running pod's desired resources, and tells its worker. `trigger` is upstream's
    /// label for why it is decided now.
    fn answer(&mut self, uid: &PodUid, trigger: &str, ctx: &Context<Msg>) {
        let Some(desired) = self.workers.desired(uid).filter(PodGoal::is_run) else {
            self.resizes.waiting.remove(uid);
            return;
        };
        let active = self.workers.active();
        let others: Vec<&Pod> = active.iter().map(|pod| &**pod).collect();
        let answer = resize::allocate(&ResizeInput {
            wanted: &desired.desired,
            allocated: &AllocatedResources::of(&desired.allocated),
            others: &others,
            node: &self.node.facts,
            pressures: &self.node.pressures,
            shutting_down: self.node.shutting_down,
        });
        let next = match answer {
            Allocation::Unchanged => PodGoal::run(desired.desired),
            Allocation::Allocated(_) => {
                if matches!(desired.pending, Some((ResizeRefusal::Deferred, _))) {
                    let accepted = resizes::DEFERRED_ACCEPTED.with_label_values(&[trigger]);
                    accepted.inc();
                }
                PodGoal::run(desired.desired)
            }
            Allocation::Preempt {
                victims, failure, ..
            } => {
                self.end_victims(&victims, &failure);
                // Retried when they have ended.
                self.resizes.waiting.insert(uid.clone(), ctx.timestamp());
                return;
            }
            Allocation::Refused(refusal, why) => {
                let since = self.resizes.waiting.entry(uid.clone());
                since.or_insert_with(|| ctx.timestamp());
                if refusal == ResizeRefusal::Infeasible {
                    let detail = resize::infeasible_detail(&why);
                    resizes::INFEASIBLE.with_label_values(&[detail]).inc();
                }
                let pending = Some((refusal, why));
                return self.workers.set_goal(uid, PodGoal { pending, ..desired });
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
