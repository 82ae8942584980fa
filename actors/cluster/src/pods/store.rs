//! The pods as the API has them, an equal one always as the same `Arc`, and which of them wait.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use logic_api::pod::{PodView, has_ended};
use logic_api::types::PodUid;
use logic_pods::api::api_pods::{noted, noted_as, refused, same_desired_state};
use logic_pods::api::mirrors::full_name;

use super::HELD;

/// Every pod of the node, by namespace/name: two of one name follow each other.
pub(super) struct PodStore {
    node: Arc<str>,
    pods: BTreeMap<String, PodStoreEntry>,
    /// Supplied pods, also those that are not known yet.
    supplied: BTreeSet<PodUid>,
    refused: BTreeMap<String, String>,
    /// Pods that wait no longer than this hold the set back: a set without them would end what runs of them.
    whole_at: Option<Instant>,
}

struct PodStoreEntry {
    /// The desired pod; changes when a user changes it.
    desired: Arc<Pod>,
    /// What the API shows; changes with every write, and has no spec of its own where the desired one is the same.
    shown: Arc<Pod>,
    gate: StartGate,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StartGate {
    Open,
    /// An object that it refers to has not been requested; it waits until then at most.
    Until(Instant),
}

impl PodStore {
    pub(super) fn new(node: Arc<str>, remembered: Vec<Arc<Pod>>) -> PodStore {
        let entry = |pod: Arc<Pod>| PodStoreEntry {
            desired: Arc::clone(&pod),
            shown: pod,
            gate: StartGate::Open,
        };
        let pods = remembered.into_iter();
        PodStore {
            node,
            pods: pods.map(|pod| (full_name(&pod), entry(pod))).collect(),
            supplied: BTreeSet::new(),
            refused: BTreeMap::new(),
            whole_at: None,
        }
    }

    pub(super) fn node(&self) -> &str {
        &self.node
    }

    /// Takes these for all there are.
    pub(super) fn list(&mut self, pods: Vec<Pod>, now: Instant, seen: Timestamp) {
        let names: BTreeSet<_> = pods.iter().map(full_name).collect();
        self.pods.retain(|name, _| names.contains(name));
        self.refused.retain(|name, _| names.contains(name));
        for pod in pods {
            self.apply(pod, now, seen);
        }
        self.whole_at.get_or_insert(now + HELD);
    }

    /// Takes a pod as it is now.
    pub(super) fn apply(&mut self, pod: Pod, now: Instant, seen: Timestamp) {
        let name = full_name(&pod);
        if let Some(why) = refused(&pod, &self.node) {
            if self.refused.get(&name) != Some(&why) {
                tracing::warn!("pod {name} of the API server cannot be taken: {why}");
            }
            self.pods.remove(&name);
            self.refused.insert(name, why);
            return;
        }
        self.refused.remove(&name);
        let same = |entry: &&mut PodStoreEntry| entry.desired.metadata.uid == pod.metadata.uid;
        match self.pods.get_mut(&name).filter(same) {
            Some(entry) => entry.renew(pod),
            None => {
                let gate = self.gate(&pod, now);
                let desired = Arc::new(noted(pod, seen));
                let shown = Arc::clone(&desired);
                self.pods.insert(
                    name,
                    PodStoreEntry {
                        desired,
                        shown,
                        gate,
                    },
                );
            }
        }
    }

    /// Removes a pod, unless another of its name has followed it already.
    pub(super) fn delete(&mut self, pod: &Pod) {
        let name = full_name(pod);
        self.refused.remove(&name);
        let held = self.pods.get(&name);
        if held.is_some_and(|entry| entry.desired.metadata.uid == pod.metadata.uid) {
            self.pods.remove(&name);
        }
        self.supplied.remove(&pod.uid());
    }

