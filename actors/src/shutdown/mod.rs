//! A node that goes down takes its pods with it in order: the less important first, each within its grace.
//!
//! - **Owns** the lock that makes the machine wait, and the steps that are left.
//! - **Hears** from logind that the machine goes down, or does not after all.
//! - **Tells** the pod manager which pods end and that none may begin, the node's object that it is not ready.
//! - **Never** keeps the machine longer than the configuration says; never gives the lock back before the last step is
//!   over and what became of the pods has been told.
//!
//! Upstream: pkg/kubelet/nodeshutdown/nodeshutdown_manager_linux.go (1.36). Decisions: `logic_node::shutdown`.

mod logind;
pub mod record;
mod recording;
mod steps;
#[cfg(test)]
mod tests;

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use cluster::events::{EventType, InvolvedObject, Recorder};
use futures_util::StreamExt;
use jiff::Timestamp;
use kernel::{Actor, Addr, Context, Exit, Recipient, TaskId};
use logic_node::shutdown::ShutdownStep;
use logic_pods::admission::NodeShutdown;
use serde::Serialize;

pub use self::logind::LogindError;
use self::logind::{InhibitorLock, LogindConnection};
use self::record::ShutdownRecord;
use self::recording::{LockState, RecordState};
pub use self::steps::NodePods;
use self::steps::RunningStep;
use crate::{pod_manager, volumes};

/// It hears logind and its own looks.
pub const MAILBOX: usize = 16;

/// Before the bus is tried again: upstream's `dbusReconnectPeriod`.
const RECONNECT_PERIOD: Duration = Duration::from_secs(1);
/// The same while it goes on failing: a machine without logind is not asked all day.
const RECONNECT_MAX_PERIOD: Duration = Duration::from_secs(60);

/// The section of the configuration.
#[derive(Debug, Clone)]
pub struct Policy {
    pub order: logic_node::shutdown::ShutdownPolicy,
    pub node_name: String,
    /// logind's own folder for files that override its settings.
    pub logind_folder: PathBuf,
    /// Where it is recorded when the node goes down; none where nobody measures that.
    pub record: Option<PathBuf>,
}

/// Whom it works with.
#[derive(Debug, Clone)]
pub struct Peers {
    pub pod_manager: Addr<pod_manager::Msg>,
    pub volumes: Addr<volumes::Msg>,
    /// The node's object, if there is one.
    pub node: Option<Recipient<NodeShutdown>>,
    pub recorder: Recorder,
}

/// What the keeper of the lock is told.
#[derive(Debug, strum::IntoStaticStr)]
pub enum Msg {
    /// Connects to logind.
    Connect,
    /// Holds the lock, and listens.
    Connected(Box<Result<(LogindConnection, InhibitorLock), LogindError>>),
    /// Begins to end pods.
    Down,
    /// Lets pods begin again, and takes a new lock.
    Cancelled,
    /// Takes the new lock.
    Locked(Box<Result<InhibitorLock, LogindError>>),
    /// Goes on: some of what was waited for may have ended.
    Observe,
    /// Learns what still runs, or holds volumes.
    Observed(Box<Option<NodePods>>),
    /// Connects again: logind says nothing any more.
    ObserveFailed,
    /// Lets the machine go on.
    Release,
    /// Tells the node's object again whether the node goes down: its keeper has a successor.
    Resync,
    /// Shows when an earlier life went down.
    RecordLoaded(io::Result<ShutdownRecord>),
    /// Goes on: it is recorded, or cannot be.
    RecordWritten(io::Result<()>),
}

/// Where it stands.
#[derive(Debug, Serialize)]
pub struct Snapshot {
    /// Whether the machine would wait for us.
    pub locked: bool,
    pub going_down: bool,
    pub steps_left: usize,
    pub trouble: Option<String>,
}

/// The keeper of the lock.
#[derive(Debug)]
pub struct ShutdownManager {
    policy: Policy,
    peers: Peers,

    logind: Option<LogindConnection>,
    lock: Option<InhibitorLock>,
    listening: Option<TaskId>,
    pause: Duration,
    going_down: bool,
    step: Option<RunningStep>,
    steps: Option<Vec<ShutdownStep>>,
    record: ShutdownRecord,
    record_state: RecordState,
    lock_state: LockState,
    trouble: Option<String>,
}

impl Actor for ShutdownManager {
    type Msg = Msg;
    type Snapshot = Snapshot;

    async fn start(&mut self, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        self.connect(ctx);
        if let Some(path) = self.policy.record.clone() {
            ctx.run(async move { Msg::RecordLoaded(record::read(path).await) });
        }
        Ok(())
    }

    async fn handle(&mut self, msg: Msg, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        match msg {
            Msg::Connect => self.connect(ctx),
            Msg::Connected(outcome) => self.connected(*outcome, ctx),
            Msg::Down => self.down(ctx),
            Msg::Cancelled => self.cancelled(ctx),
            Msg::Locked(outcome) => self.locked(*outcome, ctx),
            Msg::Observe => self.observe(ctx),
            Msg::Observed(observed) => self.observed(*observed, ctx),
            Msg::ObserveFailed => self.observe_failed(ctx),
            Msg::Release => self.release(ctx),
            Msg::Resync => self.report_node(),
            Msg::RecordLoaded(record) => self.record_loaded(record),
            Msg::RecordWritten(outcome) => self.record_written(outcome, ctx),
        }
        Ok(())
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot {
            locked: self.lock.is_some(),
            going_down: self.going_down,
            steps_left: self.steps.as_ref().map_or(0, Vec::len),
            trouble: self.trouble.clone(),
        }
    }
}

