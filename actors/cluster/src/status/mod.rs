//! Every pod's status, as the API would show it.
//!
//! - **Owns** the newest `PodStatus` of each pod; it is what `/pods` serves.
//! - **Hears** `Changed` from the pod workers, `Forget` from the directory.
//! - **Tells** nobody yet: a node without an API server keeps its statuses here.
//! - **Never** makes a status up: the worker computes it (`logic::status`), this actor keeps it.
//!
//! Upstream: pkg/kubelet/status/status_manager.go (1.36), the part before the patch is sent.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kernel::{Actor, Context, Exit, Recipient, Reply};
use logic::types::PodUid;
use serde::Serialize;

use crate::client::{Client, Lane};

/// Room for two changes from each of 1,000 pods at once.
pub const MAILBOX: usize = 2048;

/// What the keeper is told.
#[derive(Debug, strum::IntoStaticStr)]
pub enum Msg {
    /// Keeps the status of this pod.
    Changed { uid: PodUid, status: Arc<PodStatus> },
    /// Drops a pod that is gone.
    Forget { uid: PodUid },
    /// Takes these as all pods that the API has for this node, mirrors included.
    Pods { pods: Vec<Arc<Pod>> },
    /// Answers with every kept status.
    All {
        reply: Reply<BTreeMap<PodUid, Arc<PodStatus>>>,
    },
}

/// Asks for every pod's status again.
#[derive(Debug, Clone, Copy)]
pub struct Republish;

/// Whom the keeper works with.
#[derive(Debug, Clone)]
pub struct Peers {
    /// Has every pod's status told again.
    pub republish: Recipient<Republish>,
    /// None for a node without an API server.
    pub api: Option<Sending>,
}

impl From<Recipient<Republish>> for Peers {
    fn from(republish: Recipient<Republish>) -> Self {
        Peers {
            republish,
            api: None,
        }
    }
}

/// The way to the API server.
#[derive(Clone)]
pub struct Sending {
    kube: kube::Client,
    /// Has the API's pods told again.
    pods: Recipient<Republish>,
}

impl Sending {
    pub fn new(client: &Client, pods: Recipient<Republish>) -> Self {
        Sending {
            kube: client.kube(Lane::Work),
            pods,
        }
    }
}

impl std::fmt::Debug for Sending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sending")
    }
}

/// Counted by phase.
#[derive(Debug, Serialize)]
pub struct Snapshot {
    pub pods: usize,
    pub changes: u64,
    pub phases: BTreeMap<String, usize>,
}

/// The keeper of statuses.
#[derive(Debug)]
pub struct Statuses {
    peers: Peers,

    statuses: BTreeMap<PodUid, Arc<PodStatus>>,
    changes: u64,
}

impl Actor for Statuses {
    type Msg = Msg;
    type Snapshot = Snapshot;

    /// A successor begins with nothing, and has the workers say it all again.
    async fn start(&mut self, _ctx: &mut Context<Msg>) -> Result<(), Exit> {
        if let Err(full) = self.peers.republish.tell(Republish) {
            tracing::warn!("statuses come back as they change: {full}");
        }
        if let Some(api) = &self.peers.api
            && let Err(full) = api.pods.tell(Republish)
        {
            tracing::warn!("the API's pods come back as they change: {full}");
        }
        Ok(())
    }

    async fn handle(&mut self, msg: Msg, _ctx: &mut Context<Msg>) -> Result<(), Exit> {
        match msg {
            Msg::Changed { uid, status } => self.changed(uid, status),
            Msg::Forget { uid } => drop(self.statuses.remove(&uid)),
            Msg::Pods { pods } => drop(pods),
            Msg::All { reply } => reply.send(self.statuses.clone()),
        }
        Ok(())
    }

    fn snapshot(&self) -> Snapshot {
        let mut phases = BTreeMap::new();
        for status in self.statuses.values() {
            let phase = status.phase.clone().unwrap_or_default();
            *phases.entry(phase).or_default() += 1;
        }
        Snapshot {
            pods: self.statuses.len(),
            changes: self.changes,
            phases,
        }
    }
}

impl Statuses {
    pub fn new(peers: impl Into<Peers>) -> Self {
        Statuses {
            peers: peers.into(),
            statuses: BTreeMap::new(),
            changes: 0,
        }
    }

    fn changed(&mut self, uid: PodUid, status: Arc<PodStatus>) {
        self.changes += 1;
        self.statuses.insert(uid, status);
    }
}
