//! Desired state: which volume each pod wants at which mount point, and why some are not resolved.

use std::collections::{BTreeMap, BTreeSet};

use logic_api::types::{EventLevel, PodUid};

use super::StateOfWorld;
use super::actual_state::{
    DesiredMount, MountState, NamedVolume, PendingOperation, PodDemand, PodMount, PodVolumes,
};
use super::concurrency::ConcurrencyGroup;
use super::content::MountContent;
use super::operation::{MountPoint, OperationTarget, PodVolumeEvent};
use crate::resolve::event_reasons;
use crate::{ResolveStep, UnresolvedVolume, Volume, VolumeAccess, VolumeId, VolumeKind};

/// One of a pod's volumes, as it is to be.
#[derive(Debug)]
pub struct DesiredVolume {
    pub volume: Volume,
    /// The size in bytes that it is to be expanded to on this node; none for no expansion.
    pub grow: Option<u64>,
}

/// Why a pod's volumes are resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResolveTrigger {
    /// Its worker asked: the reason why it waits is reported again.
    Requested,
    /// Time, or a change somewhere.
    Resync,
    /// The same for a pod that ends: it keeps what it has, and nothing is reported.
    Ending,
}

impl StateOfWorld {
    /// A pod wants these volumes, by its own names of them, and no others.
    pub fn set_desired(
        &mut self,
        uid: &PodUid,
        wishes: BTreeMap<String, Result<DesiredVolume, UnresolvedVolume>>,
        cause: ResolveTrigger,
    ) {
        self.add_known_pod(uid);
        let mut pod = self.pods.remove(uid).unwrap_or_default();
        let old = std::mem::take(&mut pod.names);
        let mut wanted = DesiredPodVolumes::default();
        for (name, wish) in wishes {
            match wish {
                Ok(wish) => wanted.take(uid, name, wish),
                Err(why) => pod.keep(name, why, &old, &mut wanted),
            }
        }
        pod.demand = PodDemand::Wanted;
        pod.kinds = wanted.kinds();
        pod.names.extend(wanted.names);
        let mut wants = wanted.wants;
        for (place, mount) in &mut pod.mounts {
            let want = wants.remove(place);
            self.want(place, mount, want);
        }
        for (place, (want, names)) in wants {
            let mut mount = PodMount::new(&want);
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
        self.output.touched.insert(uid.clone());
        self.queue.push(OperationTarget::Pod(uid.clone()));
        self.requeue_unclaimed();
    }

    /// Sets the desired volume of a mount point; changed content is mounted without delay.
    pub(super) fn want(
        &mut self,
        place: &MountPoint,
        mount: &mut PodMount,
        want: Option<(DesiredMount, BTreeSet<String>)>,
    ) {
        self.queue.push(OperationTarget::Mount(place.clone()));
        self.queue.push(OperationTarget::Volume(mount.id.clone()));
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
            self.reset_backoffs(&OperationTarget::Mount(place.clone()));
            self.reset_backoffs(&OperationTarget::Volume(mount.id.clone()));
        }
        // Only what is surely there need not be kept.
        let sure = mount
            .done()
            .filter(|_| mount.doing.is_none() && !mount.again);
        if sure.is_some_and(|done| done.content.is_same(&want.content)) {
            want.content.slim();
        }
        mount.concurrency_group = ConcurrencyGroup::of(want.content.lean());
        mount.want = Some(want);
        self.adopt(place, mount);
    }

    /// Assigns the mount point to the volume that is desired there, as soon as no other is mounted.
    pub(super) fn adopt(&mut self, place: &MountPoint, mount: &mut PodMount) {
        let Some(volume) = mount.wanted().cloned() else {
            return;
        };
        let shared = self.shared.get(&mount.id);
        let busy = shared.is_some_and(|shared| shared.busy == PendingOperation::Yes);
        let free = mount.is_absent() && mount.doing.is_none();
        if free || mount.nameless && !busy {
            self.rename(place, mount, &volume.id);
        }
        if mount.id == volume.id {
            let shared = self.shared.entry(volume.id.clone()).or_default();
            shared.attachment = Some(volume.attachment.clone());
        }
    }

    /// The mount point belongs to another volume now.
    fn rename(&mut self, place: &MountPoint, mount: &mut PodMount, id: &VolumeId) {
        mount.nameless = false;
        if mount.id == *id {
            return;
        }
        let old = std::mem::replace(&mut mount.id, id.clone());
        if let Some(shared) = self.shared.get_mut(&old) {
            shared.users.remove(place);
        }
        self.queue.push(OperationTarget::Volume(old));
        self.shared
            .entry(id.clone())
            .or_default()
            .users
            .insert(place.clone());
        self.queue.push(OperationTarget::Volume(id.clone()));
    }

