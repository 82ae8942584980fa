//! Views of the state of world: for a pod that waits, for an operator, for the node's status.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use logic_api::types::PodUid;

use super::StateOfWorld;
use super::actual_state::{
    MountState, NamedVolume, PodDemand, PodMount, PodRemoval, PodVolumes, SharedVolume, StageState,
};
use super::operation::{MountPoint, OperationTarget};
use crate::resolve::event_reasons::{self, MissingVolumes};
use crate::{Attachment, MountedVolume, MountedVolumes, ResolveStep, Volume, VolumeId, VolumeKind};

/// One volume of one pod, for an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeRow {
    pub uid: PodUid,
    pub place: Option<MountPoint>,
    /// The pod's name of it, or its directory's.
    pub name: String,
    pub id: VolumeId,
    /// `Mounted`, `Mounting`, `Waiting`, `Unmounting`, `Stuck`, `Left over`.
    pub state: &'static str,
    /// Why it is not mounted; empty if it is.
    pub why: String,
    pub path: PathBuf,
}

/// A mounted volume whose usage can be measured.
#[derive(Clone, Debug)]
pub struct MeasurableVolume {
    pub place: MountPoint,
    /// The pod's names of it.
    pub names: BTreeSet<String>,
    pub volume: Arc<Volume>,
    pub path: PathBuf,
}

impl StateOfWorld {
    /// A pod's volumes, if it may use them all.
    pub fn mounted(&self, uid: &PodUid) -> Option<MountedVolumes> {
        let pod = self.pods.get(uid)?;
        if pod.demand != PodDemand::Wanted || pod.removal == PodRemoval::UnderWay {
            return None;
        }
        let mut volumes = BTreeMap::new();
        for (name, at) in &pod.names {
            volumes.insert(name.clone(), pod.at(at)?);
        }
        Some(MountedVolumes { volumes })
    }

    /// One volume of a pod, if the pod may use it.
    pub fn volume(&self, uid: &PodUid, name: &str) -> Option<MeasurableVolume> {
        let pod = self.pods.get(uid)?;
        let NamedVolume::At { place, .. } = pod.names.get(name)? else {
            return None;
        };
        measurable(place, pod.mounts.get(place)?)
    }

    /// The size in bytes that a volume was expanded to on this node since it was mounted first.
    pub fn grown_to(&self, id: &VolumeId) -> Option<u64> {
        let grown = self.shared.get(id)?.grown;
        (grown > 0).then_some(grown)
    }

    /// Whether surely nothing of a pod's is mounted.
    pub fn is_released(&self, uid: &PodUid) -> bool {
        let listed = |kind: &VolumeKind| self.plugins.listed.contains(kind);
        let Some(pod) = self.pods.get(uid) else {
            return Self::kinds().all(|kind| listed(&kind));
        };
        let listed = match &pod.kinds {
            Some(kinds) => kinds.iter().all(listed),
            None => Self::kinds().all(|kind| listed(&kind)),
        };
        pod.demand == PodDemand::Released
            && pod.mounts.is_empty()
            && pod.removal == PodRemoval::No
            && listed
    }

    /// The volumes that a pod still has mounted, by its own names.
    pub fn mounted_volumes(&self, uid: &PodUid) -> Vec<String> {
        let mounts = self
            .pods
            .get(uid)
            .into_iter()
            .flat_map(|pod| pod.mounts.values());
        mounts
            .flat_map(|mount| mount.names.iter().cloned())
            .collect()
    }

    /// Upstream's words for what a pod waits for.
    pub fn not_mounted(&self, uid: &PodUid, cause: &str) -> String {
        let names = |wanted: fn(&Self, &PodVolumes, &NamedVolume) -> bool| -> Vec<String> {
            let Some(pod) = self.pods.get(uid) else {
                return Vec::new();
            };
            let names = pod.names.iter().filter(|(_, name)| wanted(self, pod, name));
            names.map(|(name, _)| name.clone()).collect()
        };
        let missing = MissingVolumes {
            unmounted: &names(|_, pod, name| pod.at(name).is_none()),
            unattached: &names(Self::is_unattached),
            unprocessed: &names(|_, _, name| name.is_unprocessed()),
        };
        event_reasons::not_mounted(missing, cause)
    }

    /// Why some of a pod's volumes are not even processed; empty where all are.
    pub fn causes(&self, uid: &PodUid) -> String {
        let names = self
            .pods
            .get(uid)
            .into_iter()
            .flat_map(|pod| pod.names.values());
        let causes = names.filter_map(|name| match name {
            NamedVolume::Unresolved(why) if why.step == ResolveStep::Processing => {
                Some(why.message.as_str())
            }
            NamedVolume::Unresolved(_) | NamedVolume::At { .. } => None,
        });
        causes.collect::<Vec<_>>().join("; ")
    }

