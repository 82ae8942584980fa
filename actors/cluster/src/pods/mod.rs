//! The pods that the API server gives this node, and the mirrors of static ones.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kernel::Reply;
use logic::types::PodUid;

/// What the source is told.
#[derive(Debug, strum::IntoStaticStr)]
pub enum Msg {
    /// Takes note for whom everything that the pod refers to has been asked for: the others wait.
    Supplied { uids: BTreeSet<PodUid> },
    /// Sees to it that exactly these static pods have mirrors.
    Static { pods: Vec<Arc<Pod>> },
    /// Answers with every pod that the API gives this node, mirrors included.
    All { reply: Reply<Vec<Arc<Pod>>> },
}
