//! What is known of pods, of their mounts, and of the volumes behind them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use super::content::Content;
use super::lanes::Lane;
use super::task::Place;
use crate::volumes::{Access, AccessMode, Attachment, Kind, Mode, Relabel, Unresolved, VolumeId};
use crate::volumes::{Source, Volume};

/// A pod, as far as volumes go.
#[derive(Debug, Default)]
pub(super) struct Pod {
    pub(super) heard: Heard,
    /// What it wants, by its own names.
    pub(super) names: BTreeMap<String, Name>,
    /// Boxed: a map has room for eleven, and most pods have one or two.
    pub(super) mounts: BTreeMap<Place, Box<Mount>>,
    /// The kinds that it may have volumes of; none: of any.
    pub(super) kinds: Option<BTreeSet<Kind>>,
    /// How many are at work within its volumes: nothing is unmounted meanwhile.
    pub(super) guests: usize,
    pub(super) removal: Removal,
    /// Why its folder is still there.
    pub(super) why: String,
}

/// What was last heard of a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Heard {
    /// Nothing: it was only found on the node.
    #[default]
    Nothing,
    /// What it wants.
    Wish,
    /// That it wants nothing any more.
    Release,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Removal {
    #[default]
    No,
    UnderWay,
}

/// One of a pod's own names of volumes.
#[derive(Clone, Debug)]
pub(super) enum Name {
    /// Several names may lead to one place: entries that claim the same persistent volume.
    At {
        place: Place,
        access: Access,
        /// It is mounted, but would not be resolved any more.
        lost: Option<Unresolved>,
    },
    Not(Unresolved),
}

/// One volume of one pod.
#[derive(Debug)]
pub(super) struct Mount {
    /// Of what is there; where nothing is, of what is wanted.
    pub(super) id: VolumeId,
    /// The id was made up, for what was found did not tell it.
    pub(super) nameless: bool,
    pub(super) lane: Lane,
    pub(super) names: BTreeSet<String>,
    pub(super) want: Option<Wanted>,
    pub(super) actual: Actual,
    /// What is being mounted now.
    pub(super) doing: Option<Content>,
    /// It is to be mounted again though nothing changed.
    pub(super) again: bool,
    /// What went wrong last.
    pub(super) why: String,
}

#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub(super) content: Content,
    /// Bytes that it is to grow to.
    pub(super) grow: Option<u64>,
}

#[derive(Debug)]
pub(super) enum Actual {
    Absent,
    /// Found, or perhaps half mounted or half unmounted.
    Uncertain,
    Mounted(Box<Done>),
}

/// A mounted volume.
#[derive(Debug)]
pub(super) struct Done {
    pub(super) content: Content,
    pub(super) path: PathBuf,
    pub(super) relabel: Relabel,
    /// Its pod may use it: it has grown if it had to.
    pub(super) ready: bool,
}

impl Mount {
    pub(super) fn is_absent(&self) -> bool {
        matches!(self.actual, Actual::Absent)
    }

    pub(super) fn done(&self) -> Option<&Done> {
        match &self.actual {
            Actual::Mounted(done) => Some(done),
            Actual::Absent | Actual::Uncertain => None,
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

/// A volume, whoever uses it.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// The places that it is or may be mounted at, or that want it.
    pub(super) users: BTreeSet<Place>,
    pub(super) stage: Stage,
    pub(super) staged: Option<StagedAt>,
    pub(super) busy: Busy,
    pub(super) stuck: Option<Stuck>,
    pub(super) attachment: Option<Attachment>,
    /// Bytes that it has grown to since it was mounted first.
    pub(super) grown: u64,
    /// Bytes that it will not grow to.
    pub(super) refused: Option<u64>,
    pub(super) why: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Busy {
    #[default]
    No,
    Yes,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Stage {
    #[default]
    Absent,
    /// Perhaps half staged or half unstaged.
    Uncertain,
    /// Found, and nobody knows yet who wants it.
    Found,
    Staged,
}

/// What is staged, and where.
#[derive(Clone, Debug)]
pub(super) struct StagedAt {
    pub(super) kind: Kind,
    pub(super) mode: Mode,
    /// Where it was found; else empty.
    pub(super) path: PathBuf,
    pub(super) lane: Lane,
    pub(super) volume: Option<Arc<Volume>>,
}

/// A thread of a plugin that does not come back.
#[derive(Clone, Debug)]
pub(super) struct Stuck {
    pub(super) kind: Kind,
    pub(super) generation: u64,
    pub(super) message: String,
}

impl Shared {
    /// Nothing is known of it any more.
    pub(super) fn is_idle(&self) -> bool {
        self.users.is_empty()
            && self.stage == Stage::Absent
            && self.busy == Busy::No
            && self.stuck.is_none()
    }

    pub(super) fn is_attachable(&self) -> bool {
        self.attachment == Some(Attachment::Attached)
    }
}

/// Whether a single pod may have it at a time.
pub(super) fn is_exclusive(volume: &Volume) -> bool {
    match &volume.source {
        Source::Csi(csi) => csi.access_mode == Some(AccessMode::ReadWriteOncePod),
        Source::EmptyDir(_)
        | Source::HostPath { .. }
        | Source::Files(_)
        | Source::Local { .. }
        | Source::Nfs { .. }
        | Source::Image => false,
    }
}

/// Whether its driver refreshes it when it is mounted again.
pub(super) fn is_refreshed(volume: &Volume) -> bool {
    match &volume.source {
        Source::Csi(csi) => csi.republish,
        Source::EmptyDir(_)
        | Source::HostPath { .. }
        | Source::Files(_)
        | Source::Local { .. }
        | Source::Nfs { .. }
        | Source::Image => false,
    }
}

/// Whether it lives and ends with its pod, so that nothing of it is shared.
pub(super) fn is_inline(volume: &Volume) -> bool {
    match &volume.source {
        Source::Csi(csi) => csi.ephemeral,
        Source::EmptyDir(_)
        | Source::HostPath { .. }
        | Source::Files(_)
        | Source::Local { .. }
        | Source::Nfs { .. }
        | Source::Image => false,
    }
}

/// The label that the whole mount carries, where its driver mounts with one.
pub(super) fn mount_label(volume: &Volume) -> &str {
    match &volume.source {
        Source::Csi(csi) if csi.selinux_mount => &volume.selinux_label,
        Source::Csi(_)
        | Source::EmptyDir(_)
        | Source::HostPath { .. }
        | Source::Files(_)
        | Source::Local { .. }
        | Source::Nfs { .. }
        | Source::Image => "",
    }
}
