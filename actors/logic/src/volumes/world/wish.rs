//! What pods want: each wish at its place, and why some are not even resolved.

use std::collections::{BTreeMap, BTreeSet};

use super::World;
use super::content::Content;
use super::lanes::Lane;
use super::state::{Actual, Busy, Heard, Mount, Name, Pod, Wanted};
use super::task::{News, Place, Subject};
use crate::types::{PodUid, Weight};
use crate::volumes::resolve::words;
use crate::volumes::{Access, Kind, Step, Unresolved, Volume, VolumeId};

/// One of a pod's volumes, as it is to be.
#[derive(Debug)]
pub struct Wish {
    pub volume: Volume,
    /// Bytes that it is to grow to on this node, if it is to grow.
    pub grow: Option<u64>,
}

/// Who has it that a pod's volumes are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Its worker: what keeps it waiting is told again.
    Asked,
    /// Time, or a change somewhere.
    Again,
}

impl World {
    /// A pod wants these volumes, by its own names of them, and no others.
    pub fn wish(
        &mut self,
        uid: &PodUid,
        wishes: BTreeMap<String, Result<Wish, Unresolved>>,
        cause: Cause,
    ) {
        self.meet(uid);
        let mut pod = self.pods.remove(uid).unwrap_or_default();
        let old = std::mem::take(&mut pod.names);
        let mut wanted = Group::default();
        for (name, wish) in wishes {
            match wish {
                Ok(wish) => wanted.take(uid, name, wish),
                Err(why) => pod.keep(name, why, &old, &mut wanted),
            }
        }
        pod.heard = Heard::Wish;
        pod.kinds = wanted.kinds();
        pod.names.extend(wanted.names);
        let mut wants = wanted.wants;
        for (place, mount) in &mut pod.mounts {
            let want = wants.remove(place);
            self.want(place, mount, want);
        }
        for (place, (want, names)) in wants {
            let mut mount = Mount::new(&want);
            self.shared
                .entry(mount.id.clone())
                .or_default()
                .users
                .insert(place.clone());
            self.want(&place, &mut mount, Some((want, names)));
            pod.mounts.insert(place, Box::new(mount));
        }
        let complaints = pod.complaints(&old, cause);
        match pod.awaited() {
            awaited if awaited.is_empty() => drop(self.awaited.remove(uid)),
            awaited => drop(self.awaited.insert(uid.clone(), awaited)),
        }
        self.pods.insert(uid.clone(), pod);
        self.complain(uid, complaints);
        self.touched.insert(uid.clone());
        self.queue.push(Subject::Pod(uid.clone()));
        self.look_at_found();
    }

    /// Notes what is wanted at a place; changed content is mounted without delay.
    pub(super) fn want(
        &mut self,
        place: &Place,
        mount: &mut Mount,
        want: Option<(Wanted, BTreeSet<String>)>,
    ) {
        self.queue.push(Subject::Mount(place.clone()));
        self.queue.push(Subject::Shared(mount.id.clone()));
        let Some((mut want, names)) = want else {
            mount.want = None;
            mount.again = false;
            return;
        };
        mount.names = names;
        let changed = mount
            .want
            .as_ref()
            .is_some_and(|old| !old.content.is_same(&want.content));
        if changed {
            self.forgive(&Subject::Mount(place.clone()));
            self.forgive(&Subject::Shared(mount.id.clone()));
        }
        // Only what is surely there need not be kept.
        let sure = mount
            .done()
            .filter(|_| mount.doing.is_none() && !mount.again);
        if sure.is_some_and(|done| done.content.is_same(&want.content)) {
            want.content.slim();
        }
        mount.lane = Lane::of(want.content.lean());
        mount.want = Some(want);
        self.adopt(place, mount);
    }

    /// Calls the place by the volume that is wanted there, as soon as nothing else is.
    pub(super) fn adopt(&mut self, place: &Place, mount: &mut Mount) {
        let Some(volume) = mount.wanted().cloned() else {
            return;
        };
        let shared = self.shared.get(&mount.id);
        let busy = shared.is_some_and(|shared| shared.busy == Busy::Yes);
        let free = mount.is_absent() && mount.doing.is_none();
        if free || mount.nameless && !busy {
            self.rename(place, mount, &volume.id);
        }
        if mount.id == volume.id {
            let shared = self.shared.entry(volume.id.clone()).or_default();
            shared.attachment = Some(volume.attachment.clone());
        }
    }

    /// The place is of another volume now.
    fn rename(&mut self, place: &Place, mount: &mut Mount, id: &VolumeId) {
        mount.nameless = false;
        if mount.id == *id {
            return;
        }
        let old = std::mem::replace(&mut mount.id, id.clone());
        if let Some(shared) = self.shared.get_mut(&old) {
            shared.users.remove(place);
        }
        self.queue.push(Subject::Shared(old));
        self.shared
            .entry(id.clone())
            .or_default()
            .users
            .insert(place.clone());
        self.queue.push(Subject::Shared(id.clone()));
    }

