//! The node's object: registered, reconciled, kept up to date.
//!
//! - **Owns** what is known of the node ([`NodeStatusFacts`]), and its object as the API server last gave it.
//! - **Hears** facts from the actors that report one, and the object's changes.
//! - **Tells** the readers of [`Peers::object`] what the object is, the volume manager what the API server knows to be
//!   in use, and the recorder what changed for the better or worse.
//! - **Never** has two writes under way, writes what is as it was (but for the report that is due), or makes an object
//!   again that was deleted in the API: upstream does so at its next start alone.
//!
//! [`lease`] is the heartbeat, [`csi_node`] the object of the drivers, [`pvc_resize`] the status of claims that grow.
//! Upstream: pkg/kubelet/kubelet_node_status.go (1.36). Decisions: `logic_node::node_status`.

mod addresses;
pub mod csi_node;
pub mod lease;
pub mod node_informer;
pub mod pvc_resize;
mod registering;
mod requests;
#[cfg(test)]
mod tests;
mod volumes_in_use;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use api_client::{ApiClient, ApiError, ByValue, RequestLane};
use k8s_openapi::api::core::v1::Node;
use kernel::watch as channel;
use kernel::{Actor, Context, Exit, Recipient, TimerId};
use kube::Api;
use logic_node::node_status::{
    self, ClockReading, NodeAddresses, NodeFact, NodeHostFacts, NodeResources, NodeStatusFacts,
    ReportCause, ReportSchedule, ReportUrgency,
};
use logic_volumes::VolumeId;
use serde::Serialize;
use serde_json::Value;
use state::events::Recorder;

use self::volumes_in_use::VolumesInUseState;

/// A dozen reporters, each of which may have a fact of each kind under way, and the actor's own results.
pub const MAILBOX: usize = 256;

/// After this many failed writes in a row it waits for the next update period.
const ATTEMPTS: u32 = 5;
/// The least time between two writes, however fast the facts change.
const PAUSE: Duration = Duration::from_millis(100);
/// The time between two searches for the node's addresses.
const FIND_EVERY: Duration = Duration::from_secs(60);

/// Messages of the node status manager.
#[derive(Debug, strum::IntoStaticStr)]
pub enum Msg {
    /// Takes in a new fact about the node, and reports it when it is due.
    Learned(NodeFact),
    /// Takes in the node's addresses.
    Found(NodeAddresses),
    /// Tries to register.
    Register,
    /// Takes in the result of an attempt to register.
    Registered(Box<Result<Node, ApiError>>),
    /// Takes in the object as it is now; none where there is none.
    Seen(Box<Option<Node>>),
    /// Compares the facts with the object, and writes if they differ or a report is due.
    Look,
    /// Takes in the result of a write.
    Written(Box<Result<Node, ApiError>>),
    /// Takes in the object that was fetched after a failed write, and looks again.
    Fetched(Box<Result<Node, ApiError>>),
    /// Writes the volumes reported in use to the checkpoint.
    Keep,
    /// Takes note of the end of that write.
    Kept(kernel::checkpoint::WriteResult),
}

/// Asks for all facts again: the node status manager restarted.
#[derive(Debug, Clone, Copy)]
pub struct NodeResync;

/// The configuration of the node's object.
#[derive(Debug, Clone)]
pub struct Policy {
    pub status: node_status::NodeStatusPolicy,
    pub registering: Registering,
    /// The time between two syncs of facts that no actor reports (`nodeStatusUpdateFrequency`).
    pub look_every: Duration,
    /// The time between two reports though nothing changed (`nodeStatusReportFrequency`).
    pub report_every: Duration,
    /// Identity of the machine: [`host::identity::read`].
    pub host: NodeHostFacts,
    /// Capacity and allocatable at the start.
    pub resources: NodeResources,
    /// The agent's own folder, for the checkpoint of volumes in use.
    pub folder: PathBuf,
}

/// Who creates the node's object (`registerNode`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Registering {
    Itself,
    /// Another component creates the object.
    Awaited,
}

