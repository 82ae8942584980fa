//! Desired and actual mounts of all pods.
//!
//! - **Owns** which volumes are wanted by which pods, what is mounted, and what is under way.
//! - **Hears** workers that want a pod's volumes or are done with them, the storage plugins' answers and news of
//!   their drivers, changes of objects, the directory's word of which pods there are.
//! - **Tells** the recorder what failed, and the storage plugins' hosts which process is stuck.
//! - **Never** works on one volume twice at once, unmounts what a pod may still use, or touches a volume's path: only
//!   storage plugins do.
//!
//! Upstream: pkg/kubelet/volumemanager and pkg/volume/util/operationexecutor (1.36). Decisions: `logic::volumes`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kernel::Reply;
use logic::env_file::{EnvFiles, Place};
use logic::types::PodUid;
use logic::volumes::{Figures, Mounted, Subpath};
use serde::{Deserialize, Serialize};

/// Every pod at once may come with what it wants, and every operation with its end.
pub const MAILBOX: usize = 4096;

/// What the keeper of volumes is told.
#[derive(Debug, strum::IntoStaticStr)]
pub enum Msg {
    /// Wants a pod's volumes mounted, as its definition now has them; answers when all are, or at the end of the time
    /// with what is not. A later wish for the same pod answers the earlier one with `Superseded`.
    Mount {
        pod: Arc<Pod>,
        within: Duration,
        reply: Reply<Result<Mounted, NotMounted>>,
    },
    /// Nothing of the pod runs any more: unmounts its volumes; answers when they are gone, or at the end of the time
    /// with what is not. Goes on unmounting then.
    Release {
        uid: PodUid,
        within: Duration,
        reply: Reply<Result<(), NotReleased>>,
    },
    /// Makes paths within a pod's mounted volumes ready for a container; answers with the path of each by index.
    Bind {
        uid: PodUid,
        container: String,
        subpaths: Vec<Subpath>,
        reply: Reply<Result<BTreeMap<u32, PathBuf>, BindError>>,
    },
    /// Reads files of a pod's mounted volumes; answers with what could be read.
    Read {
        uid: PodUid,
        files: Vec<Place>,
        reply: Reply<EnvFiles>,
    },
    /// Learns which pods there are: what belongs to no other is left over and removed.
    Pods(BTreeSet<PodUid>),
    /// Answers with everything that an operator may want to see.
    View { reply: Reply<View> },
    /// Answers with the last figures of each volume of each pod, by the pod's name of it.
    Stats {
        reply: Reply<BTreeMap<PodUid, BTreeMap<String, Figures>>>,
    },
}

/// Why a pod's volumes are not all mounted; upstream's text in full.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotMounted {
    /// `Unable to attach or mount volumes: unmounted volumes=[...] ...`
    #[error("{0}")]
    Late(String),
    #[error("a later definition of the pod replaced this one")]
    Superseded,
    #[error("the pod is being ended")]
    Released,
}

/// Which volumes could not be taken away yet, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotReleased(pub String);

/// Why a path within a volume could not be prepared; its waiting reason is `CreateContainerConfigError`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct BindError {
    pub message: String,
    pub transient: Retry,
}

/// Whether to ask again soon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    Soon,
    Later,
}

/// What an operator sees.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct View {
    pub volumes: Vec<Row>,
    /// The drivers that registered: the `CSINode` object's `spec.drivers`, as JSON.
    pub csi_node: serde_json::Value,
    /// Upstream's `status.volumesInUse`.
    pub in_use: Vec<String>,
    /// What hangs, by name: the node condition `VolumesStuck`.
    pub stuck: Vec<String>,
}

/// One volume of one pod.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Row {
    pub pod: String,
    pub volume: String,
    pub kind: String,
    pub id: String,
    /// `Mounted`, `Mounting`, `Waiting`, `Unmounting`, `Stuck`, `Left over`
    pub state: String,
    /// Why it is not mounted.
    pub why: String,
    pub path: String,
    pub figures: Figures,
}
