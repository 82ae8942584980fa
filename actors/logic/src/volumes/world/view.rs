//! What can be seen of the world: by a pod that waits, by an operator, by the node's status.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use super::World;
use super::state::{Actual, Heard, Mount, Name, Pod, Removal, Shared, Stage};
use super::task::{Place, Subject};
use crate::types::PodUid;
use crate::volumes::resolve::words::{self, Missing};
use crate::volumes::{Attachment, Kind, Mounted, MountedVolume, Step, Volume, VolumeId};

/// One volume of one pod, for an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub uid: PodUid,
    pub place: Option<Place>,
    /// The pod's name of it, or its folder's.
    pub name: String,
    pub id: VolumeId,
    pub state: &'static str,
    pub why: String,
    pub path: PathBuf,
}

/// A mounted volume.
#[derive(Clone, Debug)]
pub struct Measurable {
    pub place: Place,
    /// The pod's names of it.
    pub names: BTreeSet<String>,
    pub volume: Arc<Volume>,
    pub path: PathBuf,
}

impl World {
    /// A pod's volumes, if it may use them all.
    pub fn mounted(&self, uid: &PodUid) -> Option<Mounted> {
        let pod = self.pods.get(uid)?;
        if pod.heard != Heard::Wish || pod.removal == Removal::UnderWay {
            return None;
        }
        let mut volumes = BTreeMap::new();
        for (name, at) in &pod.names {
            volumes.insert(name.clone(), pod.at(at)?);
        }
        Some(Mounted { volumes })
    }

    /// One volume of a pod, if the pod may use it.
    pub fn volume(&self, uid: &PodUid, name: &str) -> Option<Measurable> {
        let pod = self.pods.get(uid)?;
        let Name::At { place, .. } = pod.names.get(name)? else {
            return None;
        };
        measurable(place, pod.mounts.get(place)?)
    }

    /// Bytes that a volume has grown to on this node since it was mounted first.
    pub fn grown_to(&self, id: &VolumeId) -> Option<u64> {
        let grown = self.shared.get(id)?.grown;
        (grown > 0).then_some(grown)
    }

    /// Whether surely nothing of a pod's is mounted.
    pub fn is_released(&self, uid: &PodUid) -> bool {
        let listed = |kind: &Kind| self.listed.contains(kind);
        let Some(pod) = self.pods.get(uid) else {
            return Self::kinds().all(|kind| listed(&kind));
        };
        let listed = match &pod.kinds {
            Some(kinds) => kinds.iter().all(listed),
            None => Self::kinds().all(|kind| listed(&kind)),
        };
        pod.heard == Heard::Release && pod.mounts.is_empty() && pod.removal == Removal::No && listed
    }

    /// What a pod still has, by its own names.
    pub fn held(&self, uid: &PodUid) -> Vec<String> {
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
        let names = |wanted: fn(&Self, &Pod, &Name) -> bool| -> Vec<String> {
            let Some(pod) = self.pods.get(uid) else {
                return Vec::new();
            };
            let names = pod.names.iter().filter(|(_, name)| wanted(self, pod, name));
            names.map(|(name, _)| name.clone()).collect()
        };
        let missing = Missing {
            unmounted: &names(|_, pod, name| pod.at(name).is_none()),
            unattached: &names(Self::is_unattached),
            unprocessed: &names(|_, _, name| name.is_unprocessed()),
        };
        words::not_mounted(missing, cause)
    }

    /// Why some of a pod's volumes are not even processed; empty where all are.
    pub fn causes(&self, uid: &PodUid) -> String {
        let names = self
            .pods
            .get(uid)
            .into_iter()
            .flat_map(|pod| pod.names.values());
        let causes = names.filter_map(|name| match name {
            Name::Not(why) if why.step == Step::Processing => Some(why.message.as_str()),
            Name::Not(_) | Name::At { .. } => None,
        });
        causes.collect::<Vec<_>>().join("; ")
    }

