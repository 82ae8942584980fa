//! What the plugins find on the node, and what the world makes of it after a restart.

use super::World;
use super::lanes::Lane;
use super::state::{Actual, Heard, Mount, Name, Stage, StagedAt};
use super::task::{Place, Subject};
use crate::types::PodUid;
use crate::volumes::{Found, FoundState, Kind, Mode, VolumeId};

impl World {
    /// A plugin lists what is there of its kinds. All of it is uncertain.
    pub fn listed(&mut self, kinds: impl IntoIterator<Item = Kind>, found: Vec<Found>) {
        for found in found {
            match (found.state, &found.pod) {
                (FoundState::Mounted | FoundState::LeftOver, Some(uid)) => {
                    self.found_at(uid.clone(), Mode::FileSystem, &found);
                }
                (FoundState::Mapped, Some(uid)) => {
                    self.found_at(uid.clone(), Mode::Block, &found);
                }
                (FoundState::Staged, _) => self.found_staged(Mode::FileSystem, &found),
                (FoundState::StagedBlock, _) => self.found_staged(Mode::Block, &found),
                // Traces that lead to no pod are nobody's to remove.
                (FoundState::Mounted | FoundState::LeftOver | FoundState::Mapped, None) => {}
            }
        }
        self.listed.extend(kinds);
        self.touched.extend(self.pods.keys().cloned());
        self.doubt();
    }

    fn found_at(&mut self, uid: PodUid, mode: Mode, found: &Found) {
        let Some(kind) = Kind::from_name(&found.kind) else {
            return;
        };
        let place = Place {
            uid,
            kind,
            mode,
            folder: found.folder.clone(),
        };
        let id = found.id.clone().filter(|id| !id.0.is_empty());
        let (id, nameless) = match id.or_else(|| csi_id(kind, found)) {
            Some(id) => (id, false),
            None => (made_up(&place), true),
        };
        let known = self.known.as_ref();
        let strange = known.is_some_and(|known| !known.contains(&place.uid));
        let pod = self.pods.entry(place.uid.clone()).or_default();
        if strange && pod.heard == Heard::Nothing {
            pod.heard = Heard::Release;
        }
        if let Some(mount) = pod.mounts.get_mut(&place) {
            if mount.is_absent() {
                mount.actual = Actual::Uncertain;
            }
            return;
        }
        let mount = Mount {
            id: id.clone(),
            nameless,
            lane: lane(kind, found),
            names: [found.folder.clone()].into(),
            want: None,
            actual: Actual::Uncertain,
            doing: None,
            again: false,
            why: String::new(),
        };
        pod.mounts.insert(place.clone(), Box::new(mount));
        self.shared.entry(id).or_default().users.insert(place);
    }

    fn found_staged(&mut self, mode: Mode, found: &Found) {
        let Some(kind) = Kind::from_name(&found.kind) else {
            return;
        };
        let id = found.id.clone().filter(|id| !id.0.is_empty());
        // Of what cannot be told whose it is, nobody can tell that nobody needs it.
        let Some(id) = id.or_else(|| csi_id(kind, found)) else {
            return;
        };
        let shared = self.shared.entry(id.clone()).or_default();
        if shared.stage == Stage::Absent {
            self.found.insert(id);
            shared.stage = Stage::Found;
            shared.staged = Some(StagedAt {
                kind,
                mode,
                path: found.path.clone(),
                lane: lane(kind, found),
                volume: None,
            });
        }
    }

    /// Pods were heard of: what was found staged may be nobody's now.
    pub(super) fn look_at_found(&mut self) {
        let shared = &self.shared;
        let still = |id: &VolumeId| shared.get(id).is_some_and(|s| s.stage == Stage::Found);
        self.found.retain(still);
        for id in self.found.clone() {
            self.queue.push(Subject::Shared(id));
        }
    }

    /// Whether every pod has said what it wants, so that what none of them named is nobody's.
    pub(super) fn is_all_heard(&self) -> bool {
        let Some(known) = &self.known else {
            return false;
        };
        let heard = |uid: &PodUid| {
            let pod = self.pods.get(uid);
            pod.is_some_and(|pod| pod.heard != Heard::Nothing)
        };
        let claims = |name: &Name| match name {
            Name::At { .. } => false,
            // A claim that is not resolved may be one for this very volume.
            Name::Not(why) => {
                why.uses.is_empty()
                    || why
                        .uses
                        .iter()
                        .any(|uses| uses.kind == "PersistentVolumeClaim")
            }
        };
        known.iter().all(heard) && !self.pods.values().any(|pod| pod.names.values().any(claims))
    }
}

fn csi_id(kind: Kind, found: &Found) -> Option<VolumeId> {
    let told = kind == Kind::Csi && !found.driver.is_empty() && !found.volume_handle.is_empty();
    // One that lives with its pod is not known by its handle.
    let shared = found.pod.is_none();
    (told && shared).then(|| {
        VolumeId(format!(
            "kubernetes.io/csi/{}^{}",
            found.driver, found.volume_handle
        ))
    })
}

fn lane(kind: Kind, found: &Found) -> Lane {
    match kind {
        Kind::Csi => Lane::Backend(kind.as_str(), found.driver.clone()),
        Kind::Nfs => Lane::Backend(kind.as_str(), String::new()),
        Kind::EmptyDir
        | Kind::HostPath
        | Kind::ConfigMap
        | Kind::Secret
        | Kind::Projected
        | Kind::DownwardApi
        | Kind::Local
        | Kind::Image => Lane::Kind(kind.as_str()),
    }
}

fn made_up(place: &Place) -> VolumeId {
    VolumeId(format!(
        "kubernetes.io/{}/{}-{}",
        place.kind.as_str(),
        place.uid,
        place.folder
    ))
}
