//! The node's `CSINode`: which drivers registered, what they call the node, how much they take.
//!
//! - **Owns** which drivers there are, and which were and left.
//! - **Hears** the volume manager, whenever a driver comes or goes.
//! - **Tells** the node status manager when the `CSINode` exists: before, the node is not ready, as upstream.
//! - **Never** drops a driver that it has not seen: after a restart it may come back.
//!
//! Upstream: pkg/volume/csi/nodeinfomanager, `initializeCSINode` of csi_plugin.go (1.36).
//! Decisions: `logic_volumes::csi_node`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use api_client::{ApiClient, ApiError, ByValue, RequestLane};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::storage::v1::CSINode;
use kernel::watch as channel;
use kernel::{Actor, Addr, Context, Exit, Recipient};
use kube::Api;
use logic_node::node_status::NodeFact;
use logic_volumes::{RegisteredDriver, csi_node};
use serde::Serialize;

use super::{Msg as NodeMsg, NodeResync, requests};

/// Drivers register one by one.
pub const MAILBOX: usize = 64;

const TIMEOUT: Duration = Duration::from_secs(10);
/// Between attempts: doubled from the first to the last.
const FIRST: Duration = Duration::from_millis(50);
/// The longest pause between attempts to write the CSINode object: a driver waits for it.
const LONGEST: Duration = Duration::from_secs(10);

/// Messages of the `CSINode` manager.
#[derive(Debug, strum::IntoStaticStr)]
pub enum Msg {
    /// Takes in which drivers there are now.
    Drivers(BTreeMap<String, RegisteredDriver>),
    /// Reports again whether the `CSINode` exists: the node status manager restarted.
    TellAgain,
    /// Writes the object if it differs from the drivers.
    Sync,
    /// Takes in the result of a write.
    Synced(Box<Result<CSINode, ApiError>>),
}

/// Snapshot: whether the object exists and is up to date.
#[derive(Debug, Serialize)]
pub struct Snapshot {
    /// That the object should name.
    pub drivers: Vec<String>,
    /// Whether the object exists.
    pub there: bool,
    /// Consecutive.
    pub failures: u32,
    /// None after a success.
    pub last_error: Option<String>,
}

/// The actors and the client that it works with.
#[derive(Debug, Clone)]
pub struct Peers {
    pub client: ApiClient,
    /// The node's object, of [`super::Peers::object`].
    pub object: channel::Receiver<Option<Arc<Node>>>,
    pub node: Addr<NodeMsg>,
    /// The volume manager, which knows the drivers.
    pub volumes: Recipient<NodeResync>,
}

/// Keeps the node's `CSINode` up to date.
#[derive(Debug)]
pub struct CsiNode {
    name: String,
    peers: Peers,

    there: BTreeMap<String, RegisteredDriver>,
    left: BTreeSet<String>,
    state: CsiNodeSync,
    made: bool,
    failures: u32,
    last_error: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CsiNodeSync {
    Right,
    /// A request is under way.
    Asking,
    /// A request is under way, and the drivers have changed since.
    Stale,
    /// The next attempt has its timer.
    Waiting,
}

impl Actor for CsiNode {
    type Msg = Msg;
    type Snapshot = Snapshot;

    async fn start(&mut self, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        if let Err(full) = self.peers.volumes.tell(NodeResync) {
            tracing::warn!("the drivers are known when one comes or goes: {full}");
        }
        self.sync(ctx);
        Ok(())
    }

    async fn handle(&mut self, msg: Msg, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        match msg {
            Msg::Drivers(drivers) => self.drivers(drivers, ctx),
            Msg::TellAgain => self.tell(),
            Msg::Sync => self.sync(ctx),
            Msg::Synced(answer) => self.synced(*answer, ctx),
        }
        Ok(())
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot {
            drivers: self.there.keys().cloned().collect(),
            there: self.made,
            failures: self.failures,
            last_error: self.last_error.clone(),
        }
    }
}

impl CsiNode {
    pub fn new(name: String, peers: Peers) -> Self {
        CsiNode {
            name,
            peers,
            there: BTreeMap::new(),
            left: BTreeSet::new(),
            state: CsiNodeSync::Right,
            made: false,
            failures: 0,
            last_error: None,
        }
    }

