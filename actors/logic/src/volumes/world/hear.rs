//! What the world hears: wishes and releases, which pods there are, and what changed about the plugins.

use std::collections::{BTreeMap, BTreeSet};

use super::World;
use super::content::Content;
use super::lanes::Lane;
use super::state::Busy;
use super::state::{Actual, Heard, Mount, Name, Pod, Wanted, is_refreshed};
use super::task::{Ability, News, Place, Subject, Verb};
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
            pod.mounts.insert(place, mount);
        }
        let complaints = pod.complaints(&old, cause);
        self.pods.insert(uid.clone(), pod);
        self.complain(uid, complaints);
        self.touched.insert(uid.clone());
        self.queue.push(Subject::Pod(uid.clone()));
        self.look_at_found();
    }

    /// A pod wants nothing any more: what it has is unmounted.
    pub fn release(&mut self, uid: &PodUid) {
        self.meet(uid);
        self.let_go(uid);
    }

    /// A pod whose worker speaks is known, whatever was told before.
    fn meet(&mut self, uid: &PodUid) {
        if let Some(known) = &mut self.known {
            known.insert(uid.clone());
        }
    }

    fn let_go(&mut self, uid: &PodUid) {
        let mut pod = self.pods.remove(uid).unwrap_or_default();
        pod.heard = Heard::Release;
        pod.names.clear();
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
        let strange = |uid: &PodUid| !known.contains(uid) && !self.pods.contains_key(uid);
        let folders = std::mem::take(&mut self.folders);
        let strange: Vec<PodUid> = folders.into_iter().filter(strange).collect();
        strange.iter().for_each(|uid| self.let_go(uid));
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
        let ids = self.pods.values().flat_map(|pod| pod.mounts.values());
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
            let over = |stuck: &mut super::state::Stuck| gone(stuck.kind, stuck.generation);
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

    fn forgive(&mut self, subject: &Subject) {
        for verb in [Verb::Stage, Verb::Mount] {
            self.backoffs.reset(subject, verb);
        }
    }

    /// Notes what is wanted at a place; changed content is mounted without delay.
    fn want(&mut self, place: &Place, mount: &mut Mount, want: Option<(Wanted, BTreeSet<String>)>) {
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
