//! What the plugins are asked for, and what they answer: volumes, and where they are to be.

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

/// A volume that a pod is to find at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountSpec {
    pub volume: Volume,
    pub pod: MountPod,
    pub target: PathBuf,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountResult {
    pub path: PathBuf,
    pub relabel: Relabel,
    /// What a person should know although it worked.
    pub warnings: Vec<String>,
}

/// A volume of a pod that is to be taken away; known by its place alone, for it may have been found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnmountTarget {
    pub plugin: StoragePlugin,
    pub id: VolumeId,
    /// As upstream calls its plugin.
    pub kind: String,
    pub folder: String,
    pub uid: PodUid,
    pub target: PathBuf,
}

/// A volume that is staged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StagedVolume {
    pub plugin: StoragePlugin,
    pub id: VolumeId,
    pub kind: String,
    /// Empty for what this agent staged.
    pub path: PathBuf,
    pub mode: VolumeMode,
    pub volume: Option<Volume>,
}

/// A volume that is to be measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeasureTarget {
    pub plugin: StoragePlugin,
    pub id: VolumeId,
    pub kind: String,
    pub folder: String,
    pub path: PathBuf,
    pub driver: String,
    pub volume_handle: String,
}

/// A volume that is to grow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpandSpec {
    pub volume: Volume,
    /// None where it is mounted nowhere.
    pub path: Option<PathBuf>,
    /// Bytes.
    pub size: u64,
}

/// What a plugin says of a kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StorageCapabilities {
    pub staged: bool,
    pub block: bool,
    pub expand: bool,
    pub updates: bool,
}
