//! What is known of pods, of their mounts, and of the volumes behind them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use super::concurrency::ConcurrencyGroup;
use super::content::MountContent;
use super::operation::MountPoint;
use crate::{
    AccessMode, Attachment, Relabel, UnresolvedVolume, Volume, VolumeAccess, VolumeId, VolumeKind,
    VolumeMode, VolumeSource,
};

/// A pod's volumes, desired and actual.
#[derive(Debug, Default)]
pub(super) struct PodVolumes {
    pub(super) demand: PodDemand,
    /// The desired volumes, by the pod's names of them.
    pub(super) names: BTreeMap<String, NamedVolume>,
    /// Boxed: a map has room for eleven, and most pods have one or two.
    pub(super) mounts: BTreeMap<MountPoint, Box<PodMount>>,
    /// The kinds that it may have volumes of; none: of any.
    pub(super) kinds: Option<BTreeSet<VolumeKind>>,
    /// How many are at work within its volumes: nothing is unmounted meanwhile.
    pub(super) subpath_users: usize,
    pub(super) removal: PodRemoval,
    /// Why its directory is still there.
    pub(super) why: String,
}

/// The last desired state of a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum PodDemand {
    /// Nothing: it was only found on the node.
    #[default]
    Unknown,
    /// Its volumes are to be mounted.
    Wanted,
    /// That it wants nothing any more.
    Released,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum PodRemoval {
    #[default]
    No,
    UnderWay,
}

/// One of a pod's own names of volumes.
#[derive(Clone, Debug)]
pub(super) enum NamedVolume {
    /// Several names may have one mount point: entries that claim the same persistent volume.
    At {
        place: MountPoint,
        access: VolumeAccess,
        /// It is mounted, but would not be resolved any more.
        lost: Option<UnresolvedVolume>,
    },
    Unresolved(UnresolvedVolume),
}

/// One volume of one pod.
#[derive(Debug)]
pub(super) struct PodMount {
    /// Of what is there; where nothing is, of what is wanted.
    pub(super) id: VolumeId,
    /// The id was made up, for what was found did not tell it.
    pub(super) nameless: bool,
    pub(super) concurrency_group: ConcurrencyGroup,
    pub(super) names: BTreeSet<String>,
    pub(super) want: Option<DesiredMount>,
    pub(super) actual: MountState,
    /// The content that is being mounted now.
    pub(super) doing: Option<MountContent>,
    /// It is to be mounted again though nothing changed.
    pub(super) again: bool,
    /// The last error.
    pub(super) why: String,
}

#[derive(Clone, Debug)]
pub(super) struct DesiredMount {
    pub(super) content: MountContent,
    /// The size in bytes that it is to be expanded to.
    pub(super) grow: Option<u64>,
}

#[derive(Debug)]
pub(super) enum MountState {
    Absent,
    /// Found, or perhaps half mounted or half unmounted.
    Uncertain,
    Mounted(Box<CompletedMount>),
}

/// A mounted volume, and what was mounted.
#[derive(Debug)]
pub(super) struct CompletedMount {
    pub(super) content: MountContent,
    pub(super) path: PathBuf,
    pub(super) relabel: Relabel,
    /// Its pod may use it: it is expanded if it had to be.
    pub(super) ready: bool,
}

impl PodMount {
    pub(super) fn is_absent(&self) -> bool {
        matches!(self.actual, MountState::Absent)
    }

    pub(super) fn done(&self) -> Option<&CompletedMount> {
        match &self.actual {
            MountState::Mounted(done) => Some(done),
            MountState::Absent | MountState::Uncertain => None,
        }
    }

    /// Mounted, or a mount was begun.
    pub(super) fn is_begun(&self) -> bool {
        !self.is_absent() || self.doing.is_some()
    }

    pub(super) fn wanted(&self) -> Option<&Arc<Volume>> {
        Some(self.want.as_ref()?.content.lean())
    }
}

