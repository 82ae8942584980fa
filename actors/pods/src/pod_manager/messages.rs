//! The messages of the pod manager.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use kernel::{Recipient, Reply};
use logic_api::types::{PodFailure, PodUid};
use logic_placement::devices::{DeviceInventory, PreferenceQuestion};
use logic_pods::admission::NodeShutdown;
use logic_resources::container_gc::Standings;
use logic_resources::thresholds::Signal;
use serde::Serialize;

use super::pod_folders::KeptFolders;
use super::{Leftovers, PodLookup};
use crate::runtime::pleg::RuntimeReport;
use crate::worker::WorkerReport;

/// The sources of desired pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PodSource {
    /// Manifests in a folder or file (`staticPodPath`).
    File,
    /// Manifests from a URL (`staticPodURL`).
    Http,
    /// The API server.
    Api,
}

/// Messages of the pod manager.
#[derive(Debug, strum::IntoStaticStr)]
pub enum Msg {
    /// Replaces the desired pods of this source.
    SetPods {
        source: PodSource,
        pods: Vec<Arc<Pod>>,
    },
    /// Replaces the refused manifests of this source.
    SetRefused {
        source: PodSource,
        manifests: RefusedManifests,
    },
    /// Runs these API pods from the offline checkpoint: the API has not answered yet, so no other pod is an orphan.
    Restored { pods: Vec<Arc<Pod>> },
    /// Takes what PLEG found in the runtime.
    Runtime(RuntimeReport),
    /// Takes what a pod's worker has come to.
    Worker(WorkerReport),
    /// Takes a change of the node, for admission.
    Node(NodeChange),
    /// Has the pod's worker fail it: evicted, or ended with the node.
    Fail {
        uid: PodUid,
        failure: Box<PodFailure>,
        grace: Duration,
    },
    /// Tells the actors that keep files on this node which pods there are.
    CleanUp,
    /// Removes those of the logs and cgroups found on this node that are of no pod.
    LeftoversListed(Box<Leftovers>),
    /// Reports folders of no pod that could not be removed.
    FoldersKept(KeptFolders),
    /// Has every worker send its pod's status again.
    Resync,
    /// Admits a pod again with what device plugins have answered about it.
    Preferred { uid: PodUid, answers: PluginAnswers },
    /// Answers a question about the pods.
    Query(PodQuery),
}

/// Manifests that do not run, or not wholly, by path or URL, with what is wrong in each.
pub type RefusedManifests = BTreeMap<String, Vec<String>>;

/// What device plugins have answered, each with the question.
pub(super) type PluginAnswers = Vec<(PreferenceQuestion, Result<BTreeSet<String>, String>)>;

/// A change of the node that admission goes by.
#[derive(Debug)]
pub enum NodeChange {
    /// The node object, with its labels, taints and addresses; none leaves everything as it is.
    Object(Option<Arc<Node>>),
    /// The pressures that the node is under.
    Pressures(BTreeSet<Signal>),
    /// Whether the node is shutting down.
    Shutdown(NodeShutdown),
    /// The devices of device plugins, and the pods that have one whose health has changed.
    Devices {
        inventory: Arc<DeviceInventory>,
        pods: BTreeSet<PodUid>,
    },
    /// The health of devices of claims has changed that these pods have: their statuses are to be made anew.
    ClaimDevices { pods: BTreeSet<PodUid> },
    /// The pods leave their runtime, or may start in another one: every worker looks at its gate.
    RuntimeHandover,
}

/// A question about the pods of this node.
#[derive(Debug)]
pub enum PodQuery {
    /// Every pod, sorted by name.
    All { reply: Reply<Vec<Arc<Pod>>> },
    /// The pod of this UID, as it is among all; none where there is none.
    Pod {
        uid: PodUid,
        reply: Reply<Option<Arc<Pod>>>,
    },
    /// What is left of ended pods that the runtime does not remove, each with the pod's name.
    Stuck { reply: Reply<Vec<String>> },
    /// The pods that hold resources: those of which something may still run.
    Active { reply: Reply<Vec<Arc<Pod>>> },
    /// The pods of which something may still run, or is still mounted: upstream's `ShouldPodBeFinished` says no.
    Unfinished { reply: Reply<BTreeSet<PodUid>> },
    /// How far each pod is; none before every source has told its pods.
    Standings { reply: Reply<Option<Standings>> },
    /// Which pods may still have something running; none before every source has told its pods and the runtime was
    /// listed. The answer is told, and nobody waits for it.
    Unended {
        asker: Recipient<Option<BTreeSet<PodUid>>>,
    },
    /// The refused manifests of all sources.
    Refused { reply: Reply<RefusedManifests> },
    /// The worker of the pod of this UID, name or namespace/name.
    Worker {
        pod: String,
        reply: Reply<PodLookup>,
    },
}

impl Msg {
    /// Whether pods that hold resources may be others, or hold others, afterwards.
    pub(super) fn may_change_pods(&self) -> bool {
        match self {
            Msg::SetPods { .. }
            | Msg::Restored { .. }
            | Msg::Runtime(RuntimeReport::Relisted { .. })
            | Msg::Worker(_)
            | Msg::Node(_)
            | Msg::Preferred { .. }
            | Msg::Fail { .. } => true,
            Msg::Runtime(RuntimeReport::Observed(_))
            | Msg::CleanUp
            | Msg::LeftoversListed(_)
            | Msg::FoldersKept(_)
            | Msg::SetRefused { .. }
            | Msg::Resync
            | Msg::Query(_) => false,
        }
    }

    /// Asks for every pod, sorted by name.
    pub fn all(reply: Reply<Vec<Arc<Pod>>>) -> Msg {
        Msg::Query(PodQuery::All { reply })
    }

    /// Asks for the pod of this UID.
    pub fn pod(uid: PodUid, reply: Reply<Option<Arc<Pod>>>) -> Msg {
        Msg::Query(PodQuery::Pod { uid, reply })
    }

    /// Asks for the pods that hold resources.
    pub fn active(reply: Reply<Vec<Arc<Pod>>>) -> Msg {
        Msg::Query(PodQuery::Active { reply })
    }

    /// Asks for the pods of which something may still run, or is still mounted.
    pub fn unfinished(reply: Reply<BTreeSet<PodUid>>) -> Msg {
        Msg::Query(PodQuery::Unfinished { reply })
    }

    /// Asks for what is left of ended pods that the runtime does not remove.
    pub fn stuck(reply: Reply<Vec<String>>) -> Msg {
        Msg::Query(PodQuery::Stuck { reply })
    }

    /// Asks how far each pod is.
    pub fn standings(reply: Reply<Option<Standings>>) -> Msg {
        Msg::Query(PodQuery::Standings { reply })
    }

    /// Asks for the refused manifests of all sources.
    pub fn refused(reply: Reply<RefusedManifests>) -> Msg {
        Msg::Query(PodQuery::Refused { reply })
    }

    /// Asks for the worker of the pod of this UID, name or namespace/name.
    pub fn worker_of(pod: String, reply: Reply<PodLookup>) -> Msg {
        Msg::Query(PodQuery::Worker { pod, reply })
    }
}
