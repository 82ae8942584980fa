//! Inputs of the reconciler: releases, the list of known pods, and changes of the plugins.

use std::collections::BTreeSet;

use logic_api::types::PodUid;

use super::StateOfWorld;
use super::actual_state::{PodDemand, PodMount, PodVolumes, StuckThread, is_refreshed};
use super::concurrency::ConcurrencyGroup;
use super::operation::{KindCapabilities, OperationKind, OperationTarget};
use crate::{VolumeId, VolumeKind};

impl StateOfWorld {
    /// A pod wants nothing any more: what it has is unmounted.
    pub fn release(&mut self, uid: &PodUid) {
        self.add_known_pod(uid);
        self.release_pod(uid);
    }

    /// A pod whose worker asks is known, whatever the last list of pods says.
    pub(super) fn add_known_pod(&mut self, uid: &PodUid) {
        if let Some(known) = &mut self.pods_on_node.known {
            known.insert(uid.clone());
        }
    }

    fn release_pod(&mut self, uid: &PodUid) {
        let mut pod = self.pods.remove(uid).unwrap_or_default();
        pod.demand = PodDemand::Released;
        pod.names.clear();
        self.awaited.remove(uid);
        for (place, mount) in &mut pod.mounts {
            self.want(place, mount, None);
        }
        self.pods.insert(uid.clone(), pod);
        self.output.touched.insert(uid.clone());
        self.queue.push(OperationTarget::Pod(uid.clone()));
        self.requeue_unclaimed();
    }

    /// These pods there are. What belongs to no other is left over, unless one of them wants it.
    pub fn pods(&mut self, known: BTreeSet<PodUid>) {
        let gone = |(uid, pod): &(&PodUid, &PodVolumes)| {
            pod.demand != PodDemand::Released && !known.contains(*uid)
        };
        let gone: Vec<PodUid> = self
            .pods
            .iter()
            .filter(gone)
            .map(|(uid, _)| uid.clone())
            .collect();
        self.pods_on_node.known = Some(known);
        gone.iter().for_each(|uid| self.release_pod(uid));
        let uids: Vec<PodUid> = self.pods.keys().cloned().collect();
        for uid in uids {
            self.queue.push(OperationTarget::Pod(uid));
        }
        self.requeue_unclaimed();
        self.release_orphans();
    }

    /// The volume directories of these pods exist on the node.
    pub fn folders(&mut self, uids: impl IntoIterator<Item = PodUid>) {
        self.pods_on_node.folders.extend(uids);
        self.release_orphans();
    }

    /// Volumes of unknown pods are released, as soon as the desired pods are known.
    fn release_orphans(&mut self) {
        let Some(known) = &self.pods_on_node.known else {
            return;
        };
        // A pod that is known may end without a word here: what is known of it from the runtime names no volumes.
        let folders = std::mem::take(&mut self.pods_on_node.folders);
        let (known, strange): (BTreeSet<PodUid>, BTreeSet<PodUid>) =
            folders.into_iter().partition(|uid| known.contains(uid));
        self.pods_on_node.folders = known;
        for uid in strange {
            if !self.pods.contains_key(&uid) {
                self.release_pod(&uid);
            }
        }
    }

    /// A plugin reports which kinds it serves.
    pub fn introduce(
        &mut self,
        abilities: impl IntoIterator<Item = (VolumeKind, KindCapabilities)>,
    ) {
        self.plugins.capabilities.extend(abilities);
        self.requeue_all();
    }

    /// The node's status reports these volumes in use.
    pub fn report(&mut self, reported: BTreeSet<VolumeId>) {
        let new: Vec<VolumeId> = reported.difference(&self.reported).cloned().collect();
        self.reported = reported;
        new.iter().for_each(|id| self.requeue_volume(id));
    }

    /// What drivers refresh when it is mounted again is mounted again.
    pub fn refresh(&mut self, uid: &PodUid) {
        let Some(pod) = self.pods.get_mut(uid) else {
            return;
        };
        for (place, mount) in &mut pod.mounts {
            let refreshed = mount.wanted().is_some_and(|volume| is_refreshed(volume));
            if refreshed && mount.done().is_some() {
                mount.again = true;
                self.queue.push(OperationTarget::Mount(place.clone()));
            }
        }
    }

    /// A driver came: what failed for want of it is tried at once.
    pub fn retry_driver(&mut self, driver: &str) {
        let of_driver = |mount: &&PodMount| {
            mount.concurrency_group == ConcurrencyGroup::Backend("csi", driver.to_owned())
        };
        let ids = self
            .pods
            .values()
            .flat_map(|pod| pod.mounts.values().map(Box::as_ref));
        let ids: BTreeSet<VolumeId> = ids
            .filter(of_driver)
            .map(|mount| mount.id.clone())
            .collect();
        for id in ids {
            self.reset_backoffs(&OperationTarget::Volume(id.clone()));
            let users = self.shared.get(&id).map(|shared| shared.users.clone());
            for place in users.into_iter().flatten() {
                self.reset_backoffs(&OperationTarget::Mount(place));
            }
            self.requeue_volume(&id);
        }
    }

    /// `gone` is whether a process that had a stuck thread has ended: its stuck operations are then retried.
    pub fn process_gone(&mut self, gone: impl Fn(VolumeKind, u64) -> bool) {
        let mut free = Vec::new();
        for (id, shared) in &mut self.shared {
            let over = |stuck: &mut StuckThread| gone(stuck.kind, stuck.generation);
            if shared.stuck.take_if(over).is_some() {
                free.push(id.clone());
            }
        }
        free.iter().for_each(|id| self.requeue_volume(id));
    }

    /// Whether a subpath operation may work within a pod's volumes; nothing of it is unmounted until it calls
    /// [`leave`](Self::leave).
    pub fn enter(&mut self, uid: &PodUid) -> bool {
        match self.pods.get_mut(uid) {
            Some(pod) if pod.demand == PodDemand::Wanted => {
                pod.subpath_users += 1;
                true
            }
            Some(_) | None => false,
        }
    }

    pub fn leave(&mut self, uid: &PodUid) {
        let Some(pod) = self.pods.get_mut(uid) else {
            return;
        };
        pod.subpath_users = pod.subpath_users.saturating_sub(1);
        for place in pod.mounts.keys() {
            self.queue.push(OperationTarget::Mount(place.clone()));
        }
    }

    pub(super) fn reset_backoffs(&mut self, subject: &OperationTarget) {
        for verb in [OperationKind::Stage, OperationKind::Mount] {
            self.backoffs.reset(subject, verb);
        }
    }
}