/// The actors and clients that the node status manager works with.
#[derive(Debug, Clone)]
pub struct Peers {
    pub client: ApiClient,
    pub recorder: Recorder,
    /// The object for all readers: its UID, labels, annotations, taints, addresses, attached volumes. None before the
    /// first is known, and when it was deleted. Changes of heartbeats alone are not published.
    pub object: channel::Sender<Option<Arc<Node>>>,
    /// Receives the volumes that the API server knows to be in use.
    pub reported: Recipient<BTreeSet<VolumeId>>,
    /// The actors that report facts.
    pub reporters: Vec<Recipient<NodeResync>>,
}

/// Snapshot: registration, the Ready condition, failures.
#[derive(Debug, Serialize)]
pub struct Snapshot {
    pub registered: Registered,
    pub attempts: u32,
    pub writes: u64,
    /// The Ready condition: `True`, `False` or `Unknown`.
    pub ready: String,
    pub why: String,
    pub last_error: Option<String>,
    pub problems: Vec<String>,
}

/// Whether the node's object exists in the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Registered {
    NotYet,
    Yes,
    /// It existed, and was deleted.
    Deleted,
}

/// Registers the node's object and patches its status.
#[derive(Debug)]
pub struct NodeStatusManager {
    policy: Policy,
    peers: Peers,

    facts: NodeStatusFacts,
    schedule: ReportSchedule,
    node: Option<Node>,
    registered: Registered,
    located: Located,
    work: NodeWriteState,
    /// Facts came while a write was under way.
    again: PendingLook,
    attempts: u32,
    writes: u64,
    timer: Option<TimerId>,
    reported: VolumesInUseState,
    /// Events of a change that is not written yet: not to be recorded again with each attempt.
    said: Vec<node_status::NodeEvent>,
    unschedulable: bool,
    problems: Vec<String>,
    last_error: Option<String>,
}

