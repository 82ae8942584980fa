//! Orphans: pods without a worker that no source desires end, and files of unknown pods are removed.
//!
//! Upstream: pkg/kubelet/kubelet_pods.go (HandlePodCleanups), 1.36.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kernel::Context;
use logic_api::pod::labels;
use logic_api::types::{PodUid, RuntimePod};
use logic_pods::status::terminal_on_arrival::{PodArrival, classify_arrival};

use super::names::full_name;
use super::pod_folders::KeptFolders;
use super::{Msg, PodManager};
use crate::worker::{self, PodGoal};

/// Between the end of a pod and the removal of its files, so that many ends share one clean-up.
const CLEAN_UP_DELAY: Duration = Duration::from_millis(500);

/// Pods of the runtime that have no worker.
#[derive(Debug, Default)]
pub(super) struct UnmanagedPods {
    /// None before the first relist.
    pub(super) pods: Option<BTreeMap<PodUid, Arc<Pod>>>,
    /// Those of which something may still run.
    pub(super) alive: BTreeSet<PodUid>,
    /// Static pods that have ended, and when their dead containers are removed.
    dead: BTreeMap<PodUid, (Arc<Pod>, Instant)>,
    /// Pods that are gone, and when their logs are removed.
    pub(super) kept_logs: BTreeMap<PodUid, Instant>,
    /// Folders of no pod that could not be removed, with what was reported of each; empty before the second round.
    pub(super) kept_folders: KeptFolders,
    /// When logs, cgroups and folders were listed last, to find those of pods that are gone.
    pub(super) listed_at: Option<Instant>,
}

impl UnmanagedPods {
    /// Whether the pod has ended and its logs are kept a while.
    pub(super) fn keeps_logs(&self, uid: &PodUid) -> bool {
        self.is_dead(uid) || self.kept_logs.contains_key(uid)
    }

    /// The static pods that have ended and whose dead containers are kept a while.
    pub(super) fn dead(&self) -> impl Iterator<Item = &PodUid> {
        self.dead.keys()
    }

    /// Whether it is a static pod that has ended, whose dead containers and logs are kept a while.
    pub(super) fn is_dead(&self, uid: &PodUid) -> bool {
        self.dead.contains_key(uid)
    }
}

impl PodManager {
    pub(super) fn relisted(
        &mut self,
        pods: &BTreeMap<PodUid, RuntimePod>,
        changed: &[PodUid],
        ctx: &mut Context<Msg>,
    ) {
        for uid in changed {
            self.workers.tell(uid, worker::Msg::Recheck);
        }
        for pod in pods.values() {
            self.workers.note_started(pod);
        }
        let first = self.unmanaged.pods.is_none();
        let outline =
            |(uid, pod): (&PodUid, &RuntimePod)| (uid.clone(), Arc::new(from_runtime(pod)));
        let unknown = pods
            .iter()
            .filter(|(uid, _)| self.workers.desired(uid).is_none());
        let alive = pods.iter().filter(|(_, pod)| !pod.is_stopped());
        self.unmanaged.alive = alive.map(|(uid, _)| uid.clone()).collect();
        self.unmanaged.pods = Some(unknown.map(outline).collect());
        self.end_orphans(ctx);
        self.schedule_clean_up(ctx);
        if first {
            for (uid, pod) in self.reservations.take_waiting() {
                self.set_goal(uid, pod, ctx);
            }
            self.decide_new_resizes(ctx);
        }
    }

    /// Ends the pods in the runtime that no source desires, once every source has sent its pods.
    pub(super) fn end_orphans(&mut self, ctx: &Context<Msg>) {
        if !self.sources.missing().is_empty() {
            return;
        }
        let Some(unmanaged) = self.unmanaged.pods.take() else {
            return;
        };
        for uid in self.workers.running() {
            if !self.is_desired(&uid) {
                self.end_pod(&uid, ctx);
            }
        }
        let desired = self.sources.uids();
        self.workers
            .retain_user_namespaces(unmanaged.keys().chain(desired));
        let known = |uid: &PodUid| {
            self.is_desired(uid)
                || self.workers.desired(uid).is_some()
                || self.unmanaged.is_dead(uid)
        };
        let (expected, orphans) = unmanaged.into_iter().partition(|(uid, _)| known(uid));
        let orphans: BTreeMap<PodUid, Arc<Pod>> = orphans;
        self.unmanaged.pods = Some(expected);
        for (uid, pod) in orphans {
            tracing::info!(pod = %full_name(&pod), %uid, "ending a pod that no source desires");
            metrics::pods::ORPHANED.inc();
            self.reservations.hold(&uid, &pod);
            self.workers.spawn(&uid, PodGoal::end(pod));
        }
    }

