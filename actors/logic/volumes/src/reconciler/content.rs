//! What a volume holds, as far as it is needed: the bytes of files only until they are mounted.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use crate::{FileSet, Volume, VolumeSource};

/// A volume as it is wanted, or as it was mounted.
///
/// A node's thousand pods may all mount the same megabyte: once it is mounted, what is left of it is a fingerprint.
#[derive(Clone, Debug)]
pub(super) struct MountContent {
    /// Without the files.
    lean: Arc<Volume>,
    /// With them; none where there are none, or where they are not needed any more.
    whole: Option<Arc<Volume>>,
    print: u64,
}

impl MountContent {
    pub(super) fn new(mut volume: Volume) -> Self {
        let VolumeSource::Files(set) = &mut volume.source else {
            return MountContent {
                lean: Arc::new(volume),
                whole: None,
                print: 0,
            };
        };
        let print = print(set);
        let files = FileSet {
            medium: set.medium,
            files: std::mem::take(&mut set.files),
            mount_points: set.mount_points.clone(),
        };
        let lean = Arc::new(volume.clone());
        volume.source = VolumeSource::Files(files);
        MountContent {
            lean,
            whole: Some(Arc::new(volume)),
            print,
        }
    }

    /// What is known of the volume beside its files.
    pub(super) fn lean(&self) -> &Arc<Volume> {
        &self.lean
    }

    /// The volume as a plugin is given it, if its files are still here.
    pub(super) fn whole(&self) -> Option<Arc<Volume>> {
        match (&self.lean.source, &self.whole) {
            (_, Some(whole)) => Some(whole.clone()),
            (VolumeSource::Files(_), None) => None,
            (
                VolumeSource::EmptyDir(_)
                | VolumeSource::HostPath { .. }
                | VolumeSource::Local { .. }
                | VolumeSource::Nfs { .. }
                | VolumeSource::Csi(_)
                | VolumeSource::Image,
                None,
            ) => Some(self.lean.clone()),
        }
    }

    pub(super) fn is_same(&self, other: &MountContent) -> bool {
        self.print == other.print && self.lean == other.lean
    }

    /// Drops the files.
    pub(super) fn slim(&mut self) {
        self.whole = None;
    }
}

fn print(set: &FileSet) -> u64 {
    let mut hasher = DefaultHasher::new();
    for (path, file) in &set.files {
        (path, &file.data, file.mode, file.owner).hash(&mut hasher);
    }
    hasher.finish()
}
