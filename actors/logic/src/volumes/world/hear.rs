//! What the world hears: releases, which pods there are, and what changed about the plugins.

use std::collections::BTreeSet;

use super::World;
use super::lanes::Lane;
use super::state::{Heard, Mount, Pod, Stuck, is_refreshed};
use super::task::{Ability, Subject, Verb};
use crate::types::PodUid;
use crate::volumes::{Kind, VolumeId};

impl World {
    /// A pod wants nothing any more: what it has is unmounted.
    pub fn release(&mut self, uid: &PodUid) {
        self.meet(uid);
        self.let_go(uid);
    }

    /// A pod whose worker speaks is known, whatever was told before.
    pub(super) fn meet(&mut self, uid: &PodUid) {
        if let Some(known) = &mut self.known {
            known.insert(uid.clone());
        }
    }

    fn let_go(&mut self, uid: &PodUid) {
        let mut pod = self.pods.remove(uid).unwrap_or_default();
        pod.heard = Heard::Release;
        pod.names.clear();
        self.awaited.remove(uid);
        for (place, mount) in &mut pod.mounts {
            self.want(place, mount, None);
        }
        self.pods.insert(uid.clone(), pod);
        self.touched.insert(uid.clone());
        self.queue.push(Subject::Pod(uid.clone()));
        self.look_at_found();
    }

    /// These pods there are. What belongs to no other is left over, unless one of them wants it.
    pub fn pods(&mut self, known: BTreeSet<PodUid>) {
        let gone =
            |(uid, pod): &(&PodUid, &Pod)| pod.heard != Heard::Release && !known.contains(*uid);
        let gone: Vec<PodUid> = self
            .pods
            .iter()
            .filter(gone)
            .map(|(uid, _)| uid.clone())
            .collect();
        self.known = Some(known);
        gone.iter().for_each(|uid| self.let_go(uid));
        let uids: Vec<PodUid> = self.pods.keys().cloned().collect();
        for uid in uids {
            self.queue.push(Subject::Pod(uid));
        }
        self.look_at_found();
        self.look_at_folders();
    }

    /// Folders of these pods lie on the node.
    pub fn folders(&mut self, uids: impl IntoIterator<Item = PodUid>) {
        self.folders.extend(uids);
        self.look_at_folders();
    }

    /// Of pods that nobody knows they go, as soon as it is known who that is.
    fn look_at_folders(&mut self) {
        let Some(known) = &self.known else { return };
        // A pod that is known may end without a word here: what is known of it from the runtime names no volumes.
        let folders = std::mem::take(&mut self.folders);
        let (known, strange): (BTreeSet<PodUid>, BTreeSet<PodUid>) =
            folders.into_iter().partition(|uid| known.contains(uid));
        self.folders = known;
        for uid in strange {
            if !self.pods.contains_key(&uid) {
                self.let_go(&uid);
            }
        }
    }

    /// A plugin says which kinds it serves.
    pub fn introduce(&mut self, abilities: impl IntoIterator<Item = (Kind, Ability)>) {
        self.abilities.extend(abilities);
        self.doubt();
    }

    /// The node's status says these to be in use.
    pub fn report(&mut self, reported: BTreeSet<VolumeId>) {
        let new: Vec<VolumeId> = reported.difference(&self.reported).cloned().collect();
        self.reported = reported;
        new.iter().for_each(|id| self.stir(id));
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
                self.queue.push(Subject::Mount(place.clone()));
            }
        }
    }

    /// A driver came: what failed for want of it is tried at once.
    pub fn encourage(&mut self, driver: &str) {
        let of_driver = |mount: &&Mount| mount.lane == Lane::Backend("csi", driver.to_owned());
        let ids = self
            .pods
            .values()
            .flat_map(|pod| pod.mounts.values().map(Box::as_ref));
        let ids: BTreeSet<VolumeId> = ids
            .filter(of_driver)
            .map(|mount| mount.id.clone())
            .collect();
        for id in ids {
            self.forgive(&Subject::Shared(id.clone()));
            let users = self.shared.get(&id).map(|shared| shared.users.clone());
            for place in users.into_iter().flatten() {
                self.forgive(&Subject::Mount(place));
            }
            self.stir(&id);
        }
    }

    /// Says of each process that had a thread stuck whether it is gone by now: what hung there is tried again.
    pub fn buried(&mut self, gone: impl Fn(Kind, u64) -> bool) {
        let mut free = Vec::new();
        for (id, shared) in &mut self.shared {
            let over = |stuck: &mut Stuck| gone(stuck.kind, stuck.generation);
            if shared.stuck.take_if(over).is_some() {
                free.push(id.clone());
            }
        }
        free.iter().for_each(|id| self.stir(id));
    }

    /// Whether somebody may work within a pod's volumes; nothing of it is unmounted until they [`leave`](Self::leave).
    pub fn enter(&mut self, uid: &PodUid) -> bool {
        match self.pods.get_mut(uid) {
            Some(pod) if pod.heard == Heard::Wish => {
                pod.guests += 1;
                true
            }
            Some(_) | None => false,
        }
    }

    pub fn leave(&mut self, uid: &PodUid) {
        let Some(pod) = self.pods.get_mut(uid) else {
            return;
        };
        pod.guests = pod.guests.saturating_sub(1);
        for place in pod.mounts.keys() {
            self.queue.push(Subject::Mount(place.clone()));
        }
    }

    pub(super) fn forgive(&mut self, subject: &Subject) {
        for verb in [Verb::Stage, Verb::Mount] {
            self.backoffs.reset(subject, verb);
        }
    }
}
