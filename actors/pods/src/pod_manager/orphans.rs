//! Orphans: pods without a worker that no source desires end, and files of unknown pods are removed.
//!
//! Upstream: pkg/kubelet/kubelet_pods.go (HandlePodCleanups), 1.36.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kernel::Context;
use logic_api::types::{PodUid, RuntimePod};
use logic_pods::status::terminal_on_arrival::{PodArrival, classify_arrival};

use super::names::full_name;
use super::{Msg, PodManager};
use crate::worker::{self, PodGoal};

/// Between the end of a pod and the removal of its files, so that many ends share one clean-up.
const CLEAN_UP_DELAY: Duration = Duration::from_millis(500);

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
        let first = self.unmanaged.is_none();
        let outline =
            |(uid, pod): (&PodUid, &RuntimePod)| (uid.clone(), Arc::new(from_runtime(pod)));
        let unknown = pods
            .iter()
            .filter(|(uid, _)| self.workers.desired(uid).is_none());
        let alive = pods.iter().filter(|(_, pod)| !pod.is_stopped());
        self.alive = alive.map(|(uid, _)| uid.clone()).collect();
        self.unmanaged = Some(unknown.map(outline).collect());
        self.end_orphans(ctx);
        self.schedule_clean_up(ctx);
        if first {
            for (uid, pod) in self.reservations.take_waiting() {
                self.set_goal(uid, pod, ctx);
            }
        }
    }

    /// Ends the pods in the runtime that no source desires, once every source has sent its pods.
    pub(super) fn end_orphans(&mut self, ctx: &Context<Msg>) {
        if !self.missing_sources().is_empty() {
            return;
        }
        let Some(unmanaged) = self.unmanaged.take() else {
            return;
        };
        for uid in self.workers.running() {
            if !self.is_desired(&uid) {
                self.end_pod(&uid, ctx);
            }
        }
        let desired = self.sets.values().flat_map(BTreeMap::keys);
        self.workers
            .retain_user_namespaces(unmanaged.keys().chain(desired));
        let known = |uid: &PodUid| self.is_desired(uid) || self.workers.desired(uid).is_some();
        let (expected, orphans) = unmanaged.into_iter().partition(|(uid, _)| known(uid));
        let orphans: BTreeMap<PodUid, Arc<Pod>> = orphans;
        self.unmanaged = Some(expected);
        for (uid, pod) in orphans {
            tracing::info!(pod = %full_name(&pod), %uid, "ending a pod that no source desires");
            metrics::pods::ORPHANED.inc();
            self.reservations.claim(&uid, &pod);
            self.workers.spawn(&uid, PodGoal::end(pod));
        }
    }

    /// Ends what may still run of a pod that had ended before and whose object remains.
    pub(super) fn resume(&mut self, uid: PodUid, pod: Arc<Pod>, ctx: &Context<Msg>) {
        if !self.alive.contains(&uid) {
            return;
        }
        if !self.reservations.claim(&uid, &pod) {
            return self.reservations.wait(uid, pod);
        }
        match classify_arrival(&pod) {
            PodArrival::Failed(failure) => {
                self.workers.spawn(&uid, PodGoal::fail(pod, failure, None))
            }
            PodArrival::Live | PodArrival::Succeeded => self.admit(uid, pod, ctx),
        }
    }

    /// Schedules one clean-up for all pods that finish meanwhile.
    pub(super) fn schedule_clean_up(&mut self, ctx: &mut Context<Msg>) {
        if self.clean_up_timer.is_none() {
            self.clean_up_timer = Some(ctx.after(CLEAN_UP_DELAY, Msg::CleanUp));
        }
    }

    /// Removes the files of unknown pods; only once every source and the runtime have reported their pods.
    pub(super) fn clean_up(&mut self) {
        self.clean_up_timer = None;
        let Some(unmanaged) = &self.unmanaged else {
            return;
        };
        if !self.missing_sources().is_empty() {
            return;
        }
        let desired = self.sets.values().flat_map(BTreeMap::keys);
        self.workers.retain_volumes(unmanaged.keys().chain(desired));
    }
}

/// A pod made from the runtime's state: enough to end it (upstream: kubecontainer.Pod.ToAPIPod).
fn from_runtime(pod: &RuntimePod) -> Pod {
    let mut names: Vec<&str> = pod
        .containers
        .iter()
        .map(|container| container.name.as_str())
        .collect();
    names.sort_unstable();
    names.dedup();
    let container = |name: &&str| k8s_openapi::api::core::v1::Container {
        name: (*name).to_owned(),
        ..Default::default()
    };
    Pod {
        metadata: ObjectMeta {
            name: Some(pod.name.clone()),
            namespace: Some(pod.namespace.clone()),
            uid: Some(pod.uid.as_str().to_owned()),
            ..Default::default()
        },
        spec: Some(PodSpec {
            containers: names.iter().map(container).collect(),
            ..Default::default()
        }),
        status: None,
    }
}
