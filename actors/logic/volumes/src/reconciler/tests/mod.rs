//! Laws of the reconciler, one by one; [`model`] has them all at once.

mod attached;
mod contents;
mod failures;
mod growth;
mod model;
mod overdue;
mod places;
mod rows;
mod stages;
mod turns;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::*;
use crate::{
    AccessMode, Attachment, CsiVolume, Dependency, EmptyDir, FileProjection, FileSet, Medium,
    MountedVolumes, ReconstructedState, ReconstructedVolume, Relabel, ResolveStep, RetryWhen,
    UnresolvedVolume, Volume, VolumeAccess, VolumeMode, VolumeSource,
};

const SECOND: Duration = Duration::from_secs(1);

#[allow(
    clippy::disallowed_methods,
    reason = "any moment serves as the tests' noon"
)]
fn noon() -> Instant {
    Instant::now()
}

fn volume(id: &str, kind: VolumeKind, source: VolumeSource) -> Volume {
    Volume {
        id: VolumeId(id.to_owned()),
        kind,
        name: id.to_owned(),
        folder: id.to_owned(),
        source,
        access: VolumeAccess::ReadWrite,
        mode: VolumeMode::FileSystem,
        mount_options: Vec::new(),
        ownership: None,
        selinux_label: String::new(),
        attachment: Attachment::NotNeeded,
    }
}

fn empty_dir(id: &str) -> Volume {
    volume(
        id,
        VolumeKind::EmptyDir,
        VolumeSource::EmptyDir(EmptyDir::default()),
    )
}

/// A config map of one file.
fn files(id: &str, data: &str) -> Volume {
    let file = FileProjection {
        data: data.as_bytes().to_vec(),
        mode: 0o644,
        owner: None,
    };
    let set = FileSet {
        medium: Medium::Disk,
        files: [("key".to_owned(), file)].into(),
        ..FileSet::default()
    };
    volume(id, VolumeKind::ConfigMap, VolumeSource::Files(set))
}

/// A persistent volume of the driver `d`.
fn persistent(id: &str) -> Volume {
    persistent_with(id, |_| {})
}

fn persistent_with(id: &str, change: impl FnOnce(&mut CsiVolume)) -> Volume {
    let mut csi = CsiVolume {
        driver: "d".to_owned(),
        volume_handle: id.to_owned(),
        access_mode: Some(AccessMode::ReadWriteMany),
        ..CsiVolume::default()
    };
    change(&mut csi);
    volume(id, VolumeKind::Csi, VolumeSource::Csi(Box::new(csi)))
}

fn missing(claim: &str) -> UnresolvedVolume {
    UnresolvedVolume {
        reason: "FailedMount",
        message: format!("error processing PVC default/{claim}: PVC is not bound"),
        step: ResolveStep::Processing,
        until: RetryWhen::Changed,
        uses: [Dependency::new("PersistentVolumeClaim", "default", claim)].into(),
        attachable: None,
    }
}

fn found(state: ReconstructedState, id: &str, kind: VolumeKind, uid: &str) -> ReconstructedVolume {
    ReconstructedVolume {
        state,
        id: Some(VolumeId(id.to_owned())),
        kind: kind.as_str().to_owned(),
        folder: id.to_owned(),
        pod: Some(uid).filter(|uid| !uid.is_empty()).map(PodUid::from),
        path: PathBuf::from(format!("/found/{id}")),
        driver: "d".to_owned(),
        volume_handle: id.to_owned(),
    }
}

fn abilities() -> impl Iterator<Item = (VolumeKind, KindCapabilities)> {
    StateOfWorld::kinds().map(|kind| {
        let is_driver = kind == VolumeKind::Csi;
        let ability = KindCapabilities {
            staged: is_driver,
            updates: matches!(
                kind,
                VolumeKind::ConfigMap | VolumeKind::Secret | VolumeKind::Projected
            ),
            expand: is_driver,
        };
        (kind, ability)
    })
}

/// What a task does, in two or three words.
fn word(task: &VolumeOperation) -> String {
    match task {
        VolumeOperation::Stage { volume } => format!("stage {}", volume.id),
        VolumeOperation::Unstage(staged) => format!("unstage {}", staged.id),
        VolumeOperation::Mount { place, volume } => format!("mount {} {}", place.uid, volume.id),
        VolumeOperation::Unmount { place, id } => format!("unmount {} {id}", place.uid),
        VolumeOperation::Expand { place, size, .. } => {
            format!("grow {} {} {size}", place.uid, place.folder)
        }
        VolumeOperation::Remove { uid } => format!("remove {uid}"),
    }
}