    /// Lets these pods go on; returns whether any of them waited.
    pub(super) fn supplied(&mut self, uids: &BTreeSet<PodUid>) -> bool {
        let mut waited = false;
        for entry in self.pods.values_mut() {
            if entry.gate != StartGate::Open && uids.contains(&entry.desired.uid()) {
                entry.gate = StartGate::Open;
                waited = true;
            }
        }
        self.supplied.clone_from(uids);
        waited
    }

    /// Lets pods go on that have waited long enough.
    pub(super) fn release(&mut self, now: Instant) {
        for (name, entry) in &mut self.pods {
            if matches!(entry.gate, StartGate::Until(at) if at <= now) {
                tracing::warn!("pod {name} waits no longer for what it refers to");
                entry.gate = StartGate::Open;
            }
        }
    }

    pub(super) fn next_release(&self) -> Option<Instant> {
        let gates = self.pods.values().filter_map(|entry| match entry.gate {
            StartGate::Open => None,
            StartGate::Until(at) => Some(at),
        });
        gates.min()
    }

    /// The pods that shall run, without those that wait; none while the set is not complete.
    pub(super) fn desired_pods(&mut self) -> Option<Vec<Arc<Pod>>> {
        let open = |entry: &&PodStoreEntry| entry.gate == StartGate::Open;
        let missing = self.next_release().zip(self.whole_at);
        if missing.is_some_and(|(next, whole)| next <= whole) {
            return None;
        }
        Some(self.of_users().filter(open).map(wish).collect())
    }

    /// Every pod but mirrors.
    pub(super) fn all(&self) -> Vec<Arc<Pod>> {
        self.of_users().map(wish).collect()
    }

    pub(super) fn mirrors(&self) -> Vec<Arc<Pod>> {
        let entries = self.pods.values();
        entries
            .filter(|entry| entry.desired.is_mirror())
            .map(wish)
            .collect()
    }

    /// Every pod, mirrors included.
    pub(super) fn everything(&self) -> Vec<Arc<Pod>> {
        self.pods.values().map(wish).collect()
    }

    /// Every pod as the API shows it, mirrors included.
    pub(super) fn shown(&self) -> Vec<Arc<Pod>> {
        let entries = self.pods.values();
        entries.map(|entry| Arc::clone(&entry.shown)).collect()
    }

    pub(super) fn waiting(&self) -> Vec<String> {
        let entries = self.pods.iter();
        entries
            .filter(|(_, entry)| entry.gate != StartGate::Open)
            .map(|(name, _)| name.clone())
            .collect()
    }

    pub(super) fn refused(&self) -> Vec<String> {
        let refused = self.refused.iter();
        refused
            .map(|(name, why)| format!("{name}: {why}"))
            .collect()
    }

    fn of_users(&self) -> impl Iterator<Item = &PodStoreEntry> {
        let entries = self.pods.values();
        entries.filter(|entry| !entry.desired.is_mirror())
    }

    /// A pod that only terminates needs nothing more, nor does a mirror or one that has ended.
    fn gate(&self, pod: &Pod, now: Instant) -> StartGate {
        let ends = pod.metadata.deletion_timestamp.is_some() || has_ended(pod);
        match ends || pod.is_mirror() || self.supplied.contains(&pod.uid()) {
            true => StartGate::Open,
            false => StartGate::Until(now + HELD),
        }
    }
}

impl PodStoreEntry {
    fn renew(&mut self, pod: Pod) {
        if pod.metadata.resource_version == self.shown.metadata.resource_version {
            return;
        }
        let mut pod = noted_as(pod, &self.desired);
        let same = same_desired_state(&self.desired, &pod);
        if same {
            pod.spec = None;
        }
        self.shown = Arc::new(pod);
        if !same {
            self.desired = Arc::clone(&self.shown);
        }
        if self.desired.metadata.deletion_timestamp.is_some() {
            self.gate = StartGate::Open;
        }
    }
}

fn wish(entry: &PodStoreEntry) -> Arc<Pod> {
    Arc::clone(&entry.desired)
}
