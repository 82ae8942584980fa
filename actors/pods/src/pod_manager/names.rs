//! Names of pods, and which pod may hold one.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use logic_api::pod::PodView;
use logic_api::types::PodUid;

/// Which pod holds a full name and which static pods wait for it: two static pods of one name never run at the same
/// time. As upstream, a pod of the API neither holds a name nor waits for one: whoever deletes a pod by force gets the
/// next one of its name though the first one hangs.
#[derive(Debug, Default)]
pub(super) struct PodNameReservations {
    holders: BTreeMap<String, PodUid>,
    waiting: BTreeMap<PodUid, Arc<Pod>>,
}

impl PodNameReservations {
    /// Reserves a static pod's name for this UID; returns false if another pod holds it.
    pub(super) fn claim(&mut self, uid: &PodUid, pod: &Pod) -> bool {
        !pod.is_static() || self.hold(uid, pod)
    }

    /// The same for a pod that only the runtime knows: it may be a static one.
    pub(super) fn hold(&mut self, uid: &PodUid, pod: &Pod) -> bool {
        let holder = self
            .holders
            .entry(full_name(pod))
            .or_insert_with(|| uid.clone());
        holder == uid
    }

    pub(super) fn wait(&mut self, uid: PodUid, pod: Arc<Pod>) {
        self.waiting.insert(uid, pod);
    }

    pub(super) fn stop_waiting(&mut self, uid: &PodUid) {
        self.waiting.remove(uid);
    }

    /// Frees the name; returns the pods that waited for it or for this UID, the oldest first.
    pub(super) fn release(&mut self, uid: &PodUid, name: &str) -> Vec<(PodUid, Arc<Pod>)> {
        if self.holders.get(name) == Some(uid) {
            self.holders.remove(name);
        }
        let wanted = |other: &PodUid, pod: &mut Arc<Pod>| other == uid || full_name(pod) == name;
        by_creation(self.waiting.extract_if(.., wanted))
    }

    /// Every pod that waits, the oldest first.
    pub(super) fn take_waiting(&mut self) -> Vec<(PodUid, Arc<Pod>)> {
        by_creation(std::mem::take(&mut self.waiting))
    }

    pub(super) fn waiting(&self) -> impl Iterator<Item = &Arc<Pod>> {
        self.waiting.values()
    }
}

/// The order in which pods that come together are admitted, as upstream: the oldest first, and those without a time of
/// creation, which come from files, before all others.
pub(super) fn by_creation(
    pods: impl IntoIterator<Item = (PodUid, Arc<Pod>)>,
) -> Vec<(PodUid, Arc<Pod>)> {
    let mut pods: Vec<_> = pods.into_iter().collect();
    pods.sort_by_cached_key(|(uid, pod)| {
        let created = pod.metadata.creation_timestamp.as_ref();
        (created.map(|time| time.0), uid.clone())
    });
    pods
}

/// `namespace/name`.
pub(super) fn full_name(pod: &Pod) -> String {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or("default");
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    format!("{namespace}/{name}")
}

pub(super) fn uid_of(pod: &Pod) -> PodUid {
    PodUid::from(pod.metadata.uid.as_deref().unwrap_or_default())
}
