//! What the plugins find on the node, and what the reconciler makes of it after a restart.

use logic_api::types::PodUid;

use super::StateOfWorld;
use super::actual_state::{MountState, NamedVolume, PodDemand, PodMount, StageRecord, StageState};
use super::concurrency::ConcurrencyGroup;
use super::operation::{MountPoint, OperationTarget};
use crate::{ReconstructedState, ReconstructedVolume, VolumeId, VolumeKind, VolumeMode};

impl StateOfWorld {
    /// A plugin lists what is there of its kinds. All of it is uncertain.
    pub fn listed(
        &mut self,
        kinds: impl IntoIterator<Item = VolumeKind>,
        found: Vec<ReconstructedVolume>,
    ) {
        for found in found {
            match (found.state, &found.pod) {
                (ReconstructedState::Mounted | ReconstructedState::LeftOver, Some(uid)) => {
                    self.reconstruct_mount(uid.clone(), VolumeMode::FileSystem, &found);
                }
                (ReconstructedState::Mapped, Some(uid)) => {
                    self.reconstruct_mount(uid.clone(), VolumeMode::Block, &found);
                }
                (ReconstructedState::Staged, _) => {
                    self.reconstruct_staged(VolumeMode::FileSystem, &found)
                }
                (ReconstructedState::StagedBlock, _) => {
                    self.reconstruct_staged(VolumeMode::Block, &found)
                }
                // Mounts that belong to no known pod path are left alone.
                (
                    ReconstructedState::Mounted
                    | ReconstructedState::LeftOver
                    | ReconstructedState::Mapped,
                    None,
                ) => {}
            }
        }
        self.plugins.listed.extend(kinds);
        self.output.touched.extend(self.pods.keys().cloned());
        self.requeue_all();
    }

    fn reconstruct_mount(&mut self, uid: PodUid, mode: VolumeMode, found: &ReconstructedVolume) {
        let Some(kind) = VolumeKind::from_name(&found.kind) else {
            return;
        };
        let place = MountPoint {
            uid,
            kind,
            mode,
            folder: found.folder.clone(),
        };
        let id = found.id.clone().filter(|id| !id.0.is_empty());
        let (id, nameless) = match id.or_else(|| csi_id(kind, found)) {
            Some(id) => (id, false),
            None => (placeholder_id(&place), true),
        };
        let known = self.pods_on_node.known.as_ref();
        let strange = known.is_some_and(|known| !known.contains(&place.uid));
        let pod = self.pods.entry(place.uid.clone()).or_default();
        if strange && pod.demand == PodDemand::Unknown {
            pod.demand = PodDemand::Released;
        }
        if let Some(mount) = pod.mounts.get_mut(&place) {
            if mount.is_absent() {
                mount.actual = MountState::Uncertain;
            }
            return;
        }
        let mount = PodMount {
            id: id.clone(),
            nameless,
            concurrency_group: lane(kind, found),
            names: [found.folder.clone()].into(),
            want: None,
            actual: MountState::Uncertain,
            doing: None,
            again: false,
            why: String::new(),
        };
        pod.mounts.insert(place.clone(), Box::new(mount));
        self.shared.entry(id).or_default().users.insert(place);
    }

    fn reconstruct_staged(&mut self, mode: VolumeMode, found: &ReconstructedVolume) {
        let Some(kind) = VolumeKind::from_name(&found.kind) else {
            return;
        };
        let id = found.id.clone().filter(|id| !id.0.is_empty());
        // A volume whose owner can't be told may be needed.
        let Some(id) = id.or_else(|| csi_id(kind, found)) else {
            return;
        };
        let shared = self.shared.entry(id.clone()).or_default();
        if shared.stage == StageState::Absent {
            self.found.insert(id);
            shared.stage = StageState::Found;
            shared.staged = Some(StageRecord {
                kind,
                mode,
                path: found.path.clone(),
                concurrency_group: lane(kind, found),
                volume: None,
            });
        }
    }

    /// The desired pods changed: what was found staged may be unclaimed now.
    pub(super) fn requeue_unclaimed(&mut self) {
        let shared = &self.shared;
        let still = |id: &VolumeId| shared.get(id).is_some_and(|s| s.stage == StageState::Found);
        self.found.retain(still);
        for id in self.found.clone() {
            self.queue.push(OperationTarget::Volume(id));
        }
    }

    /// Whether the volumes of every pod are resolved, so that what none of them named is unclaimed.
    pub(super) fn all_pods_resolved(&self) -> bool {
        let Some(known) = &self.pods_on_node.known else {
            return false;
        };
        let heard = |uid: &PodUid| {
            let pod = self.pods.get(uid);
            pod.is_some_and(|pod| pod.demand != PodDemand::Unknown)
        };
        let claims = |name: &NamedVolume| match name {
            NamedVolume::At { .. } => false,
            // A claim that is not resolved may be one for this very volume.
            NamedVolume::Unresolved(why) => {
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

fn csi_id(kind: VolumeKind, found: &ReconstructedVolume) -> Option<VolumeId> {
    let event =
        kind == VolumeKind::Csi && !found.driver.is_empty() && !found.volume_handle.is_empty();
    // One that lives with its pod is not known by its handle.
    let shared = found.pod.is_none();
    (event && shared).then(|| {
        VolumeId(format!(
            "kubernetes.io/csi/{}^{}",
            found.driver, found.volume_handle
        ))
    })
}

fn lane(kind: VolumeKind, found: &ReconstructedVolume) -> ConcurrencyGroup {
    match kind {
        VolumeKind::Csi => ConcurrencyGroup::Backend(kind.as_str(), found.driver.clone()),
        VolumeKind::Nfs => ConcurrencyGroup::Backend(kind.as_str(), String::new()),
        VolumeKind::EmptyDir
        | VolumeKind::HostPath
        | VolumeKind::ConfigMap
        | VolumeKind::Secret
        | VolumeKind::Projected
        | VolumeKind::DownwardApi
        | VolumeKind::Local
        | VolumeKind::Image => ConcurrencyGroup::Kind(kind.as_str()),
    }
}

fn placeholder_id(place: &MountPoint) -> VolumeId {
    VolumeId(format!(
        "kubernetes.io/{}/{}-{}",
        place.kind.as_str(),
        place.uid,
        place.folder
    ))
}
