//! What is to be done about a volume, a mount or a pod now.

use std::time::Instant;

use super::lanes::{Claim, Lane};
use super::state::{
    Actual, Done, Heard, Mount, Name, Pod, Removal, Shared, Wanted, is_exclusive, is_inline,
};
use super::task::{Ability, News, Place, Subject, Task, Verb};
use super::{Decision, World};
use crate::types::{PodUid, Weight};
use crate::volumes::resolve::words::{self, Operation};
use crate::volumes::{Attachment, Kind, Volume, VolumeId};

const TAKEN: &str =
    "volume uses the ReadWriteOncePod access mode and is already in use by another pod";

impl World {
    pub(super) fn decide(&mut self, subject: &Subject, now: Instant) -> Decision {
        match subject {
            Subject::Shared(id) => self.about_shared(id, now),
            Subject::Mount(place) => self.about_mount(place, now),
            Subject::Pod(uid) => self.about_pod(uid, now),
        }
    }

    /// A task, unless it failed a moment ago.
    pub(super) fn unless_backing_off(&self, task: Task, claim: Claim, now: Instant) -> Decision {
        match self.backoffs.until(&task.subject(), task.verb(), now) {
            Some(until) => Decision::Wait(until),
            None => Decision::Do(Box::new(task), claim),
        }
    }

    fn about_mount(&mut self, place: &Place, now: Instant) -> Decision {
        let Some(pod) = self.pods.get(&place.uid) else {
            return Decision::Rest;
        };
        let Some(mount) = pod.mounts.get(place) else {
            return Decision::Rest;
        };
        let shared = self.shared.get(&mount.id);
        if shared.is_none_or(Shared::is_held) || pod.removal == Removal::UnderWay {
            return Decision::Rest;
        }
        match (&mount.want, &mount.actual) {
            (None, Actual::Absent) => {
                self.drop_mount(place);
                Decision::Rest
            }
            (None, Actual::Uncertain | Actual::Mounted(_)) => {
                self.unmount(place, pod.lets_go(), now)
            }
            (Some(want), Actual::Uncertain | Actual::Mounted(_))
                if want.content.lean().id != mount.id =>
            {
                self.unmount(place, true, now)
            }
            (Some(want), Actual::Mounted(done)) => match self.touch_up(place, mount, want, done) {
                Some(task) => {
                    let claim = claim(mount, place);
                    self.unless_backing_off(task, claim, now)
                }
                None => self.ready(place),
            },
            (Some(_), Actual::Absent | Actual::Uncertain) => self.first_mount(place, now),
        }
    }

    fn unmount(&self, place: &Place, free: bool, now: Instant) -> Decision {
        let pod = self.pods.get(&place.uid);
        let Some((pod, mount)) = pod.and_then(|pod| Some((pod, pod.mounts.get(place)?))) else {
            return Decision::Rest;
        };
        if !free || pod.guests > 0 {
            return Decision::Rest;
        }
        let task = Task::Unmount {
            place: place.clone(),
            id: mount.id.clone(),
        };
        self.unless_backing_off(task, claim(mount, place), now)
    }

    /// What a mounted volume lacks: its new content, or its size.
    fn touch_up(&self, place: &Place, mount: &Mount, want: &Wanted, done: &Done) -> Option<Task> {
        let ability = self.abilities.get(&place.kind)?;
        let changed = ability.updates && !done.content.is_same(&want.content);
        if let Some(volume) = want.content.whole().filter(|_| changed || mount.again) {
            return Some(Task::Mount {
                place: place.clone(),
                volume,
            });
        }
        let size = self.growth(mount, want, *ability)?;
        Some(Task::Grow {
            place: place.clone(),
            volume: want.content.lean().clone(),
            path: done.path.clone(),
            size,
        })
    }

    fn growth(&self, mount: &Mount, want: &Wanted, ability: Ability) -> Option<u64> {
        let shared = self.shared.get(&mount.id)?;
        let size = want.grow.filter(|_| ability.expand)?;
        (size > shared.grown && shared.refused != Some(size)).then_some(size)
    }

    /// The pod may use it. A difference that no mounting would change is taken for granted.
    fn ready(&mut self, place: &Place) -> Decision {
        let mount = self.mount_mut(place);
        if let Some(mount) = mount
            && let (Some(want), Actual::Mounted(done)) = (&mut mount.want, &mut mount.actual)
        {
            want.content.slim();
            done.content = want.content.clone();
            if !done.ready {
                done.ready = true;
                self.touched.insert(place.uid.clone());
            }
        }
        Decision::Rest
    }