/// A volume, independent of the pods that use it.
#[derive(Debug, Default)]
pub(super) struct SharedVolume {
    /// The mount points at which it is or may be mounted, or desired.
    pub(super) users: BTreeSet<MountPoint>,
    pub(super) stage: StageState,
    pub(super) staged: Option<StageRecord>,
    pub(super) busy: PendingOperation,
    pub(super) stuck: Option<StuckThread>,
    pub(super) attachment: Option<Attachment>,
    /// The size in bytes that it was expanded to since it was mounted first.
    pub(super) grown: u64,
    /// What the driver refused when it was last to be expanded.
    pub(super) refused: Option<ExpansionRefusal>,
    pub(super) why: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExpansionRefusal {
    /// This size in bytes; another one is tried.
    Size(u64),
    /// Any size while it is in use: it is not tried again until the volume has left the node.
    InUse,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum PendingOperation {
    #[default]
    No,
    Yes,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum StageState {
    #[default]
    Absent,
    /// Perhaps half staged or half unstaged.
    Uncertain,
    /// Found after a restart; which pods want it is not known yet.
    Found,
    Staged,
}

/// How a volume is staged, and where.
#[derive(Clone, Debug)]
pub(super) struct StageRecord {
    pub(super) kind: VolumeKind,
    pub(super) mode: VolumeMode,
    /// Where it was found; else empty.
    pub(super) path: PathBuf,
    pub(super) concurrency_group: ConcurrencyGroup,
    pub(super) volume: Option<Arc<Volume>>,
}

/// A thread of a plugin that does not come back.
#[derive(Clone, Debug)]
pub(super) struct StuckThread {
    pub(super) kind: VolumeKind,
    pub(super) generation: u64,
    pub(super) message: String,
}

impl SharedVolume {
    /// Nothing is known of it any more.
    pub(super) fn is_idle(&self) -> bool {
        self.users.is_empty()
            && self.stage == StageState::Absent
            && self.busy == PendingOperation::No
            && self.stuck.is_none()
    }

    pub(super) fn is_attachable(&self) -> bool {
        self.attachment == Some(Attachment::Attached)
    }
}

/// Whether a single pod may have it at a time.
pub(super) fn is_exclusive(volume: &Volume) -> bool {
    match &volume.source {
        VolumeSource::Csi(csi) => csi.access_mode == Some(AccessMode::ReadWriteOncePod),
        VolumeSource::EmptyDir(_)
        | VolumeSource::HostPath { .. }
        | VolumeSource::Files(_)
        | VolumeSource::Local { .. }
        | VolumeSource::Nfs { .. }
        | VolumeSource::Image => false,
    }
}

/// Whether its driver refreshes it when it is mounted again.
pub(super) fn is_refreshed(volume: &Volume) -> bool {
    match &volume.source {
        VolumeSource::Csi(csi) => csi.republish,
        VolumeSource::EmptyDir(_)
        | VolumeSource::HostPath { .. }
        | VolumeSource::Files(_)
        | VolumeSource::Local { .. }
        | VolumeSource::Nfs { .. }
        | VolumeSource::Image => false,
    }
}

/// Whether it lives and ends with its pod, so that nothing of it is shared.
pub(super) fn is_inline(volume: &Volume) -> bool {
    match &volume.source {
        VolumeSource::Csi(csi) => csi.ephemeral,
        VolumeSource::EmptyDir(_)
        | VolumeSource::HostPath { .. }
        | VolumeSource::Files(_)
        | VolumeSource::Local { .. }
        | VolumeSource::Nfs { .. }
        | VolumeSource::Image => false,
    }
}

/// The label that the whole mount carries, where its driver mounts with one.
pub(super) fn mount_label(volume: &Volume) -> &str {
    match &volume.source {
        VolumeSource::Csi(csi) if csi.selinux_mount => &volume.selinux_label,
        VolumeSource::Csi(_)
        | VolumeSource::EmptyDir(_)
        | VolumeSource::HostPath { .. }
        | VolumeSource::Files(_)
        | VolumeSource::Local { .. }
        | VolumeSource::Nfs { .. }
        | VolumeSource::Image => "",
    }
}
