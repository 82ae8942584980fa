//! What the world asks to be done, and what it is told of the end.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::types::{PodUid, Weight};
use crate::volumes::{Access, Kind, Mode, Relabel, Volume, VolumeId};

/// Where a pod has a volume, or is to have it: upstream's folder of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub uid: PodUid,
    pub kind: Kind,
    pub mode: Mode,
    /// The name of the volume's folder.
    pub folder: String,
}

/// What a plugin says of a kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ability {
    /// It is staged before it is mounted.
    pub staged: bool,
    /// It may be mounted again with new content.
    pub updates: bool,
    pub expand: bool,
}

/// Something to be done. There is at most one at a time for one volume.
#[derive(Clone, Debug)]
pub enum Task {
    Stage {
        volume: Arc<Volume>,
    },
    Unstage(Box<Unstage>),
    /// Mounts the volume, or maps it if it is a raw one.
    Mount {
        place: Place,
        volume: Arc<Volume>,
    },
    /// Takes away what is bound from within the volume, then the volume.
    Unmount {
        place: Place,
        id: VolumeId,
    },
    Grow {
        place: Place,
        volume: Arc<Volume>,
        path: PathBuf,
        /// Bytes.
        size: u64,
    },
    /// Removes what is left of a pod.
    Remove {
        uid: PodUid,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unstage {
    pub id: VolumeId,
    pub kind: Kind,
    pub mode: Mode,
    /// Where it was found; empty for what was staged by this agent.
    pub path: PathBuf,
    /// As it was staged; none for what was found.
    pub volume: Option<Arc<Volume>>,
}

/// How a task ended.
#[derive(Clone, Debug)]
pub enum Ending {
    Done,
    /// Of `Mount`.
    Mounted {
        path: PathBuf,
        relabel: Relabel,
    },
    Failed {
        message: String,
        trace: Trace,
    },
    /// A thread of the plugin was given up over it.
    Stuck {
        /// The plugin's process that has it.
        generation: u64,
        message: String,
    },
}

/// What a failure may have left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trace {
    /// Nothing was begun.
    Nothing,
    /// Nothing was begun, and the same will be said as long as nobody changes anything.
    Refusal,
    /// It may be half done.
    Something,
}

/// What a person should hear about a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct News {
    pub uid: PodUid,
    pub weight: Weight,
    pub reason: &'static str,
    pub message: String,
}

/// What a task is about; no two of one are under way at once.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Subject {
    Shared(VolumeId),
    Mount(Place),
    Pod(PodUid),
}

/// What fails and succeeds by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Verb {
    Stage,
    Unstage,
    Mount,
    Unmount,
    Grow,
    Remove,
}

impl Verb {
    pub(super) const ALL: [Verb; 6] = [
        Verb::Stage,
        Verb::Unstage,
        Verb::Mount,
        Verb::Unmount,
        Verb::Grow,
        Verb::Remove,
    ];
}

/// A driver's call has two minutes upstream; the plugin around it needs a moment too.
const SLOW: Duration = Duration::from_secs(125);
/// Nothing but the node's own disk and kernel.
const QUICK: Duration = Duration::from_secs(30);
/// Every file of a large volume may have to change its group.
const WALK: Duration = Duration::from_secs(20 * 60);
/// Every file of an emptyDir may have to be deleted.
const DELETION: Duration = Duration::from_secs(10 * 60);

impl Task {
    /// After this time it is taken for stuck.
    pub fn within(&self) -> Duration {
        match self {
            Task::Stage { volume } | Task::Mount { volume, .. } => for_volume(volume),
            Task::Unmount { place, .. } => match place.kind {
                Kind::EmptyDir => DELETION,
                Kind::Csi | Kind::Nfs | Kind::Local => SLOW,
                Kind::HostPath
                | Kind::ConfigMap
                | Kind::Secret
                | Kind::Projected
                | Kind::DownwardApi
                | Kind::Image => QUICK,
            },
            Task::Unstage(_) | Task::Grow { .. } => SLOW,
            Task::Remove { .. } => DELETION,
        }
    }

    pub(super) fn subject(&self) -> Subject {
        match self {
            Task::Stage { volume } => Subject::Shared(volume.id.clone()),
            Task::Unstage(staged) => Subject::Shared(staged.id.clone()),
            Task::Mount { place, .. } | Task::Unmount { place, .. } | Task::Grow { place, .. } => {
                Subject::Mount(place.clone())
            }
            Task::Remove { uid } => Subject::Pod(uid.clone()),
        }
    }

    pub(super) fn verb(&self) -> Verb {
        match self {
            Task::Stage { .. } => Verb::Stage,
            Task::Unstage(_) => Verb::Unstage,
            Task::Mount { .. } => Verb::Mount,
            Task::Unmount { .. } => Verb::Unmount,
            Task::Grow { .. } => Verb::Grow,
            Task::Remove { .. } => Verb::Remove,
        }
    }

    /// The volume that it is about.
    pub fn volume(&self) -> Option<&VolumeId> {
        match self {
            Task::Stage { volume } | Task::Mount { volume, .. } | Task::Grow { volume, .. } => {
                Some(&volume.id)
            }
            Task::Unstage(staged) => Some(&staged.id),
            Task::Unmount { id, .. } => Some(id),
            Task::Remove { .. } => None,
        }
    }
}

fn for_volume(volume: &Volume) -> Duration {
    let files = match volume.kind {
        Kind::Csi | Kind::Nfs | Kind::Local => SLOW,
        Kind::EmptyDir
        | Kind::HostPath
        | Kind::ConfigMap
        | Kind::Secret
        | Kind::Projected
        | Kind::DownwardApi
        | Kind::Image => return QUICK,
    };
    let walked = volume.ownership.is_some() && volume.access == Access::ReadWrite;
    if walked { WALK } else { files }
}
