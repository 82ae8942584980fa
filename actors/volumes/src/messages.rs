//! The messages of the volume manager, and its answers.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kernel::Reply;
use logic_api::pod::volume_stats::VolumeMetrics;
use logic_api::text::env_file::{EnvFilePath, EnvFiles};
use logic_api::types::PodUid;
use logic_volumes::{MountedVolumes, Subpath, VolumeId};

use super::{VolumeCompletion, VolumeTimer, VolumesView};

/// Messages of the volume manager.
#[derive(Debug, strum::IntoStaticStr)]
pub enum Msg {
    /// Mounts a pod's volumes as its definition has them now; answers when all are mounted, or at the deadline
    /// with those that are not. A later request for the same pod answers this one with `Superseded`.
    Mount {
        pod: Arc<Pod>,
        within: Duration,
        reply: Reply<Result<MountedVolumes, NotMounted>>,
    },
    /// Leaves the volumes of a pod that is ending as they are where they cannot be resolved any more: objects may be gone
    /// before the pod.
    Ending { uid: PodUid },
    /// Unmounts the volumes of a pod of which nothing runs any more; answers when they are gone, or at the deadline
    /// with those that are not. Unmounting goes on then.
    Release {
        uid: PodUid,
        within: Duration,
        reply: Reply<Result<(), NotReleased>>,
    },
    /// Binds paths within a pod's mounted volumes for a container; answers with the bound path of each by index.
    Bind {
        uid: PodUid,
        container: String,
        subpaths: Vec<Subpath>,
        reply: Reply<Result<BTreeMap<u32, PathBuf>, SubpathBindError>>,
    },
    /// Reads files of a pod's mounted volumes; answers with those that could be read.
    Read {
        uid: PodUid,
        files: Vec<EnvFilePath>,
        reply: Reply<EnvFiles>,
    },
    /// Sets which pods there are: volumes of any other are left over and removed.
    Pods(BTreeSet<PodUid>),
    /// Has the plugins list their volumes again: there is something on the node of a pod that is gone.
    FindLeftovers,
    /// Mounts volumes that waited for it: the API server has these in the status as in use.
    Reported(BTreeSet<VolumeId>),
    /// Reports everything for the API server again: the actor that passes it on restarted.
    Resync,
    /// Answers a question about volumes.
    Query(VolumeQuery),
    /// Does what a timer of the manager's own is for.
    Due(VolumeTimer),
    /// Takes the result of a task of the manager's own.
    Completed(Box<VolumeCompletion>),
}

/// A question about volumes.
#[derive(Debug)]
pub enum VolumeQuery {
    /// The view for operators.
    View { reply: Reply<VolumesView> },
    /// The names of stuck volumes.
    Stuck { reply: Reply<Vec<String>> },
    /// The last measurements, by pod and the pod's name of the volume.
    Stats {
        reply: Reply<BTreeMap<PodUid, BTreeMap<String, VolumeMetrics>>>,
    },
    /// Measures the volumes on the node's own disk before any others; answers when that is done. Where volumes are not
    /// measured, or too many ask, at once.
    Measure { reply: Reply<()> },
    /// The pods of which a volume is mounted, or may be; none before what earlier lives have left is known.
    PodsWithMounts {
        reply: Reply<Option<BTreeSet<PodUid>>>,
    },
}

impl Msg {
    /// Asks for the view for operators.
    pub fn view(reply: Reply<VolumesView>) -> Msg {
        Msg::Query(VolumeQuery::View { reply })
    }

    /// Asks for the names of stuck volumes.
    pub fn stuck(reply: Reply<Vec<String>>) -> Msg {
        Msg::Query(VolumeQuery::Stuck { reply })
    }

    /// Asks for the last measurements, by pod and the pod's name of the volume.
    pub fn stats(reply: Reply<BTreeMap<PodUid, BTreeMap<String, VolumeMetrics>>>) -> Msg {
        Msg::Query(VolumeQuery::Stats { reply })
    }

    /// Asks for new measurements of the volumes on the node's own disk.
    pub fn measure(reply: Reply<()>) -> Msg {
        Msg::Query(VolumeQuery::Measure { reply })
    }

    /// Asks of which pods a volume is mounted, or may be.
    pub fn pods_with_mounts(reply: Reply<Option<BTreeSet<PodUid>>>) -> Msg {
        Msg::Query(VolumeQuery::PodsWithMounts { reply })
    }
}

/// Why a pod's volumes are not all mounted, with upstream's full text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotMounted {
    /// `Unable to attach or mount volumes: unmounted volumes=[...] ...`
    #[error("{0}")]
    Late(String),
    /// The same text, and retrying is of no use: the node has no room for another attachment.
    #[error("{0}")]
    NoRoom(String),
    #[error("a later definition of the pod replaced this one")]
    Superseded,
    #[error("the pod is being ended")]
    Released,
}

/// The volumes that could not be unmounted yet, with reasons.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotReleased(pub String);

/// Why a path within a volume could not be prepared; its waiting reason is `CreateContainerConfigError`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct SubpathBindError {
    pub message: String,
    /// Whether to retry soon.
    pub transient: Retry,
}

/// Whether a failed request is worth repeating soon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    Soon,
    Later,
}