    fn is_unattached(&self, pod: &Pod, name: &Name) -> bool {
        match name {
            Name::Not(why) => why.step == Step::Attaching,
            Name::At { place, .. } => {
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
        let of_drivers = mounts.filter(|(place, _)| place.kind == Kind::Csi);
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
    pub fn is_whole(&self) -> bool {
        self.known.is_some() && Self::kinds().all(|kind| self.listed.contains(&kind))
    }

    /// Whether something of the volume is, or may be, on the node.
    pub fn is_there(&self, id: &VolumeId) -> bool {
        self.shared.get(id).is_some_and(|shared| {
            let mounted = |place| self.mount(place).is_some_and(Mount::is_begun);
            shared.stage != Stage::Absent || shared.users.iter().any(mounted)
        })
    }

    /// What hangs, each with its name.
    pub fn stuck(&self) -> Vec<String> {
        let stuck = self.shared.iter().filter_map(|(id, shared)| {
            let stuck = shared.stuck.as_ref()?;
            Some(format!("{id}: {}", stuck.message))
        });
        stuck.collect()
    }

    /// Whether a thread of some plugin's process hangs over this volume.
    pub fn hangs(&self, id: &VolumeId) -> bool {
        self.shared
            .get(id)
            .is_some_and(|shared| shared.stuck.is_some())
    }

    pub fn is_mounted(&self, place: &Place) -> bool {
        self.mount(place)
            .is_some_and(|mount| mount.done().is_some())
    }

    /// The pod's own names of the volume at a place.
    pub fn names(&self, place: &Place) -> BTreeSet<String> {
        self.mount(place)
            .map(|mount| mount.names.clone())
            .unwrap_or_default()
    }

    /// Every mounted volume.
    pub fn measurable(&self) -> impl Iterator<Item = Measurable> {
        let mounts = self.pods.values().flat_map(|pod| &pod.mounts);
        mounts.filter_map(|(place, mount)| measurable(place, mount))
    }

    /// Every volume of every pod, and what is staged for nobody.
    pub fn rows(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        for (uid, pod) in &self.pods {
            for (name, at) in &pod.names {
                if let Name::Not(why) = at {
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
        rows.extend(unused.map(|(id, shared)| left_over(id, shared)));
        rows
    }

    fn row(&self, pod: &Pod, place: &Place, (name, mount): (&str, &Mount)) -> Row {
        let shared = self.shared.get(&mount.id);
        let stuck = shared.and_then(|shared| shared.stuck.as_ref());
        let running = self.lanes.is_running(&Subject::Mount(place.clone()));
        let state = match (&mount.actual, &mount.want) {
            _ if stuck.is_some() => "Stuck",
            (Actual::Mounted(done), Some(_)) if done.ready => "Mounted",
            (Actual::Mounted(_) | Actual::Uncertain, Some(_)) => "Mounting",
            (Actual::Absent, Some(_)) if running => "Mounting",
            (Actual::Absent, _) => "Waiting",
            (_, None) if pod.heard == Heard::Nothing => "Left over",
            (_, None) => "Unmounting",
        };
        let whys = [
            stuck.map(|stuck| stuck.message.clone()),
            Some(mount.why.clone()),
            shared.map(|shared| shared.why.clone()),
        ];
        let why = whys.into_iter().flatten().find(|why| !why.is_empty());
        Row {
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

    /// How many operations are under way.
    pub fn running(&self) -> usize {
        self.lanes.len()
    }

    /// Whether everything is as it should be, and nothing waits to be looked at.
    pub fn is_at_rest(&self) -> bool {
        self.queue.is_empty() && self.lanes.len() == 0
    }
}

impl Pod {
    fn at(&self, name: &Name) -> Option<MountedVolume> {
        let Name::At { place, access, .. } = name else {
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
        self.names.values().any(|name| matches!(name, Name::Not(_)))
    }
}

impl Name {
    fn is_unprocessed(&self) -> bool {
        match self {
            Name::At { .. } => false,
            Name::Not(why) => why.step == Step::Processing,
        }
    }
}

fn measurable(place: &Place, mount: &Mount) -> Option<Measurable> {
    let done = mount.done()?;
    Some(Measurable {
        place: place.clone(),
        names: mount.names.clone(),
        volume: done.content.lean().clone(),
        path: done.path.clone(),
    })
}

fn waiting(uid: &PodUid, name: &str, why: &str) -> Row {
    Row {
        uid: uid.clone(),
        place: None,
        name: name.to_owned(),
        id: VolumeId::default(),
        state: "Waiting",
        why: why.to_owned(),
        path: PathBuf::new(),
    }
}

fn left_over(id: &VolumeId, shared: &Shared) -> Row {
    let state = match (shared.stuck.is_some(), shared.stage) {
        (true, _) => "Stuck",
        (false, Stage::Found) => "Left over",
        (false, Stage::Absent | Stage::Uncertain | Stage::Staged) => "Unmounting",
    };
    Row {
        uid: PodUid::default(),
        place: None,
        name: String::new(),
        id: id.clone(),
        state,
        why: shared.why.clone(),
        path: shared
            .staged
            .as_ref()
            .map(|staged| staged.path.clone())
            .unwrap_or_default(),
    }
}