/// How it ends when nothing goes wrong.
fn well(task: &VolumeOperation) -> OperationResult {
    match task {
        VolumeOperation::Mount { place, .. } => OperationResult::Mounted {
            path: PathBuf::from(format!("/{}/{}", place.uid, place.folder)),
            relabel: Relabel::No,
        },
        VolumeOperation::Stage { .. }
        | VolumeOperation::Unstage(_)
        | VolumeOperation::Unmount { .. }
        | VolumeOperation::Expand { .. }
        | VolumeOperation::Remove { .. } => OperationResult::Done,
    }
}

fn failure(trace: FailureEffect) -> OperationResult {
    OperationResult::Failed {
        message: "no".to_owned(),
        trace,
    }
}

/// A state of world, its clock, and the running operations.
pub(crate) struct Rig {
    world: StateOfWorld,
    now: Instant,
    running: Vec<VolumeOperation>,
}

impl Rig {
    /// Just started: both plugins are there, and have not listed anything.
    fn new() -> Rig {
        let mut world = StateOfWorld::new("edge");
        world.introduce(abilities());
        Rig {
            world,
            now: noon(),
            running: Vec::new(),
        }
    }

    /// Nothing was found on the node.
    pub(crate) fn clean() -> Rig {
        let mut rig = Rig::new();
        rig.list([]);
        rig
    }

    fn list<const N: usize>(&mut self, found: [ReconstructedVolume; N]) {
        self.world.listed(StateOfWorld::kinds(), found.to_vec());
    }

    fn pods(&mut self, uids: &[&str]) {
        self.world
            .pods(uids.iter().map(|uid| PodUid::from(*uid)).collect());
    }

    pub(crate) fn wish(&mut self, uid: &str, volumes: &[Volume]) {
        let wishes = volumes
            .iter()
            .map(|volume| (volume.name.clone(), Ok(volume.clone())));
        self.wish_for(uid, wishes.collect(), ResolveTrigger::Requested);
    }

    fn wish_for(
        &mut self,
        uid: &str,
        wishes: BTreeMap<String, Result<Volume, UnresolvedVolume>>,
        cause: ResolveTrigger,
    ) {
        let wish = |volume| DesiredVolume { volume, grow: None };
        let wishes = wishes
            .into_iter()
            .map(|(name, volume)| (name, volume.map(wish)));
        self.world.set_desired(&uid.into(), wishes.collect(), cause);
    }

    fn release(&mut self, uid: &str) {
        self.world.release(&uid.into());
    }

    /// Begins what is to be begun, and says what that is.
    fn begin(&mut self) -> Vec<String> {
        let tasks = self.world.plan(self.now).tasks;
        let words = tasks.iter().map(word).collect();
        self.running.extend(tasks);
        words
    }

    fn end(&mut self, of: &str, ending: OperationResult) {
        let at = self.running.iter().position(|task| word(task) == of);
        let task = self
            .running
            .remove(at.unwrap_or_else(|| panic!("{of} is not under way")));
        self.world.finish(&task, ending, self.now);
    }

    fn end_well(&mut self, of: &str) {
        let task = self.running.iter().find(|task| word(task) == of);
        let ending = well(task.unwrap_or_else(|| panic!("{of} is not under way")));
        self.end(of, ending);
    }

    /// Lets everything go well until nothing is left to be done; says what was done.
    pub(crate) fn settle(&mut self) -> Vec<String> {
        let mut words = Vec::new();
        loop {
            words.extend(self.begin());
            if self.running.is_empty() {
                return words;
            }
            for task in std::mem::take(&mut self.running) {
                let ending = well(&task);
                self.world.finish(&task, ending, self.now);
            }
        }
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
    }

    pub(crate) fn mounted(&self, uid: &str) -> Option<MountedVolumes> {
        self.world.mounted(&uid.into())
    }

    /// Reasons and messages since the last call.
    pub(crate) fn news(&mut self) -> Vec<String> {
        let news = self.world.take_events().into_iter();
        news.map(|news| format!("{} {}: {}", news.uid, news.reason, news.message))
            .collect()
    }
}

const NONE: [&str; 0] = [];
