//! The arguments and results of the storage plugins' calls.

use std::path::PathBuf;

use logic_api::types::PodUid;
use logic_volumes::{Relabel, Volume, VolumeId, VolumeMode};

use super::StoragePlugin;

/// The pod that a volume is mounted for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MountPod {
    pub uid: PodUid,
    pub namespace: String,
    pub name: String,
    pub service_account: String,
}

/// A volume to mount for a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountSpec {
    pub volume: Volume,
    pub pod: MountPod,
    /// Where the pod's volume is to be.
    pub target: PathBuf,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountResult {
    /// Where it is; a link, or the target itself.
    pub path: PathBuf,
    pub relabel: Relabel,
    /// Problems to report although the mount succeeded.
    pub warnings: Vec<String>,
}

/// A volume to unmount for a pod; identified by its paths, since it may have been reconstructed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnmountTarget {
    pub plugin: StoragePlugin,
    pub id: VolumeId,
    /// Upstream's name of the volume plugin.
    pub kind: String,
    /// The name of its folder below the pod's.
    pub folder: String,
    pub uid: PodUid,
    pub target: PathBuf,
}

/// A staged volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StagedVolume {
    pub plugin: StoragePlugin,
    pub id: VolumeId,
    pub kind: String,
    /// The staging path of a reconstructed volume; empty for one that this agent staged.
    pub path: PathBuf,
    pub mode: VolumeMode,
    /// None for one that was found staged: its definition is not known.
    pub volume: Option<Volume>,
}

/// A volume to measure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeasureTarget {
    pub plugin: StoragePlugin,
    pub id: VolumeId,
    pub kind: String,
    pub folder: String,
    pub path: PathBuf,
    /// Empty for kinds without one.
    pub driver: String,
    /// The driver's own id of the volume.
    pub volume_handle: String,
}

/// A volume to expand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpandSpec {
    pub volume: Volume,
    /// Where it is mounted; none if it is not.
    pub path: Option<PathBuf>,
    /// The new size in bytes.
    pub size: u64,
}

/// What a plugin can do with a kind of volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StorageCapabilities {
    /// A volume is staged once for all its pods on the node.
    pub staged: bool,
    /// Raw block volumes are served.
    pub block: bool,
    /// A volume can grow while it is mounted.
    pub expand: bool,
    /// A mounted volume's files can be replaced.
    pub updates: bool,
}