    fn drivers(&mut self, drivers: BTreeMap<String, RegisteredDriver>, ctx: &mut Context<Msg>) {
        let gone = self
            .there
            .keys()
            .filter(|name| !drivers.contains_key(*name));
        self.left.extend(gone.cloned());
        self.left.retain(|name| !drivers.contains_key(name));
        if drivers != self.there {
            self.there = drivers;
            self.changed(ctx);
        }
    }

    fn changed(&mut self, ctx: &mut Context<Msg>) {
        match self.state {
            CsiNodeSync::Right => self.sync(ctx),
            CsiNodeSync::Asking => self.state = CsiNodeSync::Stale,
            CsiNodeSync::Stale | CsiNodeSync::Waiting => {}
        }
    }

    fn sync(&mut self, ctx: &mut Context<Msg>) {
        self.state = CsiNodeSync::Asking;
        let sync_request = CsiNodeUpdate {
            api: Api::all(self.peers.client.kube(RequestLane::Work)),
            name: self.name.clone(),
            there: self.there.clone(),
            left: self.left.clone(),
        };
        let mut object = self.peers.object.clone();
        ctx.run(async move {
            let uid = match object.wait_for(Option::is_some).await {
                Ok(node) => node.as_ref().and_then(|node| node.metadata.uid.clone()),
                Err(_) => None,
            };
            let answer = sync_request.sync(uid.as_deref()).await;
            Msg::Synced(Box::new(answer))
        });
    }

    fn synced(&mut self, answer: Result<CSINode, ApiError>, ctx: &mut Context<Msg>) {
        let stale = self.state == CsiNodeSync::Stale;
        match answer {
            Ok(_) => {
                self.state = CsiNodeSync::Right;
                self.failures = 0;
                self.last_error = None;
                if !self.made {
                    self.made = true;
                    self.tell();
                }
                if stale {
                    self.sync(ctx);
                }
            }
            Err(trouble) => {
                tracing::warn!("the CSINode is not as it should be: {trouble}");
                self.last_error = Some(trouble.to_string());
                self.state = CsiNodeSync::Waiting;
                ctx.after(pause(self.failures), Msg::Sync);
                self.failures += 1;
            }
        }
    }

    fn tell(&self) {
        if self.made
            && let Err(full) = self
                .peers
                .node
                .tell(NodeMsg::Learned(NodeFact::Storage(None)))
        {
            tracing::warn!("the node is not told that its CSINode is there: {full}");
        }
    }
}

fn pause(failures: u32) -> Duration {
    let doubled = FIRST.checked_mul(1 << failures.min(16));
    doubled.unwrap_or(LONGEST).min(LONGEST)
}

/// One attempt, carried out beside the actor.
struct CsiNodeUpdate {
    api: Api<ByValue<CSINode>>,
    name: String,
    there: BTreeMap<String, RegisteredDriver>,
    left: BTreeSet<String>,
}

impl CsiNodeUpdate {
    async fn sync(&self, uid: Option<&str>) -> Result<CSINode, ApiError> {
        let existing = match requests::get(&self.api, &self.name, TIMEOUT).await {
            Ok(existing) => existing,
            Err(ApiError::NotFound { .. }) => {
                let object = csi_node::csi_node(&self.name, uid, &self.there);
                return requests::create(&self.api, &object, TIMEOUT).await;
            }
            Err(trouble) => return Err(trouble),
        };
        match csi_node::renewed(&existing, &self.there, &self.left) {
            None => Ok(existing),
            Some(object) => requests::replace(&self.api, &self.name, &object, TIMEOUT).await,
        }
    }
}