/// Whether the node's addresses have been searched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Located {
    NotYet,
    Yes,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NodeWriteState {
    Idle,
    Writing(ReportCause),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PendingLook {
    No,
    Yes,
}

impl Actor for NodeStatusManager {
    type Msg = Msg;
    type Snapshot = Snapshot;

    /// After a restart the facts are requested again; what was reported in use before is so still.
    async fn start(&mut self, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        for reporter in &self.peers.reporters {
            if let Err(full) = reporter.tell(NodeResync) {
                tracing::warn!("a fact of the node comes when it changes: {full}");
            }
        }
        self.reported.begin(&self.peers.reported);
        self.find(Duration::ZERO, ctx);
        self.look_in(self.policy.look_every, ctx);
        Ok(())
    }

    async fn handle(&mut self, msg: Msg, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        match msg {
            Msg::Learned(fact) => self.learned(fact, ctx),
            Msg::Found(addresses) => self.found(addresses, ctx),
            Msg::Register => self.register(ctx),
            Msg::Registered(answer) => self.registered(*answer, ctx),
            Msg::Seen(node) => self.on_node(*node, ctx),
            Msg::Look => self.update_status(ctx),
            Msg::Written(answer) => self.written(*answer, ctx),
            Msg::Fetched(answer) => self.fetched(*answer, ctx),
            Msg::Keep => self.keep(ctx),
            Msg::Kept(written) => self.on_checkpointed(written, ctx),
        }
        Ok(())
    }

    fn snapshot(&self) -> Snapshot {
        let status = self.node.as_ref().and_then(|node| node.status.as_ref());
        let mut conditions = status
            .into_iter()
            .flat_map(|s| s.conditions.iter().flatten());
        let ready = conditions.find(|condition| condition.type_ == "Ready");
        Snapshot {
            registered: self.registered,
            attempts: self.attempts,
            writes: self.writes,
            ready: ready.map_or_else(|| "Unknown".to_owned(), |ready| ready.status.clone()),
            why: ready
                .and_then(|ready| ready.message.clone())
                .unwrap_or_default(),
            last_error: self.last_error.clone(),
            problems: self.problems.clone(),
        }
    }
}

impl NodeStatusManager {
    pub fn new(policy: Policy, peers: Peers) -> Self {
        NodeStatusManager {
            facts: NodeStatusFacts::new(policy.host.clone(), policy.resources.clone()),
            schedule: ReportSchedule::new(policy.report_every),
            reported: VolumesInUseState::new(&policy.folder),
            policy,
            peers,
            node: None,
            registered: Registered::NotYet,
            located: Located::NotYet,
            work: NodeWriteState::Idle,
            again: PendingLook::No,
            attempts: 0,
            writes: 0,
            timer: None,
            said: Vec::new(),
            unschedulable: false,
            problems: Vec::new(),
            last_error: None,
        }
    }

    fn api(&self) -> Api<ByValue<Node>> {
        Api::all(self.peers.client.kube(RequestLane::Heartbeat))
    }

    /// Every request ends before the next look.
    fn within(&self) -> Duration {
        self.policy.look_every.max(Duration::from_secs(1))
    }

    fn learned(&mut self, fact: NodeFact, ctx: &mut Context<Msg>) {
        match self.facts.learn(fact, ctx.now()) {
            ReportUrgency::Never | ReportUrgency::Later => {}
            ReportUrgency::Now => self.look_soon(ctx),
        }
    }

    fn find(&self, after: Duration, ctx: &mut Context<Msg>) {
        let policy = self.policy.status.clone();
        ctx.run(async move {
            tokio::time::sleep(after).await;
            Msg::Found(addresses::find(&policy).await)
        });
    }

    fn found(&mut self, addresses: NodeAddresses, ctx: &mut Context<Msg>) {
        // A network that is not there yet may come any moment.
        let again = match addresses.problem.is_empty() {
            true => FIND_EVERY,
            false => self.policy.look_every.min(FIND_EVERY),
        };
        self.learned(NodeFact::Addresses(addresses), ctx);
        self.find(again, ctx);
        if self.located == Located::NotYet {
            self.located = Located::Yes;
            match self.policy.registering {
                Registering::Itself => self.register(ctx),
                Registering::Awaited => self.follow(ctx),
            }
        }
    }

    fn on_node(&mut self, node: Option<Node>, ctx: &mut Context<Msg>) {
        let known = self.node.is_some();
        self.take(node, ctx);
        match (&self.node, known) {
            (None, _) => {}
            (Some(_), true) => self.look_soon(ctx),
            (Some(_), false) => self.update_status(ctx),
        }
    }

    /// The object is this one now, unless a newer one has been heard of.
    fn take(&mut self, node: Option<Node>, ctx: &mut Context<Msg>) {
        let older = |new: &Node| self.node.as_ref().is_some_and(|held| is_older(new, held));
        if node.as_ref().is_some_and(older) {
            return;
        }
        match (&node, self.registered) {
            (Some(_), _) => self.registered = Registered::Yes,
            (None, Registered::Yes) => {
                self.registered = Registered::Deleted;
                tracing::warn!(
                    "the node's object was deleted; it is not made again before the agent starts again"
                );
            }
            (None, Registered::NotYet | Registered::Deleted) => {}
        }
        self.node = node;
        if self.node.as_ref().is_some_and(is_ready) {
            metrics::node::startup::ready(ctx.wall());
        }
        self.tell_scheduling(ctx);
        self.publish();
        if let Some(node) = &self.node {
            let status = node.status.as_ref();
            let listed = status.and_then(|status| status.volumes_in_use.clone());
            self.reported
                .now(listed.unwrap_or_default(), &self.peers.reported);
            self.keep(ctx);
        }
    }

    fn look_in(&mut self, wait: Duration, ctx: &mut Context<Msg>) {
        if let Some(timer) = self.timer.take() {
            ctx.cancel(timer);
        }
        self.timer = Some(ctx.after(wait, Msg::Look));
    }

    fn look_soon(&mut self, ctx: &mut Context<Msg>) {
        match self.again {
            PendingLook::Yes => {}
            PendingLook::No if self.work == NodeWriteState::Idle => self.update_status(ctx),
            PendingLook::No => self.again = PendingLook::Yes,
        }
    }

    fn update_status(&mut self, ctx: &mut Context<Msg>) {
        self.look_in(self.policy.look_every, ctx);
        self.reported.tell_again(&self.peers.reported);
        if self.work != NodeWriteState::Idle {
            self.again = PendingLook::Yes;
            return;
        }
        self.again = PendingLook::No;
        let Some(before) = &self.node else { return };
        let outcome = node_status::set(&self.policy.status, &self.facts, moment(ctx), before);
        let cause = match node_status::changed(before, &outcome.node) {
            true => ReportCause::Change,
            false if self.schedule.is_due(ctx.now()) => ReportCause::Heartbeat,
            false => return,
        };
        let patch = node_status::patch(before, &outcome.node);
        self.tell_person(&outcome, ctx);
        if let Some(patch) = patch {
            self.write(cause, patch, ctx);
        }
    }

    fn write(&mut self, cause: ReportCause, patch: Value, ctx: &mut Context<Msg>) {
        self.work = NodeWriteState::Writing(cause);
        let (api, within) = (self.api(), self.within());
        let name = self.policy.status.name.clone();
        ctx.run(async move {
            let answer = requests::patch(&api, &name, patch, within).await;
            Msg::Written(Box::new(answer))
        });
    }

    fn written(&mut self, answer: Result<Node, ApiError>, ctx: &mut Context<Msg>) {
        let work = std::mem::replace(&mut self.work, NodeWriteState::Idle);
        match answer {
            Ok(node) => {
                let cause = match work {
                    NodeWriteState::Writing(cause) => cause,
                    NodeWriteState::Idle => ReportCause::Change,
                };
                self.schedule.sent(cause, ctx.now(), kernel::chance());
                self.writes += 1;
                self.attempts = 0;
                self.last_error = None;
                self.said.clear();
                self.take(Some(node), ctx);
                if self.again == PendingLook::Yes {
                    self.look_in(PAUSE, ctx);
                }
            }
            Err(trouble) => self.not_written(&trouble, ctx),
        }
    }

    /// As upstream, a few attempts in a row, each with the object fetched anew; then at the next look.
    fn not_written(&mut self, trouble: &ApiError, ctx: &mut Context<Msg>) {
        tracing::warn!("the node's status is not told: {trouble}");
        self.last_error = Some(trouble.to_string());
        self.attempts += 1;
        let away = matches!(trouble, ApiError::Unreachable { .. });
        if away || self.attempts >= ATTEMPTS {
            self.attempts = 0;
            self.again = PendingLook::No;
            return;
        }
        self.again = PendingLook::Yes;
        let asked = trouble.pause().map(|wait| wait.min(self.policy.look_every));
        let wait = asked.unwrap_or(PAUSE);
        let (api, within) = (self.api(), self.within());
        let name = self.policy.status.name.clone();
        ctx.run(async move {
            tokio::time::sleep(wait).await;
            Msg::Fetched(Box::new(requests::get(&api, &name, within).await))
        });
    }

    fn fetched(&mut self, answer: Result<Node, ApiError>, ctx: &mut Context<Msg>) {
        match answer {
            Ok(node) => {
                self.take(Some(node), ctx);
                self.update_status(ctx);
            }
            Err(ApiError::NotFound { .. }) => {
                self.again = PendingLook::No;
                self.take(None, ctx);
            }
            Err(trouble) => self.not_written(&trouble, ctx),
        }
    }
}

fn is_ready(node: &Node) -> bool {
    let status = node.status.as_ref();
    let mut conditions = status
        .into_iter()
        .flat_map(|s| s.conditions.iter().flatten());
    conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// A read that began before a write may return after it, with the older object; and the answer to a write after the
/// watch has told what another wrote next.
fn is_older(new: &Node, held: &Node) -> bool {
    let version = |node: &Node| node.metadata.resource_version.as_ref()?.parse::<u64>().ok();
    let same = new.metadata.uid == held.metadata.uid;
    match (version(new), version(held)) {
        (Some(new), Some(held)) => same && new < held,
        (None, _) | (_, None) => false,
    }
}

fn moment(ctx: &Context<Msg>) -> ClockReading {
    ClockReading {
        now: ctx.now(),
        wall: ctx.timestamp(),
    }
}