    fn complain(&mut self, uid: &PodUid, complaints: Complaints) {
        let news = |reason, message| News {
            uid: uid.clone(),
            weight: Weight::Warning,
            reason,
            message,
        };
        if !complaints.causes.is_empty() {
            let message = self.not_mounted(uid, &complaints.causes.join("; "));
            self.news.push(news(words::FAILED_MOUNT, message));
        }
        let told = complaints.told.into_iter();
        self.news
            .extend(told.map(|(reason, message)| news(reason, message)));
    }
}

/// Why volumes are not resolved: the causes of what is not even processed, and what is an event of its own.
#[derive(Debug, Default)]
struct Complaints {
    causes: Vec<String>,
    told: Vec<(&'static str, String)>,
}

impl Pod {
    /// A volume that is mounted stays wanted, although its objects are gone.
    fn keep(
        &mut self,
        name: String,
        why: Unresolved,
        old: &BTreeMap<String, Name>,
        wanted: &mut Group,
    ) {
        let place = match old.get(&name) {
            Some(Name::At { place, access, .. }) => Some((place, *access)),
            Some(Name::Not(_)) | None => None,
        };
        let kept = place.and_then(|(place, access)| {
            let mount = self.mounts.get_mut(place)?;
            mount.done()?;
            mount.why.clone_from(&why.message);
            Some((place.clone(), access, mount.want.clone()?))
        });
        match kept {
            Some((place, access, want)) => {
                let lost = Some(why);
                wanted.put(
                    name,
                    Name::At {
                        place,
                        access,
                        lost,
                    },
                    want,
                );
            }
            None => {
                wanted.unresolved = true;
                self.names.insert(name, Name::Not(why));
            }
        }
    }

    /// What a controller is to attach, of what is not resolved.
    fn awaited(&self) -> BTreeSet<VolumeId> {
        let troubles = self.names.values().filter_map(Name::trouble);
        let awaited = troubles.filter_map(|why| why.attachable.clone());
        awaited.collect()
    }

    fn complaints(&self, old: &BTreeMap<String, Name>, cause: Cause) -> Complaints {
        let mut complaints = Complaints::default();
        for (name, now) in &self.names {
            let Some(why) = now.trouble() else { continue };
            let known = old.get(name).and_then(Name::trouble);
            if cause == Cause::Again && known.is_some_and(|known| known.message == why.message) {
                continue;
            }
            match why.step {
                Step::Processing => complaints.causes.push(why.message.clone()),
                Step::Attaching | Step::Mounting => {
                    complaints.told.push((why.reason, why.message.clone()));
                }
            }
        }
        complaints
    }
}

impl Name {
    /// Why it is not resolved now.
    fn trouble(&self) -> Option<&Unresolved> {
        match self {
            Name::At { lost, .. } => lost.as_ref(),
            Name::Not(why) => Some(why),
        }
    }
}

impl Mount {
    fn new(want: &Wanted) -> Self {
        let volume = want.content.lean();
        Mount {
            id: volume.id.clone(),
            nameless: false,
            lane: Lane::of(volume),
            names: BTreeSet::new(),
            want: None,
            actual: Actual::Absent,
            doing: None,
            again: false,
            why: String::new(),
        }
    }
}

/// A pod's wishes by their places.
#[derive(Debug, Default)]
struct Group {
    names: BTreeMap<String, Name>,
    wants: BTreeMap<Place, (Wanted, BTreeSet<String>)>,
    unresolved: bool,
}

impl Group {
    fn take(&mut self, uid: &PodUid, name: String, wish: Wish) {
        let place = Place {
            uid: uid.clone(),
            kind: wish.volume.kind,
            mode: wish.volume.mode,
            folder: wish.volume.folder.clone(),
        };
        let access = wish.volume.access;
        let want = Wanted {
            content: Content::new(wish.volume),
            grow: wish.grow,
        };
        let at = Name::At {
            place,
            access,
            lost: None,
        };
        self.put(name, at, want);
    }

    /// Of several wishes for one place the one that may write counts; a container's own mount is narrower.
    fn put(&mut self, name: String, at: Name, want: Wanted) {
        if let Name::At { place, .. } = &at {
            let entry = self.wants.entry(place.clone());
            let (held, names) = entry.or_insert_with(|| (want.clone(), BTreeSet::new()));
            names.insert(name.clone());
            if held.content.lean().access == Access::ReadOnly {
                *held = want;
            }
        }
        self.names.insert(name, at);
    }

    /// None: an unresolved one may turn out to be of any kind.
    fn kinds(&self) -> Option<BTreeSet<Kind>> {
        let kinds = self.wants.keys().map(|place| place.kind);
        (!self.unresolved).then(|| kinds.collect())
    }
}