    fn is_unattached(&self, pod: &PodVolumes, name: &NamedVolume) -> bool {
        match name {
            NamedVolume::Unresolved(why) => why.step == ResolveStep::Attaching,
            NamedVolume::At { place, .. } => {
                let volume = pod.mounts.get(place).and_then(|mount| mount.wanted());
                volume.is_some_and(|volume| {
                    volume.attachment == Attachment::Attached && !self.reported.contains(&volume.id)
                })
            }
        }
    }

    /// Which pods have which volume of a driver: mounted, or a mount was begun.
    pub fn taken(&self) -> BTreeMap<VolumeId, BTreeSet<PodUid>> {
        let mut taken: BTreeMap<VolumeId, BTreeSet<PodUid>> = BTreeMap::new();
        let mounts = self.pods.values().flat_map(|pod| &pod.mounts);
        let of_drivers = mounts.filter(|(place, _)| place.kind == VolumeKind::Csi);
        for (place, mount) in of_drivers.filter(|(_, mount)| mount.is_begun()) {
            let pods = taken.entry(mount.id.clone()).or_default();
            pods.insert(place.uid.clone());
        }
        taken
    }

    /// Upstream's `volumesInUse`: what a controller attached, or is to attach, for a pod of this node.
    pub fn in_use(&self) -> BTreeSet<VolumeId> {
        let attachable = self
            .shared
            .iter()
            .filter(|(_, shared)| shared.is_attachable());
        let attached = attachable.map(|(id, _)| id);
        let awaited = self.awaited.values().flatten();
        attached.chain(awaited).cloned().collect()
    }

    /// Whether all that was mounted before is known: what is not in use is not.
    pub fn is_reconstructed(&self) -> bool {
        self.pods_on_node.known.is_some()
            && Self::kinds().all(|kind| self.plugins.listed.contains(&kind))
    }

    /// Whether something of the volume is, or may be, on the node.
    pub fn may_be_present(&self, id: &VolumeId) -> bool {
        self.shared.get(id).is_some_and(|shared| {
            let mounted = |place| self.mount(place).is_some_and(PodMount::is_begun);
            shared.stage != StageState::Absent || shared.users.iter().any(mounted)
        })
    }

    /// The pods of which a volume is mounted, or may be; none before what earlier lives have left is known.
    pub fn pods_with_mounts(&self) -> Option<BTreeSet<PodUid>> {
        let has_mounts = |pod: &PodVolumes| pod.mounts.values().any(|mount| mount.is_begun());
        let pods = self.pods.iter().filter(|(_, pod)| has_mounts(pod));
        self.is_reconstructed()
            .then(|| pods.map(|(uid, _)| uid.clone()).collect())
    }

    /// The stuck operations and the overdue calls of drivers, each with its volume's name.
    pub fn stuck(&self) -> Vec<String> {
        let stuck = self.shared.iter().filter_map(|(id, shared)| {
            let stuck = shared.stuck.as_ref()?;
            Some(format!("{id}: {}", stuck.message))
        });
        stuck.chain(self.overdue()).collect()
    }

    /// Whether a thread of a plugin's process is stuck in an operation on this volume.
    pub fn hangs(&self, id: &VolumeId) -> bool {
        self.shared
            .get(id)
            .is_some_and(|shared| shared.stuck.is_some())
    }

    pub fn is_mounted(&self, place: &MountPoint) -> bool {
        self.mount(place)
            .is_some_and(|mount| mount.done().is_some())
    }

    /// The pod's own names of the volume at a mount point.
    pub fn names(&self, place: &MountPoint) -> BTreeSet<String> {
        self.mount(place)
            .map(|mount| mount.names.clone())
            .unwrap_or_default()
    }

    /// Where volumes are mounted.
    pub fn mounted_places(&self) -> impl Iterator<Item = &MountPoint> {
        let mounts = self.pods.values().flat_map(|pod| &pod.mounts);
        let mounted = mounts.filter(|(_, mount)| mount.done().is_some());
        mounted.map(|(place, _)| place)
    }

    /// The volume that is mounted there.
    pub fn measurable_at(&self, place: &MountPoint) -> Option<MeasurableVolume> {
        measurable(place, self.mount(place)?)
    }

    /// All mounted volumes.
    pub fn measurable(&self) -> impl Iterator<Item = MeasurableVolume> {
        let mounts = self.pods.values().flat_map(|pod| &pod.mounts);
        mounts.filter_map(|(place, mount)| measurable(place, mount))
    }

