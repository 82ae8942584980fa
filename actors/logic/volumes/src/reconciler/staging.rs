//! What is to be done about a volume itself, once for all pods: staged, unstaged, staged anew.

use std::sync::Arc;
use std::time::Instant;

use logic_api::types::EventLevel;

use super::actual_state::{
    PendingOperation, PodMount, PodRemoval, SharedVolume, StageState, is_inline, mount_label,
};
use super::concurrency::{ConcurrencyGroup, SlotRequest};
use super::operation::{
    MountPoint, OperationKind, OperationTarget, PodVolumeEvent, UnstageOperation, VolumeOperation,
};
use super::{ReconcileDecision, StateOfWorld};
use crate::resolve::event_reasons;
use crate::{Volume, VolumeId};

impl StateOfWorld {
    pub(super) fn is_staged_for(&self, volume: &Volume) -> bool {
        let shared = self.shared.get(&volume.id);
        shared.is_some_and(|shared| {
            shared.stage == StageState::Staged && shared.label() == Some(mount_label(volume))
        })
    }

    pub(super) fn decide_volume(&mut self, id: &VolumeId, now: Instant) -> ReconcileDecision {
        let Some(shared) = self.shared.get(id) else {
            return ReconcileDecision::Rest;
        };
        if shared.is_idle() {
            self.shared.remove(id);
            self.backoffs.forget(&OperationTarget::Volume(id.clone()));
            return ReconcileDecision::Rest;
        }
        if shared.is_held() {
            return ReconcileDecision::Rest;
        }
        let waiting = self.waiting_for(shared);
        let (volume, place) = match waiting {
            Some(waiting) => waiting,
            None => return self.unstage(id, shared, now),
        };
        match (shared.stage, shared.label()) {
            // Staged for another label: it is unstaged when no pod has it mounted any more.
            (StageState::Staged, label) if label != Some(mount_label(&volume)) => {
                let held = label.unwrap_or_default().to_owned();
                let begun = |place: &MountPoint| self.mount(place).filter(|mount| mount.is_begun());
                let holders: Vec<&PodMount> = shared.users.iter().filter_map(begun).collect();
                match holders.iter().any(|mount| mount.want.is_some()) {
                    true => self.refuse_label(&place.clone(), &volume, &held, now),
                    // Whoever does not want it any more is only waited for.
                    false if !holders.is_empty() => ReconcileDecision::Rest,
                    false => self.unstage(id, shared, now),
                }
            }
            (StageState::Staged, _) => ReconcileDecision::Rest,
            (StageState::Absent | StageState::Uncertain | StageState::Found, _) => {
                let claim = SlotRequest {
                    lane: ConcurrencyGroup::of(&volume),
                    pod: Some(place.uid.clone()),
                };
                self.unless_backing_off(VolumeOperation::Stage { volume }, claim, now)
            }
        }
    }

    /// Another pod has it under another label: reports the error, as often as upstream tries.
    fn refuse_label(
        &mut self,
        place: &MountPoint,
        volume: &Volume,
        held: &str,
        now: Instant,
    ) -> ReconcileDecision {
        let subject = OperationTarget::Volume(volume.id.clone());
        if let Some(until) = self.backoffs.until(&subject, OperationKind::Stage, now) {
            return ReconcileDecision::Wait(until);
        }
        let wanted = mount_label(volume);
        let cause = event_reasons::conflicting_labels(&place.folder, held, wanted);
        let message = self.not_mounted(&place.uid, &cause);
        self.output.events.push(PodVolumeEvent {
            uid: place.uid.clone(),
            weight: EventLevel::Warning,
            reason: event_reasons::FAILED_MOUNT,
            message,
        });
        if let Some(mount) = self.mount_mut(place) {
            mount.why = cause;
        }
        self.backoffs.failed(&subject, OperationKind::Stage, now);
        let until = self.backoffs.until(&subject, OperationKind::Stage, now);
        until.map_or(ReconcileDecision::Rest, ReconcileDecision::Wait)
    }

    /// The first user that cannot be mounted until the volume is staged.
    fn waiting_for<'a>(&self, shared: &'a SharedVolume) -> Option<(Arc<Volume>, &'a MountPoint)> {
        shared.users.iter().find_map(|place| {
            let ability = self.plugins.capabilities.get(&place.kind)?;
            let pod = self.pods.get(&place.uid)?;
            let mount = pod.mounts.get(place)?;
            let volume = mount.want.as_ref()?.content.whole()?;
            let needed = ability.staged
                && !is_inline(&volume)
                && mount.done().is_none()
                && mount.id == volume.id
                && pod.removal == PodRemoval::No
                && self.is_reported(&volume);
            needed.then_some((volume, place))
        })
    }

    fn unstage(&self, id: &VolumeId, shared: &SharedVolume, now: Instant) -> ReconcileDecision {
        let begun = |place: &MountPoint| self.mount(place).is_some_and(PodMount::is_begun);
        let needed = match self.waiting_for(shared) {
            Some(_) => shared.users.iter().any(begun),
            None => !shared.users.is_empty(),
        };
        let Some(staged) = shared.staged.as_ref().filter(|_| !needed) else {
            return ReconcileDecision::Rest;
        };
        let sure = match shared.stage {
            StageState::Absent => false,
            StageState::Staged | StageState::Uncertain => true,
            StageState::Found => self.all_pods_resolved(),
        };
        // Before the plugin has listed, it may have mounts that are not known here.
        if !sure || !self.plugins.listed.contains(&staged.kind) {
            return ReconcileDecision::Rest;
        }
        let task = VolumeOperation::Unstage(Box::new(UnstageOperation {
            id: id.clone(),
            kind: staged.kind,
            mode: staged.mode,
            path: staged.path.clone(),
            volume: staged.volume.clone(),
        }));
        let claim = SlotRequest {
            lane: staged.concurrency_group.clone(),
            pod: None,
        };
        self.unless_backing_off(task, claim, now)
    }
}

impl SharedVolume {
    /// No operation may be started on it.
    pub(super) fn is_held(&self) -> bool {
        self.busy == PendingOperation::Yes || self.stuck.is_some()
    }

    fn label(&self) -> Option<&str> {
        let staged = self.staged.as_ref()?.volume.as_ref()?;
        Some(mount_label(staged))
    }
}
