//! What is to be done about a volume itself, once for all pods: staged, unstaged, staged anew.

use std::sync::Arc;
use std::time::Instant;

use super::lanes::{Claim, Lane};
use super::state::{Busy, Mount, Removal, Shared, Stage, is_inline, mount_label};
use super::task::{News, Place, Subject, Task, Unstage, Verb};
use super::{Decision, World};
use crate::types::Weight;
use crate::volumes::resolve::words;
use crate::volumes::{Volume, VolumeId};

impl World {
    pub(super) fn is_staged_for(&self, volume: &Volume) -> bool {
        let shared = self.shared.get(&volume.id);
        shared.is_some_and(|shared| {
            shared.stage == Stage::Staged && shared.label() == Some(mount_label(volume))
        })
    }

    pub(super) fn about_shared(&mut self, id: &VolumeId, now: Instant) -> Decision {
        let Some(shared) = self.shared.get(id) else {
            return Decision::Rest;
        };
        if shared.is_idle() {
            self.shared.remove(id);
            self.backoffs.forget(&Subject::Shared(id.clone()));
            return Decision::Rest;
        }
        if shared.is_held() {
            return Decision::Rest;
        }
        let waiting = self.waiting_for(shared);
        let (volume, place) = match waiting {
            Some(waiting) => waiting,
            None => return self.unstage(id, shared, now),
        };
        match (shared.stage, shared.label()) {
            // Staged for somebody else's label: it goes when nobody has it any more.
            (Stage::Staged, label) if label != Some(mount_label(&volume)) => {
                let held = label.unwrap_or_default().to_owned();
                let begun = |place: &Place| self.mount(place).is_some_and(Mount::is_begun);
                match shared.users.iter().any(begun) {
                    true => self.refuse_label(&place.clone(), &volume, &held, now),
                    false => self.unstage(id, shared, now),
                }
            }
            (Stage::Staged, _) => Decision::Rest,
            (Stage::Absent | Stage::Uncertain | Stage::Found, _) => {
                let claim = Claim {
                    lane: Lane::of(&volume),
                    pod: Some(place.uid.clone()),
                };
                self.unless_backing_off(Task::Stage { volume }, claim, now)
            }
        }
    }

    /// Another pod has it under another label: says so, as often as upstream tries.
    fn refuse_label(
        &mut self,
        place: &Place,
        volume: &Volume,
        held: &str,
        now: Instant,
    ) -> Decision {
        let subject = Subject::Shared(volume.id.clone());
        if let Some(until) = self.backoffs.until(&subject, Verb::Stage, now) {
            return Decision::Wait(until);
        }
        let wanted = mount_label(volume);
        let cause = words::conflicting_labels(&place.folder, held, wanted);
        let message = self.not_mounted(&place.uid, &cause);
        self.news.push(News {
            uid: place.uid.clone(),
            weight: Weight::Warning,
            reason: words::FAILED_MOUNT,
            message,
        });
        if let Some(mount) = self.mount_mut(place) {
            mount.why = cause;
        }
        self.backoffs.failed(&subject, Verb::Stage, now);
        let until = self.backoffs.until(&subject, Verb::Stage, now);
        until.map_or(Decision::Rest, Decision::Wait)
    }

    /// The first user that cannot be mounted until the volume is staged.
    fn waiting_for<'a>(&self, shared: &'a Shared) -> Option<(Arc<Volume>, &'a Place)> {
        shared.users.iter().find_map(|place| {
            let ability = self.abilities.get(&place.kind)?;
            let pod = self.pods.get(&place.uid)?;
            let mount = pod.mounts.get(place)?;
            let volume = mount.want.as_ref()?.content.whole()?;
            let needed = ability.staged
                && !is_inline(&volume)
                && mount.done().is_none()
                && mount.id == volume.id
                && pod.removal == Removal::No
                && self.is_reported(&volume);
            needed.then_some((volume, place))
        })
    }

    fn unstage(&self, id: &VolumeId, shared: &Shared, now: Instant) -> Decision {
        let begun = |place: &Place| self.mount(place).is_some_and(Mount::is_begun);
        let needed = match self.waiting_for(shared) {
            Some(_) => shared.users.iter().any(begun),
            None => !shared.users.is_empty(),
        };
        let Some(staged) = shared.staged.as_ref().filter(|_| !needed) else {
            return Decision::Rest;
        };
        let sure = match shared.stage {
            Stage::Absent => false,
            Stage::Staged | Stage::Uncertain => true,
            Stage::Found => self.is_all_heard(),
        };
        // Before the plugin has listed, there may be mounts of it that nobody knows.
        if !sure || !self.listed.contains(&staged.kind) {
            return Decision::Rest;
        }
        let task = Task::Unstage(Box::new(Unstage {
            id: id.clone(),
            kind: staged.kind,
            mode: staged.mode,
            path: staged.path.clone(),
            volume: staged.volume.clone(),
        }));
        let claim = Claim {
            lane: staged.lane.clone(),
            pod: None,
        };
        self.unless_backing_off(task, claim, now)
    }
}

impl Shared {
    /// Nothing may be begun with it.
    pub(super) fn is_held(&self) -> bool {
        self.busy == Busy::Yes || self.stuck.is_some()
    }

    fn label(&self) -> Option<&str> {
        let staged = self.staged.as_ref()?.volume.as_ref()?;
        Some(mount_label(staged))
    }
}