    fn complain(&mut self, uid: &PodUid, complaints: ResolveErrors) {
        let event = |reason, message| PodVolumeEvent {
            uid: uid.clone(),
            weight: EventLevel::Warning,
            reason,
            message,
        };
        if !complaints.causes.is_empty() {
            let message = self.not_mounted(uid, &complaints.causes.join("; "));
            self.output
                .events
                .push(event(event_reasons::FAILED_MOUNT, message));
        }
        let reasons = complaints.told.into_iter();
        self.output
            .events
            .extend(reasons.map(|(reason, message)| event(reason, message)));
    }
}

/// Why volumes are not resolved: the causes of what is not even processed, and what is an event of its own.
#[derive(Debug, Default)]
struct ResolveErrors {
    causes: Vec<String>,
    told: Vec<(&'static str, String)>,
}

impl PodVolumes {
    /// A volume that is mounted stays wanted, although its objects are gone.
    fn keep(
        &mut self,
        name: String,
        why: UnresolvedVolume,
        old: &BTreeMap<String, NamedVolume>,
        wanted: &mut DesiredPodVolumes,
    ) {
        let place = match old.get(&name) {
            Some(NamedVolume::At { place, access, .. }) => Some((place, *access)),
            Some(NamedVolume::Unresolved(_)) | None => None,
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
                    NamedVolume::At {
                        place,
                        access,
                        lost,
                    },
                    want,
                );
            }
            None => {
                wanted.unresolved = true;
                self.names.insert(name, NamedVolume::Unresolved(why));
            }
        }
    }

    /// What a controller is to attach, of what is not resolved.
    fn awaited(&self) -> BTreeSet<VolumeId> {
        let troubles = self.names.values().filter_map(NamedVolume::unresolved);
        let awaited = troubles.filter_map(|why| why.attachable.clone());
        awaited.collect()
    }

    fn complaints(
        &self,
        old: &BTreeMap<String, NamedVolume>,
        cause: ResolveTrigger,
    ) -> ResolveErrors {
        let mut complaints = ResolveErrors::default();
        if cause == ResolveTrigger::Ending {
            return complaints;
        }
        for (name, now) in &self.names {
            let Some(why) = now.unresolved() else {
                continue;
            };
            let known = old.get(name).and_then(NamedVolume::unresolved);
            if cause == ResolveTrigger::Resync
                && known.is_some_and(|known| known.message == why.message)
            {
                continue;
            }
            match why.step {
                ResolveStep::Processing => complaints.causes.push(why.message.clone()),
                ResolveStep::Attaching | ResolveStep::Mounting => {
                    complaints.told.push((why.reason, why.message.clone()));
                }
            }
        }
        complaints
    }
}

impl NamedVolume {
    /// Why it is not resolved now.
    fn unresolved(&self) -> Option<&UnresolvedVolume> {
        match self {
            NamedVolume::At { lost, .. } => lost.as_ref(),
            NamedVolume::Unresolved(why) => Some(why),
        }
    }
}

impl PodMount {
    fn new(want: &DesiredMount) -> Self {
        let volume = want.content.lean();
        PodMount {
            id: volume.id.clone(),
            nameless: false,
            concurrency_group: ConcurrencyGroup::of(volume),
            names: BTreeSet::new(),
            want: None,
            actual: MountState::Absent,
            doing: None,
            again: false,
            why: String::new(),
        }
    }
}

/// A pod's desired mounts by mount point.
#[derive(Debug, Default)]
struct DesiredPodVolumes {
    names: BTreeMap<String, NamedVolume>,
    wants: BTreeMap<MountPoint, (DesiredMount, BTreeSet<String>)>,
    unresolved: bool,
}

impl DesiredPodVolumes {
    fn take(&mut self, uid: &PodUid, name: String, wish: DesiredVolume) {
        let place = MountPoint {
            uid: uid.clone(),
            kind: wish.volume.kind,
            mode: wish.volume.mode,
            folder: wish.volume.folder.clone(),
        };
        let access = wish.volume.access;
        let want = DesiredMount {
            content: MountContent::new(wish.volume),
            grow: wish.grow,
        };
        let at = NamedVolume::At {
            place,
            access,
            lost: None,
        };
        self.put(name, at, want);
    }

    /// Of several mounts at one mount point the writable one counts; a container's own mount may still be read-only.
    fn put(&mut self, name: String, at: NamedVolume, want: DesiredMount) {
        if let NamedVolume::At { place, .. } = &at {
            let entry = self.wants.entry(place.clone());
            let (held, names) = entry.or_insert_with(|| (want.clone(), BTreeSet::new()));
            names.insert(name.clone());
            if held.content.lean().access == VolumeAccess::ReadOnly {
                *held = want;
            }
        }
        self.names.insert(name, at);
    }

    /// None: an unresolved one may turn out to be of any kind.
    fn kinds(&self) -> Option<BTreeSet<VolumeKind>> {
        let kinds = self.wants.keys().map(|place| place.kind);
        (!self.unresolved).then(|| kinds.collect())
    }
}