    fn first_mount(&mut self, place: &Place, now: Instant) -> Decision {
        let Some(mount) = self.mount(place) else {
            return Decision::Rest;
        };
        let whole = mount.want.as_ref().and_then(|want| want.content.whole());
        let (Some(volume), Some(ability)) = (whole, self.abilities.get(&place.kind)) else {
            return Decision::Rest;
        };
        if !self.is_reported(&volume) {
            return Decision::Rest;
        }
        let subject = Subject::Mount(place.clone());
        if let Some(until) = self.backoffs.until(&subject, Verb::Mount, now) {
            return Decision::Wait(until);
        }
        if is_exclusive(&volume) {
            if !self.listed.contains(&place.kind) {
                return Decision::Rest;
            }
            if self.is_taken(&mount.id, &place.uid) {
                return self.refuse_taken(place, now);
            }
        }
        if ability.staged && !is_inline(&volume) && !self.is_staged_for(&volume) {
            self.queue.push(Subject::Shared(volume.id.clone()));
            return Decision::Rest;
        }
        let claim = claim(mount, place);
        let task = Task::Mount {
            place: place.clone(),
            volume,
        };
        Decision::Do(Box::new(task), claim)
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
        others.any(|place| self.mount(place).is_some_and(Mount::is_begun))
    }

    /// Says so, as often as upstream tries.
    fn refuse_taken(&mut self, place: &Place, now: Instant) -> Decision {
        let told = words::failed(Operation::Publish, place.mode, &place.folder, TAKEN);
        self.news.push(News {
            uid: place.uid.clone(),
            weight: Weight::Warning,
            reason: told.reason,
            message: told.message,
        });
        let subject = Subject::Mount(place.clone());
        self.backoffs.failed(&subject, Verb::Mount, now);
        if let Some(mount) = self.mount_mut(place) {
            TAKEN.clone_into(&mut mount.why);
        }
        let until = self.backoffs.until(&subject, Verb::Mount, now);
        until.map_or(Decision::Rest, Decision::Wait)
    }

    /// What is left of a pod that nobody knows is removed, when its last volume is gone.
    fn about_pod(&mut self, uid: &PodUid, now: Instant) -> Decision {
        let Some(pod) = self.pods.get(uid) else {
            return Decision::Rest;
        };
        let unknown = self
            .known
            .as_ref()
            .is_some_and(|known| !known.contains(uid));
        let over = pod.heard == Heard::Release
            && pod.mounts.is_empty()
            && pod.guests == 0
            && pod.removal == Removal::No;
        let served = |kind: &Kind| self.listed.contains(kind);
        if !unknown || !over || !Self::kinds().all(|kind| served(&kind)) {
            return Decision::Rest;
        }
        let task = Task::Remove { uid: uid.clone() };
        let claim = Claim {
            lane: Lane::Folders,
            pod: None,
        };
        self.unless_backing_off(task, claim, now)
    }

    /// Every kind that a plugin mounts.
    pub fn kinds() -> impl Iterator<Item = Kind> {
        use strum::IntoEnumIterator;
        Kind::iter().filter(|kind| *kind != Kind::Image)
    }

    /// Nothing is there, and nothing is wanted.
    pub(super) fn drop_mount(&mut self, place: &Place) {
        let Some(pod) = self.pods.get_mut(&place.uid) else {
            return;
        };
        let Some(mount) = pod.mounts.remove(place) else {
            return;
        };
        self.backoffs.forget(&Subject::Mount(place.clone()));
        if let Some(shared) = self.shared.get_mut(&mount.id) {
            shared.users.remove(place);
        }
        self.stir(&mount.id);
        self.queue.push(Subject::Pod(place.uid.clone()));
        self.touched.insert(place.uid.clone());
    }
}

impl Pod {
    /// Whether what it does not want may go: all that it wants is known.
    fn lets_go(&self) -> bool {
        match self.heard {
            Heard::Nothing => false,
            Heard::Release => true,
            Heard::Wish => {
                let known = |name: &Name| matches!(name, Name::At { lost: None, .. });
                self.names.values().all(known)
            }
        }
    }
}

fn claim(mount: &Mount, place: &Place) -> Claim {
    Claim {
        lane: mount.lane.clone(),
        pod: Some(place.uid.clone()),
    }
}
