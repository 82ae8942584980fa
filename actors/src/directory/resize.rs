//! Who gets what it wants now: changes of running pods' CPU and memory, answered in their order.
//!
//! Upstream: pkg/kubelet/allocation/allocation_manager.go (retryPendingResizes), 1.36. Decisions:
//! `logic::resize`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kernel::{Addr, Context};
use logic::arrival;
use logic::resize::{self, Allocated, Allocation, Pending, Refusal, Requested, ResizeInput};
use logic::types::PodUid;
use metrics::resizes;

use super::desired::Desired;
use super::{Directory, Msg};
use crate::records;

/// The keeper answers from memory.
const LOAD_WITHIN: Duration = Duration::from_secs(5);

/// What is promised to whom, and who waits for more.
#[derive(Debug, Default)]
pub(super) struct Resizes {
    /// By pods that an earlier life of the agent allocated and that have not begun in this one.
    earlier: BTreeMap<PodUid, Allocated>,
    /// Since when each pod waits for what it wants.
    waiting: BTreeMap<PodUid, Timestamp>,
}

impl Resizes {
    /// Takes up what an earlier life promised.
    pub(super) async fn load(&mut self, records: &Addr<records::Msg>) {
        let ask = records.ask(LOAD_WITHIN, |reply| records::Msg::Allocations { reply });
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

impl Directory {
    /// An admitted pod begins, with what it was promised before, if it was.
    pub(super) fn begin(&mut self, uid: &PodUid, spec: Arc<Pod>, ctx: &Context<Msg>) {
        let desired = match self.resizes.earlier.remove(uid) {
            Some(allocated) if resize::pod_differs(&spec, &allocated) => Desired {
                pod: Arc::new(resize::apply(&spec, &allocated)),
                ..Desired::run(spec.clone())
            },
            Some(_) | None => Desired::run(spec.clone()),
        };
        let wants_more = !Arc::ptr_eq(&desired.pod, &desired.spec);
        self.workers.spawn(uid, desired);
        if wants_more {
            self.answer(uid, "pods_added", ctx);
        }
    }

    /// A pod that runs is given by its source anew: what it wants may have changed.
    pub(super) fn change(
        &mut self,
        uid: &PodUid,
        desired: Desired,
        spec: Arc<Pod>,
        ctx: &Context<Msg>,
    ) {
        if Arc::ptr_eq(&desired.spec, &spec) || arrival::same_wish(&desired.spec, &spec) {
            return;
        }
        count_requested(&resize::requested(&desired.spec, &spec));
        let allocated = Allocated::of(&desired.pod);
        let same = !resize::pod_differs(&spec, &allocated);
        let pod = match same {
            true => spec.clone(),
            false => Arc::new(resize::apply(&spec, &allocated)),
        };
        let pending = desired.pending.filter(|_| !same);
        self.workers.desire(
            uid,
            Desired {
                spec,
                pod,
                course: desired.course,
                pending,
            },
        );
        if !same {
            self.answer(uid, "pod_updated", ctx);
        }
    }

    /// Answers those again who wait for more than they have, in upstream's order.
    pub(super) fn retry_resizes(&mut self, ctx: &Context<Msg>) {
        let waiting: Vec<(Desired, Allocated, Timestamp)> = self
            .resizes
            .waiting
            .iter()
            .filter_map(|(uid, since)| {
                let desired = self.workers.desired(uid).filter(Desired::is_run)?;
                let allocated = Allocated::of(&desired.pod);
                Some((desired, allocated, *since))
            })
            .collect();
        let pending: Vec<Pending<'_>> = waiting
            .iter()
            .map(|(desired, allocated, since)| Pending {
                pod: &desired.spec,
                allocated,
                since: Some(*since),
            })
            .collect();
        for uid in resize::order(&pending) {
            self.answer(&uid, "pods_removed", ctx);
        }
    }

    /// Decides what a running pod gets of what it wants, and lets its worker know. `trigger` is upstream's word for why
    /// it is decided now.
    fn answer(&mut self, uid: &PodUid, trigger: &str, ctx: &Context<Msg>) {
        let Some(desired) = self.workers.desired(uid).filter(Desired::is_run) else {
            self.resizes.waiting.remove(uid);
            return;
        };
        let active = self.workers.active();
        let others: Vec<&Pod> = active.iter().map(|pod| &**pod).collect();
        let answer = resize::allocate(&ResizeInput {
            wanted: &desired.spec,
            allocated: &Allocated::of(&desired.pod),
            others: &others,
            node: &self.node,
            pressures: &self.pressures,
            shutting_down: self.shutting_down,
        });
        let next = match answer {
            Allocation::Unchanged => Desired::run(desired.spec),
            Allocation::Allocated(_) => {
                if matches!(desired.pending, Some((Refusal::Deferred, _))) {
                    let accepted = resizes::DEFERRED_ACCEPTED.with_label_values(&[trigger]);
                    accepted.inc();
                }
                Desired::run(desired.spec)
            }
            Allocation::Preempt {
                victims, failure, ..
            } => {
                self.end_victims(&victims, &failure);
                // Asked again when they are gone.
                self.resizes.waiting.insert(uid.clone(), now(ctx));
                return;
            }
            Allocation::Refused(refusal, why) => {
                let since = self.resizes.waiting.entry(uid.clone());
                since.or_insert_with(|| now(ctx));
                if refusal == Refusal::Infeasible {
                    let detail = resize::infeasible_detail(&why);
                    resizes::INFEASIBLE.with_label_values(&[detail]).inc();
                }
                let pending = Some((refusal, why));
                return self.workers.desire(uid, Desired { pending, ..desired });
            }
        };
        self.resizes.waiting.remove(uid);
        self.workers.desire(uid, next);
    }
}

fn count_requested(requested: &[Requested]) {
    for one in requested {
        let labels = [one.resource, one.requirement, one.operation];
        resizes::REQUESTED.with_label_values(&labels).inc();
    }
}

fn now(ctx: &Context<Msg>) -> Timestamp {
    Timestamp::try_from(ctx.wall()).unwrap_or(Timestamp::UNIX_EPOCH)
}