    /// Every volume of every pod, and every staged volume that no pod uses.
    pub fn rows(&self) -> Vec<VolumeRow> {
        let mut rows = Vec::new();
        for (uid, pod) in &self.pods {
            for (name, at) in &pod.names {
                if let NamedVolume::Unresolved(why) = at {
                    rows.push(waiting(uid, name, &why.message));
                }
            }
            for (place, mount) in &pod.mounts {
                let names = mount.names.iter();
                rows.extend(names.map(|name| self.row(pod, place, (name, mount))));
            }
        }
        let unused = self.shared.iter();
        let unused = unused.filter(|(_, shared)| shared.users.is_empty());
        rows.extend(unused.map(|(id, shared)| self.left_over(id, shared)));
        rows
    }

    fn row(
        &self,
        pod: &PodVolumes,
        place: &MountPoint,
        (name, mount): (&str, &PodMount),
    ) -> VolumeRow {
        let shared = self.shared.get(&mount.id);
        let stuck = shared.and_then(|shared| shared.stuck.as_ref());
        let running = self.running.of(&OperationTarget::Mount(place.clone()));
        let staging = self.running.of(&OperationTarget::Volume(mount.id.clone()));
        let mut overdue = [running, staging].into_iter().flatten();
        let state = match (&mount.actual, &mount.want) {
            _ if stuck.is_some() => "Stuck",
            (MountState::Mounted(done), Some(_)) if done.ready => "Mounted",
            (MountState::Mounted(_) | MountState::Uncertain, Some(_)) => "Mounting",
            (MountState::Absent, Some(_)) if running.is_some() => "Mounting",
            (MountState::Absent, _) => "Waiting",
            (_, None) if pod.demand == PodDemand::Unknown => "Left over",
            (_, None) => "Unmounting",
        };
        let whys = [
            stuck.map(|stuck| stuck.message.clone()),
            overdue.find_map(|running| running.why_overdue()),
            Some(mount.why.clone()),
            shared.map(|shared| shared.why.clone()),
        ];
        let why = whys.into_iter().flatten().find(|why| !why.is_empty());
        VolumeRow {
            uid: place.uid.clone(),
            place: Some(place.clone()),
            name: name.to_owned(),
            id: mount.id.clone(),
            state,
            why: why.unwrap_or_default(),
            path: mount
                .done()
                .map(|done| done.path.clone())
                .unwrap_or_default(),
        }
    }

    fn left_over(&self, id: &VolumeId, shared: &SharedVolume) -> VolumeRow {
        let state = match (shared.stuck.is_some(), shared.stage) {
            (true, _) => "Stuck",
            (false, StageState::Found) => "Left over",
            (false, StageState::Absent | StageState::Uncertain | StageState::Staged) => {
                "Unmounting"
            }
        };
        let running = self.running.of(&OperationTarget::Volume(id.clone()));
        let overdue = running.and_then(|running| running.why_overdue());
        VolumeRow {
            uid: PodUid::default(),
            place: None,
            name: String::new(),
            id: id.clone(),
            state,
            why: overdue.unwrap_or_else(|| shared.why.clone()),
            path: shared
                .staged
                .as_ref()
                .map(|staged| staged.path.clone())
                .unwrap_or_default(),
        }
    }

    /// How many operations are under way.
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// Whether everything is as it should be, and nothing waits to be looked at.
    pub fn is_at_rest(&self) -> bool {
        self.queue.is_empty() && self.running.len() == 0
    }
}

impl PodVolumes {
    fn at(&self, name: &NamedVolume) -> Option<MountedVolume> {
        let NamedVolume::At { place, access, .. } = name else {
            return None;
        };
        let done = self.mounts.get(place)?.done().filter(|done| done.ready)?;
        Some(MountedVolume {
            path: done.path.clone(),
            mode: place.mode,
            access: *access,
            relabel: done.relabel,
        })
    }

    pub(super) fn is_unresolved(&self) -> bool {
        self.names
            .values()
            .any(|name| matches!(name, NamedVolume::Unresolved(_)))
    }
}

impl NamedVolume {
    fn is_unprocessed(&self) -> bool {
        match self {
            NamedVolume::At { .. } => false,
            NamedVolume::Unresolved(why) => why.step == ResolveStep::Processing,
        }
    }
}

fn measurable(place: &MountPoint, mount: &PodMount) -> Option<MeasurableVolume> {
    let done = mount.done()?;
    Some(MeasurableVolume {
        place: place.clone(),
        names: mount.names.clone(),
        volume: done.content.lean().clone(),
        path: done.path.clone(),
    })
}

fn waiting(uid: &PodUid, name: &str, why: &str) -> VolumeRow {
    VolumeRow {
        uid: uid.clone(),
        place: None,
        name: name.to_owned(),
        id: VolumeId::default(),
        state: "Waiting",
        why: why.to_owned(),
        path: PathBuf::new(),
    }
}
