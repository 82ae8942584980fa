//! The reconciler's operations and their results.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use logic_api::types::{EventLevel, PodUid};

use crate::{Relabel, Volume, VolumeAccess, VolumeId, VolumeKind, VolumeMode};

/// Where a pod has a volume mounted, or is to have it: upstream's directory of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MountPoint {
    pub uid: PodUid,
    pub kind: VolumeKind,
    pub mode: VolumeMode,
    /// The name of the volume's directory.
    pub folder: String,
}

/// A plugin's capabilities for one kind of volumes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KindCapabilities {
    /// It is staged before it is mounted.
    pub staged: bool,
    /// It may be mounted again with new content.
    pub updates: bool,
    pub expand: bool,
}

/// Something to be done. There is at most one at a time for one volume.
#[derive(Clone, Debug)]
pub enum VolumeOperation {
    Stage {
        volume: Arc<Volume>,
    },
    Unstage(Box<UnstageOperation>),
    /// Mounts the volume, or maps it if it is a raw one.
    Mount {
        place: MountPoint,
        volume: Arc<Volume>,
    },
    /// Takes away what is bound from within the volume, then the volume.
    Unmount {
        place: MountPoint,
        id: VolumeId,
    },
    Expand {
        place: MountPoint,
        volume: Arc<Volume>,
        path: PathBuf,
        /// The wanted size in bytes.
        size: u64,
    },
    /// Removes what is left of a pod.
    Remove {
        uid: PodUid,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnstageOperation {
    pub id: VolumeId,
    pub kind: VolumeKind,
    pub mode: VolumeMode,
    /// Where it was found; empty for what was staged by this agent.
    pub path: PathBuf,
    /// As it was staged; none if it was found after a restart.
    pub volume: Option<Arc<Volume>>,
}

/// How a task ended.
#[derive(Clone, Debug)]
pub enum OperationResult {
    Done,
    /// Of `PodMount`.
    Mounted {
        path: PathBuf,
        relabel: Relabel,
    },
    Failed {
        message: String,
        trace: FailureEffect,
    },
    /// A thread of the plugin was given up over it.
    Stuck {
        /// The plugin's process that has it.
        generation: u64,
        message: String,
    },
}

/// What state a failed operation may have left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureEffect {
    /// The operation was not begun; of an expansion: the driver refused it for a volume in use.
    Nothing,
    /// Nothing was begun, and the result stays the same until the pod, the volume or the node is changed.
    Refusal,
    /// It may be half done.
    Something,
}

/// An event for a pod's user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodVolumeEvent {
    pub uid: PodUid,
    pub weight: EventLevel,
    /// One word, as in an event: `FailedMount`.
    pub reason: &'static str,
    /// In upstream's text.
    pub message: String,
}

/// The target of an operation; there is at most one operation at a time for each.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum OperationTarget {
    Volume(VolumeId),
    Mount(MountPoint),
    Pod(PodUid),
}

/// The kind of an operation: back-off is counted for each by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum OperationKind {
    Stage,
    Unstage,
    Mount,
    Unmount,
    Expand,
    Remove,
}

impl OperationKind {
    pub(super) const ALL: [OperationKind; 6] = [
        OperationKind::Stage,
        OperationKind::Unstage,
        OperationKind::Mount,
        OperationKind::Unmount,
        OperationKind::Expand,
        OperationKind::Remove,
    ];
}

/// A driver's call has two minutes upstream; the plugin around it needs a moment too.
const DRIVER_TIMEOUT: Duration = Duration::from_secs(125);
/// Nothing but the node's own disk and kernel.
const LOCAL_TIMEOUT: Duration = Duration::from_secs(30);
/// Every file of a large volume may have to change its group.
const OWNERSHIP_TIMEOUT: Duration = Duration::from_secs(20 * 60);
/// Every file of an emptyDir may have to be deleted.
const DELETION_TIMEOUT: Duration = Duration::from_secs(10 * 60);

impl VolumeOperation {
    /// After this time it is taken for stuck.
    pub fn within(&self) -> Duration {
        match self {
            VolumeOperation::Stage { volume } | VolumeOperation::Mount { volume, .. } => {
                for_volume(volume)
            }
            VolumeOperation::Unmount { place, .. } => match place.kind {
                VolumeKind::EmptyDir => DELETION_TIMEOUT,
                VolumeKind::Csi | VolumeKind::Nfs | VolumeKind::Local => DRIVER_TIMEOUT,
                VolumeKind::HostPath
                | VolumeKind::ConfigMap
                | VolumeKind::Secret
                | VolumeKind::Projected
                | VolumeKind::DownwardApi
                | VolumeKind::Image => LOCAL_TIMEOUT,
            },
            VolumeOperation::Unstage(_) | VolumeOperation::Expand { .. } => DRIVER_TIMEOUT,
            VolumeOperation::Remove { .. } => DELETION_TIMEOUT,
        }
    }

    pub(super) fn subject(&self) -> OperationTarget {
        match self {
            VolumeOperation::Stage { volume } => OperationTarget::Volume(volume.id.clone()),
            VolumeOperation::Unstage(staged) => OperationTarget::Volume(staged.id.clone()),
            VolumeOperation::Mount { place, .. }
            | VolumeOperation::Unmount { place, .. }
            | VolumeOperation::Expand { place, .. } => OperationTarget::Mount(place.clone()),
            VolumeOperation::Remove { uid } => OperationTarget::Pod(uid.clone()),
        }
    }

    pub(super) fn verb(&self) -> OperationKind {
        match self {
            VolumeOperation::Stage { .. } => OperationKind::Stage,
            VolumeOperation::Unstage(_) => OperationKind::Unstage,
            VolumeOperation::Mount { .. } => OperationKind::Mount,
            VolumeOperation::Unmount { .. } => OperationKind::Unmount,
            VolumeOperation::Expand { .. } => OperationKind::Expand,
            VolumeOperation::Remove { .. } => OperationKind::Remove,
        }
    }

    /// The volume that it is about.
    pub fn volume(&self) -> Option<&VolumeId> {
        match self {
            VolumeOperation::Stage { volume }
            | VolumeOperation::Mount { volume, .. }
            | VolumeOperation::Expand { volume, .. } => Some(&volume.id),
            VolumeOperation::Unstage(staged) => Some(&staged.id),
            VolumeOperation::Unmount { id, .. } => Some(id),
            VolumeOperation::Remove { .. } => None,
        }
    }
}

fn for_volume(volume: &Volume) -> Duration {
    let files = match volume.kind {
        VolumeKind::Csi | VolumeKind::Nfs | VolumeKind::Local => DRIVER_TIMEOUT,
        VolumeKind::EmptyDir
        | VolumeKind::HostPath
        | VolumeKind::ConfigMap
        | VolumeKind::Secret
        | VolumeKind::Projected
        | VolumeKind::DownwardApi
        | VolumeKind::Image => return LOCAL_TIMEOUT,
    };
    match changes_ownership(volume) {
        true => OWNERSHIP_TIMEOUT,
        false => files,
    }
}

/// Whether a mount may end with a walk over all files of the volume, to change their group.
pub(super) fn changes_ownership(volume: &Volume) -> bool {
    volume.ownership.is_some() && volume.access == VolumeAccess::ReadWrite
}
