//! Answers which pods there are, and which worker has a pod.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kernel::Addr;
use logic_api::types::PodUid;
use logic_pods::status::terminal_on_arrival::{PodArrival, classify_arrival};

use super::PodManager;
use super::names::{full_name, uid_of};
use crate::worker;

/// The result of looking up a pod.
#[derive(Debug)]
pub enum PodLookup {
    Worker(Addr<worker::Msg>),
    /// The pod may not start yet: its full name, and the reason.
    Deferred(String, String),
    Nobody,
}

impl PodManager {
    pub(super) fn all(&self) -> Vec<Arc<Pod>> {
        let workers = self.workers.pods().into_iter();
        let is_ending = |uid: &PodUid| self.workers.desired(uid).is_some_and(|goal| goal.is_end());
        let (ending, current): (Vec<_>, Vec<_>) = workers.partition(|(uid, _)| is_ending(uid));
        // A static pod whose manifest is back waits for its own end, and is in the list as that.
        let waiting = self.reservations.waiting();
        let waiting = waiting.filter(|pod| self.workers.desired(&uid_of(pod)).is_none());
        // Of pods of one name the one that goes on comes first: who looks for a name finds it.
        let mut pods: Vec<Arc<Pod>> = current.into_iter().map(|(_, pod)| pod).collect();
        pods.extend(waiting.cloned());
        pods.extend(self.deferred.values().map(|deferred| deferred.pod.clone()));
        let ended = self
            .sources
            .iter()
            .filter(|(uid, pod)| self.has_ended(uid, pod));
        pods.extend(ended.map(|(_, pod)| pod.clone()));
        pods.extend(ending.into_iter().map(|(_, pod)| pod));
        pods.sort_by_cached_key(|pod| full_name(pod));
        pods
    }

    /// The pod of this UID, as it is in [`all`](Self::all).
    pub(super) fn pod(&self, uid: &PodUid) -> Option<Arc<Pod>> {
        if let Some(goal) = self.workers.desired(uid) {
            return Some(goal.allocated);
        }
        let mut waiting = self.reservations.waiting();
        let waiting = waiting.find(|pod| uid_of(pod) == *uid);
        let deferred = || Some(&self.deferred.get(uid)?.pod);
        let ended = || {
            let mut pods = self.sources.with_uid(uid);
            pods.find(|pod| self.has_ended(uid, pod))
        };
        waiting.or_else(deferred).or_else(ended).cloned()
    }

    pub(super) fn find(&self, wanted: &str) -> PodLookup {
        if let Some(worker) = self.workers.find(wanted) {
            return PodLookup::Worker(worker);
        }
        let deferred = self.deferred.iter().map(|(uid, deferred)| {
            let name = full_name(&deferred.pod);
            (uid, name, deferred.why.clone())
        });
        let waiting = self.reservations.waiting().map(|pod| {
            let why = "waits for the end of the pod that holds its name".to_owned();
            (uid_of(pod), full_name(pod), why)
        });
        let named = |uid: &PodUid, name: &str| {
            let short = name.split_once('/').map(|(_, short)| short);
            uid.as_str() == wanted || name == wanted || short == Some(wanted)
        };
        deferred
            .map(|(uid, name, why)| (uid.clone(), name, why))
            .chain(waiting)
            .find(|(uid, name, _)| named(uid, name))
            .map_or(PodLookup::Nobody, |(_, name, why)| {
                PodLookup::Deferred(name, why)
            })
    }

    /// Whether only the pod's API object is left.
    fn has_ended(&self, uid: &PodUid, pod: &Pod) -> bool {
        let nobody = || self.workers.desired(uid).is_none() && !self.deferred.contains_key(uid);
        let waits = || {
            self.reservations
                .waiting()
                .any(|waiting| uid_of(waiting) == *uid)
        };
        classify_arrival(pod) != PodArrival::Live && nobody() && !waits()
    }
}
