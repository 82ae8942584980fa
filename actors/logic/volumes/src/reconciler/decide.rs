//! What is to be done about a volume, a mount or a pod now.

use std::time::Instant;

use logic_api::types::{EventLevel, PodUid};

use super::actual_state::{
    CompletedMount, DesiredMount, ExpansionRefusal, MountState, NamedVolume, PodDemand, PodMount,
    PodRemoval, PodVolumes, SharedVolume, is_exclusive, is_inline,
};
use super::concurrency::{ConcurrencyGroup, SlotRequest};
use super::operation::{
    KindCapabilities, MountPoint, OperationKind, OperationTarget, PodVolumeEvent, VolumeOperation,
};
use super::{ReconcileDecision, StateOfWorld};
use crate::resolve::event_reasons::{self, Operation};
use crate::{Attachment, Volume, VolumeId, VolumeKind};

const IN_USE_BY_ANOTHER_POD: &str =
    "volume uses the ReadWriteOncePod access mode and is already in use by another pod";

impl StateOfWorld {
    pub(super) fn decide(&mut self, subject: &OperationTarget, now: Instant) -> ReconcileDecision {
        match subject {
            OperationTarget::Volume(id) => self.decide_volume(id, now),
            OperationTarget::Mount(place) => self.decide_mount(place, now),
            OperationTarget::Pod(uid) => self.decide_pod(uid, now),
        }
    }

    /// A task, unless it failed a moment ago.
    pub(super) fn unless_backing_off(
        &self,
        task: VolumeOperation,
        claim: SlotRequest,
        now: Instant,
    ) -> ReconcileDecision {
        match self.backoffs.until(&task.subject(), task.verb(), now) {
            Some(until) => ReconcileDecision::Wait(until),
            None => ReconcileDecision::Do(Box::new(task), claim),
        }
    }

    fn decide_mount(&mut self, place: &MountPoint, now: Instant) -> ReconcileDecision {
        let Some(pod) = self.pods.get(&place.uid) else {
            return ReconcileDecision::Rest;
        };
        let Some(mount) = pod.mounts.get(place) else {
            return ReconcileDecision::Rest;
        };
        let shared = self.shared.get(&mount.id);
        if shared.is_none_or(SharedVolume::is_held) || pod.removal == PodRemoval::UnderWay {
            return ReconcileDecision::Rest;
        }
        match (&mount.want, &mount.actual) {
            (None, MountState::Absent) => {
                self.drop_mount(place);
                ReconcileDecision::Rest
            }
            (None, MountState::Uncertain | MountState::Mounted(_)) => {
                self.unmount(place, pod.allows_unmount(), now)
            }
            (Some(want), MountState::Uncertain | MountState::Mounted(_))
                if want.content.lean().id != mount.id =>
            {
                self.unmount(place, true, now)
            }
            (Some(want), MountState::Mounted(done)) => {
                match self.next_update(place, mount, want, done) {
                    Some(task) => {
                        let claim = claim(mount, place);
                        self.unless_backing_off(task, claim, now)
                    }
                    None => self.ready(place),
                }
            }
            (Some(_), MountState::Absent | MountState::Uncertain) => self.first_mount(place, now),
        }
    }

    fn unmount(&self, place: &MountPoint, free: bool, now: Instant) -> ReconcileDecision {
        let pod = self.pods.get(&place.uid);
        let Some((pod, mount)) = pod.and_then(|pod| Some((pod, pod.mounts.get(place)?))) else {
            return ReconcileDecision::Rest;
        };
        if !free || pod.subpath_users > 0 {
            return ReconcileDecision::Rest;
        }
        let task = VolumeOperation::Unmount {
            place: place.clone(),
            id: mount.id.clone(),
        };
        self.unless_backing_off(task, claim(mount, place), now)
    }

    /// What a mounted volume lacks: its new content, or its size.
    fn next_update(
        &self,
        place: &MountPoint,
        mount: &PodMount,
        want: &DesiredMount,
        done: &CompletedMount,
    ) -> Option<VolumeOperation> {
        let ability = self.plugins.capabilities.get(&place.kind)?;
        let changed = ability.updates && !done.content.is_same(&want.content);
        if let Some(volume) = want.content.whole().filter(|_| changed || mount.again) {
            return Some(VolumeOperation::Mount {
                place: place.clone(),
                volume,
            });
        }
        let size = self.growth(mount, want, *ability)?;
        Some(VolumeOperation::Expand {
            place: place.clone(),
            volume: want.content.lean().clone(),
            path: done.path.clone(),
            size,
        })
    }

    fn growth(
        &self,
        mount: &PodMount,
        want: &DesiredMount,
        ability: KindCapabilities,
    ) -> Option<u64> {
        let shared = self.shared.get(&mount.id)?;
        let size = want.grow.filter(|_| ability.expand)?;
        let is_refused = match shared.refused {
            Some(ExpansionRefusal::Size(refused)) => refused == size,
            Some(ExpansionRefusal::InUse) => true,
            None => false,
        };
        (size > shared.grown && !is_refused).then_some(size)
    }

    /// The pod may use it. A difference that no mounting would change is taken for granted.
    fn ready(&mut self, place: &MountPoint) -> ReconcileDecision {
        let mount = self.mount_mut(place);
        if let Some(mount) = mount
            && let (Some(want), MountState::Mounted(done)) = (&mut mount.want, &mut mount.actual)
        {
            want.content.slim();
            done.content = want.content.clone();
            if !done.ready {
                done.ready = true;
                self.output.touched.insert(place.uid.clone());
            }
        }
        ReconcileDecision::Rest
    }