    /// Ends what may still run of a pod that had ended before and whose object remains.
    pub(super) fn resume(&mut self, uid: PodUid, pod: Arc<Pod>) {
        if !self.unmanaged.alive.contains(&uid) {
            return self.workers.release(&uid);
        }
        if !self.reservations.claim(&uid, &pod) {
            return self.reservations.wait(uid, pod);
        }
        match classify_arrival(&pod) {
            PodArrival::Failed(failure) => {
                self.workers.spawn(&uid, PodGoal::fail(pod, failure, None))
            }
            PodArrival::Live | PodArrival::Succeeded => self.admit(uid, pod),
        }
    }

    /// Leaves the dead containers of a static pod to the garbage collection, as upstream: its manifest may come back.
    pub(super) fn keep_dead_containers(
        &mut self,
        uid: &PodUid,
        pod: &Arc<Pod>,
        ctx: &mut Context<Msg>,
    ) {
        let period = self.workers.container_gc_period();
        if !period.is_zero() {
            let dead = (pod.clone(), ctx.now() + period);
            self.unmanaged.dead.insert(uid.clone(), dead);
            ctx.after(period, Msg::CleanUp);
        }
    }

    /// Has the dead containers removed whose time has come, unless their pod is back.
    fn remove_dead_containers(&mut self, now: Instant) {
        let dead = &mut self.unmanaged.dead;
        let due: Vec<_> = dead.extract_if(.., |_, (_, due)| *due <= now).collect();
        for (uid, (pod, _)) in due {
            if !self.is_desired(&uid) && self.workers.desired(&uid).is_none() {
                self.reservations.claim(&uid, &pod);
                self.workers.spawn(&uid, PodGoal::remove(pod));
            }
        }
    }

    /// Schedules one clean-up for all pods that finish meanwhile.
    pub(super) fn schedule_clean_up(&mut self, ctx: &mut Context<Msg>) {
        if self.clean_up_timer.is_none() {
            self.clean_up_timer = Some(ctx.after(CLEAN_UP_DELAY, Msg::CleanUp));
        }
    }

    /// Removes the files of unknown pods; only once every source and the runtime have reported their pods.
    pub(super) fn clean_up(&mut self, ctx: &mut Context<Msg>) {
        self.clean_up_timer = None;
        self.remove_dead_containers(ctx.now());
        self.remove_kept_logs(ctx.now());
        let Some(unmanaged) = &self.unmanaged.pods else {
            return;
        };
        if !self.sources.missing().is_empty() {
            return;
        }
        let desired = self.sources.uids();
        self.workers.retain_volumes(unmanaged.keys().chain(desired));
        self.workers.tell_uids(self.peers.workers.as_ref());
        let is_known = |uid: &PodUid| {
            let has_worker = self.workers.desired(uid).is_some();
            has_worker || unmanaged.contains_key(uid) || self.is_desired(uid)
        };
        self.workers.retain_assignments(is_known);
        self.workers.plugins().forget_unsent();
        self.list_leftovers(ctx);
    }
}

/// A pod made from the runtime's state: enough to end it, within the grace period and with the preStop hooks that its
/// containers' annotations tell (upstream: kubecontainer.Pod.ToAPIPod, restoreSpecsFromContainerLabels).
fn from_runtime(pod: &RuntimePod) -> Pod {
    let names: BTreeSet<&str> = pod.containers.iter().map(|c| c.name.as_str()).collect();
    let newest = names.into_iter().filter_map(|name| pod.newest(name));
    let grace = pod.containers.iter().filter_map(|c| c.termination_grace);
    let grace = grace.max().and_then(|seconds| i64::try_from(seconds).ok());
    Pod {
        metadata: ObjectMeta {
            name: Some(pod.name.clone()),
            namespace: Some(pod.namespace.clone()),
            uid: Some(pod.uid.as_str().to_owned()),
            ..Default::default()
        },
        spec: Some(PodSpec {
            containers: newest.map(labels::restored_container).collect(),
            termination_grace_period_seconds: grace,
            ..Default::default()
        }),
        status: None,
    }
}
