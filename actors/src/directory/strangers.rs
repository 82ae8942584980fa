//! Who is on the node and has no worker: those whom nobody desires end, and what belongs to nobody goes.
//!
//! Upstream: pkg/kubelet/kubelet_pods.go (HandlePodCleanups), 1.36.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kernel::Context;
use logic::arrival::{Arrival, arrival};
use logic::types::{PodUid, RuntimePod};

use super::desired::{Desired, from_runtime, full_name};
use super::{Directory, Msg};
use crate::worker;

/// Between the end of a pod and the removal of what it left, so that many ends are one.
const TIDY_AFTER: Duration = Duration::from_millis(500);

impl Directory {
    pub(super) fn relisted(
        &mut self,
        pods: &BTreeMap<PodUid, RuntimePod>,
        changed: &[PodUid],
        ctx: &mut Context<Msg>,
    ) {
        for uid in changed {
            self.workers.tell(uid, worker::Msg::Recheck);
        }
        let first = self.strangers.is_none();
        let stranger =
            |(uid, pod): (&PodUid, &RuntimePod)| (uid.clone(), Arc::new(from_runtime(pod)));
        let unknown = pods
            .iter()
            .filter(|(uid, _)| self.workers.desired(uid).is_none());
        let alive = pods.iter().filter(|(_, pod)| !pod.is_stopped());
        self.alive = alive.map(|(uid, _)| uid.clone()).collect();
        self.strangers = Some(unknown.map(stranger).collect());
        self.end_undesired(ctx);
        self.tidy_soon(ctx);
        if first {
            for (uid, pod) in self.claims.take_waiting() {
                self.desire(uid, pod, ctx);
            }
        }
    }

    /// Ends the pods that exist and that nobody desires, once everybody has been asked.
    pub(super) fn end_undesired(&mut self, ctx: &Context<Msg>) {
        if !self.missing_sources().is_empty() {
            return;
        }
        let Some(strangers) = self.strangers.take() else {
            return;
        };
        for uid in self.workers.running() {
            if !self.is_desired(&uid) {
                self.undesire(&uid, ctx);
            }
        }
        let desired = self.sets.values().flat_map(BTreeMap::keys);
        self.workers.keep_users_of(strangers.keys().chain(desired));
        let known = |uid: &PodUid| self.is_desired(uid) || self.workers.desired(uid).is_some();
        let (expected, orphans) = strangers.into_iter().partition(|(uid, _)| known(uid));
        let orphans: BTreeMap<PodUid, Arc<Pod>> = orphans;
        self.strangers = Some(expected);
        for (uid, pod) in orphans {
            tracing::info!(pod = %full_name(&pod), %uid, "ending a pod that no source desires");
            metrics::pods::ORPHANED.inc();
            self.claims.claim(&uid, &pod);
            self.workers.spawn(&uid, Desired::end(pod));
        }
    }

    /// The pod has ended before, and its object remains: what may still run of it ends.
    pub(super) fn resume(&mut self, uid: PodUid, pod: Arc<Pod>, ctx: &Context<Msg>) {
        if !self.alive.contains(&uid) {
            return;
        }
        if !self.claims.claim(&uid, &pod) {
            return self.claims.wait(uid, pod);
        }
        match arrival(&pod) {
            Arrival::Failed(failure) => self.workers.spawn(&uid, Desired::fail(pod, failure, None)),
            Arrival::Live | Arrival::Succeeded => self.admit(uid, pod, ctx),
        }
    }

    /// Soon, and once for everybody who finishes meanwhile.
    pub(super) fn tidy_soon(&mut self, ctx: &mut Context<Msg>) {
        if self.tidying.is_none() {
            self.tidying = Some(ctx.after(TIDY_AFTER, Msg::Tidy));
        }
    }

    /// What belongs to no pod is left over: said only when everybody has spoken about who is desired and who exists.
    pub(super) fn tidy(&mut self) {
        self.tidying = None;
        let Some(strangers) = &self.strangers else {
            return;
        };
        if !self.missing_sources().is_empty() {
            return;
        }
        let desired = self.sets.values().flat_map(BTreeMap::keys);
        self.workers
            .keep_folders_of(strangers.keys().chain(desired));
    }
}