    fn first_mount(&mut self, place: &MountPoint, now: Instant) -> ReconcileDecision {
        let Some(mount) = self.mount(place) else {
            return ReconcileDecision::Rest;
        };
        let whole = mount.want.as_ref().and_then(|want| want.content.whole());
        let (Some(volume), Some(ability)) = (whole, self.plugins.capabilities.get(&place.kind))
        else {
            return ReconcileDecision::Rest;
        };
        if !self.is_reported(&volume) {
            return ReconcileDecision::Rest;
        }
        let subject = OperationTarget::Mount(place.clone());
        if let Some(until) = self.backoffs.until(&subject, OperationKind::Mount, now) {
            return ReconcileDecision::Wait(until);
        }
        if is_exclusive(&volume) {
            if !self.plugins.listed.contains(&place.kind) {
                return ReconcileDecision::Rest;
            }
            if self.is_taken(&mount.id, &place.uid) {
                return self.reject_exclusive(place, now);
            }
        }
        if ability.staged && !is_inline(&volume) && !self.is_staged_for(&volume) {
            self.queue.push(OperationTarget::Volume(volume.id.clone()));
            return ReconcileDecision::Rest;
        }
        let claim = claim(mount, place);
        let task = VolumeOperation::Mount {
            place: place.clone(),
            volume,
        };
        ReconcileDecision::Do(Box::new(task), claim)
    }

    pub(super) fn is_reported(&self, volume: &Volume) -> bool {
        match volume.attachment {
            Attachment::NotNeeded => true,
            Attachment::Attached => self.reported.contains(&volume.id),
        }
    }

    /// Another pod has it, or is about to.
    fn is_taken(&self, id: &VolumeId, uid: &PodUid) -> bool {
        let users = self.shared.get(id).into_iter().flat_map(|s| &s.users);
        let mut others = users.filter(|place| place.uid != *uid);
        others.any(|place| self.mount(place).is_some_and(PodMount::is_begun))
    }

    /// Reports the error, as often as upstream tries.
    fn reject_exclusive(&mut self, place: &MountPoint, now: Instant) -> ReconcileDecision {
        let event = event_reasons::failed(
            Operation::Publish,
            place.mode,
            &place.folder,
            IN_USE_BY_ANOTHER_POD,
        );
        self.output.events.push(PodVolumeEvent {
            uid: place.uid.clone(),
            weight: EventLevel::Warning,
            reason: event.reason,
            message: event.message,
        });
        let subject = OperationTarget::Mount(place.clone());
        self.backoffs.failed(&subject, OperationKind::Mount, now);
        if let Some(mount) = self.mount_mut(place) {
            IN_USE_BY_ANOTHER_POD.clone_into(&mut mount.why);
        }
        let until = self.backoffs.until(&subject, OperationKind::Mount, now);
        until.map_or(ReconcileDecision::Rest, ReconcileDecision::Wait)
    }

    /// The volume directories of an unknown pod are removed when its last volume is gone.
    fn decide_pod(&mut self, uid: &PodUid, now: Instant) -> ReconcileDecision {
        let Some(pod) = self.pods.get(uid) else {
            return ReconcileDecision::Rest;
        };
        let unknown = self
            .pods_on_node
            .known
            .as_ref()
            .is_some_and(|known| !known.contains(uid));
        let over = pod.demand == PodDemand::Released
            && pod.mounts.is_empty()
            && pod.subpath_users == 0
            && pod.removal == PodRemoval::No;
        let served = |kind: &VolumeKind| self.plugins.listed.contains(kind);
        if !unknown || !over || !Self::kinds().all(|kind| served(&kind)) {
            return ReconcileDecision::Rest;
        }
        let task = VolumeOperation::Remove { uid: uid.clone() };
        let claim = SlotRequest {
            lane: ConcurrencyGroup::Folders,
            pod: None,
        };
        self.unless_backing_off(task, claim, now)
    }

    /// Every kind that a plugin mounts.
    pub fn kinds() -> impl Iterator<Item = VolumeKind> {
        use strum::IntoEnumIterator;
        VolumeKind::iter().filter(|kind| *kind != VolumeKind::Image)
    }

    /// Nothing is there, and nothing is wanted.
    pub(super) fn drop_mount(&mut self, place: &MountPoint) {
        let Some(pod) = self.pods.get_mut(&place.uid) else {
            return;
        };
        let Some(mount) = pod.mounts.remove(place) else {
            return;
        };
        self.backoffs.forget(&OperationTarget::Mount(place.clone()));
        if let Some(shared) = self.shared.get_mut(&mount.id) {
            shared.users.remove(place);
        }
        self.requeue_volume(&mount.id);
        self.queue.push(OperationTarget::Pod(place.uid.clone()));
        self.output.touched.insert(place.uid.clone());
    }
}

impl PodVolumes {
    /// Whether volumes that it does not desire may be unmounted: all that it desires are known.
    fn allows_unmount(&self) -> bool {
        match self.demand {
            PodDemand::Unknown => false,
            PodDemand::Released => true,
            PodDemand::Wanted => {
                let known = |name: &NamedVolume| matches!(name, NamedVolume::At { lost: None, .. });
                self.names.values().all(known)
            }
        }
    }
}

fn claim(mount: &PodMount, place: &MountPoint) -> SlotRequest {
    SlotRequest {
        lane: mount.concurrency_group.clone(),
        pod: Some(place.uid.clone()),
    }
}