impl ShutdownManager {
    pub fn new(policy: Policy, peers: Peers) -> Self {
        ShutdownManager {
            policy,
            peers,
            logind: None,
            lock: None,
            listening: None,
            pause: RECONNECT_PERIOD,
            going_down: false,
            step: None,
            steps: None,
            record: ShutdownRecord::default(),
            record_state: RecordState::No,
            lock_state: LockState::No,
            trouble: None,
        }
    }

    fn connect(&mut self, ctx: &mut Context<Msg>) {
        let (wanted, folder) = (self.policy.order.total(), self.policy.logind_folder.clone());
        ctx.run(async move {
            let connect = async {
                let logind = LogindConnection::connect(wanted, &folder).await?;
                let lock = logind.lock().await?;
                Ok((logind, lock))
            };
            Msg::Connected(Box::new(connect.await))
        });
    }

    fn connected(
        &mut self,
        outcome: Result<(LogindConnection, InhibitorLock), LogindError>,
        ctx: &mut Context<Msg>,
    ) {
        match outcome {
            Ok((logind, lock)) => {
                self.pause = RECONNECT_PERIOD;
                self.trouble = None;
                self.lock = Some(lock);
                self.listen(&logind, ctx);
                self.logind = Some(logind);
            }
            Err(error) => {
                self.complain(error);
                self.again(ctx);
            }
        }
    }

    fn listen(&mut self, logind: &LogindConnection, ctx: &mut Context<Msg>) {
        if let Some(task) = self.listening.take() {
            ctx.abort(task);
        }
        let (logind, addr) = (logind.clone(), ctx.addr().clone());
        self.listening = Some(ctx.run(async move {
            let Ok(news) = logind.news().await else {
                return Msg::ObserveFailed;
            };
            let mut news = std::pin::pin!(news);
            while let Some(starts) = news.next().await {
                let told = match starts {
                    true => addr.tell(Msg::Down),
                    false => addr.tell(Msg::Cancelled),
                };
                if told.is_err() {
                    break;
                }
            }
            Msg::ObserveFailed
        }));
    }

    fn observe_failed(&mut self, ctx: &mut Context<Msg>) {
        self.listening = None;
        tracing::warn!("logind says nothing any more");
        self.again(ctx);
    }

    fn again(&mut self, ctx: &mut Context<Msg>) {
        ctx.after(self.pause, Msg::Connect);
        self.pause = (self.pause * 2).min(RECONNECT_MAX_PERIOD);
    }

    fn down(&mut self, ctx: &mut Context<Msg>) {
        if std::mem::replace(&mut self.going_down, true) {
            return;
        }
        self.event("Shutdown manager detected shutdown event", ctx);
        self.tell(NodeShutdown::Yes);
        self.steps = None;
        self.note(
            ShutdownRecord {
                began: Some(timestamp(ctx)),
                ended: None,
            },
            ctx,
        );
        self.observe(ctx);
    }

    /// What has been told to end ends; nothing else does.
    fn cancelled(&mut self, ctx: &mut Context<Msg>) {
        self.event("Shutdown manager detected shutdown cancellation", ctx);
        self.going_down = false;
        self.step = None;
        self.steps = None;
        self.lock_state = LockState::No;
        self.end(ctx);
        self.tell(NodeShutdown::No);
        if let Some(logind) = self.logind.clone() {
            ctx.run(async move { Msg::Locked(Box::new(logind.lock().await)) });
        }
    }

    fn locked(&mut self, outcome: Result<InhibitorLock, LogindError>, ctx: &mut Context<Msg>) {
        match outcome {
            Ok(lock) => self.lock = Some(lock),
            Err(error) => {
                self.complain(error);
                self.again(ctx);
            }
        }
    }

    fn tell(&self, state: NodeShutdown) {
        let pod_manager = self
            .peers
            .pod_manager
            .tell(pod_manager::Msg::ShuttingDown(state));
        if pod_manager.is_err() {
            tracing::warn!("not everybody knows whether the node goes down: a mailbox is full");
        }
        self.report_node();
    }

    fn report_node(&self) {
        let state = match self.going_down {
            true => NodeShutdown::Yes,
            false => NodeShutdown::No,
        };
        if let Some(node) = &self.peers.node
            && let Err(full) = node.tell(state)
        {
            tracing::warn!("the node's object does not show whether the node goes down: {full}");
        }
    }

    fn event(&self, message: &str, ctx: &Context<Msg>) {
        let node = InvolvedObject::node(&self.policy.node_name);
        self.peers.recorder.record(
            timestamp(ctx),
            EventType::Normal,
            node,
            "NodeShutdown",
            message.to_owned(),
        );
    }

    fn complain(&mut self, error: LogindError) {
        let text = format!("{:#}", anyhow::Error::new(error));
        if self.trouble.as_ref() != Some(&text) {
            tracing::warn!("the machine will not wait for pods to end: {text}");
        }
        self.trouble = Some(text);
    }
}

fn timestamp(ctx: &Context<Msg>) -> Timestamp {
    Timestamp::try_from(ctx.wall()).unwrap_or(Timestamp::UNIX_EPOCH)
}
