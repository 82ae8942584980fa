//! Graceful node shutdown: pods end in order of priority, each within its grace period.
//!
//! - **Owns** the inhibitor lock that delays the shutdown, and the remaining steps.
//! - **Hears** from logind that the machine is going down, or that this is cancelled.
//! - **Tells** the pod manager which pods end and that none may start, the node status manager that it is not ready.
//! - **Never** delays the shutdown longer than configured; never releases the lock before the last step is
//!   over and the pods' statuses have been sent.
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

use futures_util::StreamExt;
use kernel::{Actor, Addr, Context, Exit, Recipient, TaskId};
use logic_node::shutdown::ShutdownStep;
use logic_pods::admission::NodeShutdown;
use pods::pod_manager;
use serde::Serialize;
use state::events::{EventType, InvolvedObject, Recorder};

pub use self::logind::LogindError;
use self::logind::{InhibitorLock, LogindConnection};
use self::record::ShutdownRecord;
use self::recording::{LockState, RecordState};
pub use self::steps::NodePods;
use self::steps::ShutdownProgress;

/// Room for logind's signals and its own polls.
pub const MAILBOX: usize = 16;

/// Before connecting to the bus again: upstream's `dbusReconnectPeriod`.
const RECONNECT_PERIOD: Duration = Duration::from_secs(1);
/// The longest such period while connecting fails: a machine may have no logind.
const RECONNECT_MAX_PERIOD: Duration = Duration::from_secs(60);

/// The section of the configuration.
#[derive(Debug, Clone)]
pub struct Policy {
    pub order: logic_node::shutdown::ShutdownPolicy,
    pub node_name: String,
    /// logind's folder for drop-in files.
    pub logind_folder: PathBuf,
    /// The file that records shutdowns; none where they are not measured.
    pub record: Option<PathBuf>,
}

/// The actors that the shutdown manager works with.
#[derive(Debug, Clone)]
pub struct Peers {
    pub pod_manager: Addr<pod_manager::Msg>,
    /// The node status manager; none on a node without an API server.
    pub node: Option<Recipient<NodeShutdown>>,
    pub recorder: Recorder,
}

/// Messages of the shutdown manager.
#[derive(Debug, strum::IntoStaticStr)]
pub enum Msg {
    /// Connects to logind.
    Connect,
    /// Takes what logind says.
    Logind(LogindEvent),
    /// Polls the pods: some may have ended.
    Observe,
    /// Takes the pods that still run, or still have volumes mounted; none if the pod manager did not answer.
    Observed(Box<Option<NodePods>>),
    /// Releases the lock.
    Release,
    /// Reports the shutdown state again: the node status manager restarted.
    Resync,
    /// Takes how the record of the last shutdown was read or written.
    Record(RecordEvent),
}

/// What logind says.
#[derive(Debug)]
pub enum LogindEvent {
    /// The connection, and the lock on it.
    Connected(Box<Result<(LogindConnection, InhibitorLock), LogindError>>),
    /// The new lock after a cancelled shutdown.
    Locked(Box<Result<InhibitorLock, LogindError>>),
    /// The machine goes down: pods end.
    Down,
    /// The shutdown is cancelled: pods may begin again, and a new lock is taken.
    Cancelled,
    /// The stream of signals ended: the manager connects again.
    Ended,
}

/// How the record of the last shutdown was read or written.
#[derive(Debug)]
pub enum RecordEvent {
    Loaded(io::Result<ShutdownRecord>),
    Written(io::Result<()>),
}

/// The state of the shutdown.
#[derive(Debug, Serialize)]
pub struct Snapshot {
    /// Whether the inhibitor lock is held.
    pub locked: bool,
    pub going_down: bool,
    pub steps_left: usize,
    #[serde(rename = "trouble")]
    pub last_error: Option<String>,
}

/// The shutdown manager.
#[derive(Debug)]
pub struct ShutdownManager {
    policy: Policy,
    peers: Peers,

    logind: Option<LogindConnection>,
    lock: Option<InhibitorLock>,
    listening: Option<TaskId>,
    pause: Duration,
    going_down: bool,
    step: Option<ShutdownProgress>,
    steps: Option<Vec<ShutdownStep>>,
    record: ShutdownRecord,
    record_state: RecordState,
    lock_state: LockState,
    last_error: Option<String>,
}

impl Actor for ShutdownManager {
    type Msg = Msg;
    type Snapshot = Snapshot;

    async fn start(&mut self, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        self.connect(ctx);
        if let Some(path) = self.policy.record.clone() {
            ctx.run(async move { Msg::Record(RecordEvent::Loaded(record::read(path).await)) });
        }
        Ok(())
    }

    async fn handle(&mut self, msg: Msg, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        match msg {
            Msg::Connect => self.connect(ctx),
            Msg::Logind(event) => self.logind_event(event, ctx),
            Msg::Observe => self.observe(ctx),
            Msg::Observed(observed) => self.observed(*observed, ctx),
            Msg::Release => self.release(ctx),
            Msg::Resync => self.report_node(),
            Msg::Record(RecordEvent::Loaded(record)) => self.record_loaded(record),
            Msg::Record(RecordEvent::Written(outcome)) => self.record_written(outcome, ctx),
        }
        Ok(())
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot {
            locked: self.lock.is_some(),
            going_down: self.going_down,
            steps_left: self.steps.as_ref().map_or(0, Vec::len),
            last_error: self.last_error.clone(),
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
            last_error: None,
        }
    }

    fn logind_event(&mut self, event: LogindEvent, ctx: &mut Context<Msg>) {
        match event {
            LogindEvent::Connected(outcome) => self.connected(*outcome, ctx),
            LogindEvent::Locked(outcome) => self.locked(*outcome, ctx),
            LogindEvent::Down => self.down(ctx),
            LogindEvent::Cancelled => self.cancelled(ctx),
            LogindEvent::Ended => self.logind_ended(ctx),
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
            Msg::Logind(LogindEvent::Connected(Box::new(connect.await)))
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
                self.last_error = None;
                self.lock = Some(lock);
                self.listen(&logind, ctx);
                self.logind = Some(logind);
            }
            Err(error) => {
                self.complain(error);
                self.reconnect_later(ctx);
            }
        }
    }

    fn listen(&mut self, logind: &LogindConnection, ctx: &mut Context<Msg>) {
        if let Some(task) = self.listening.take() {
            ctx.abort(task);
        }
        let (logind, addr) = (logind.clone(), ctx.addr().clone());
        self.listening = Some(ctx.run(async move {
            let Ok(news) = logind.shutdown_signals().await else {
                return Msg::Logind(LogindEvent::Ended);
            };
            let mut signals = std::pin::pin!(news);
            while let Some(starts) = signals.next().await {
                let sent = match starts {
                    true => addr.tell(Msg::Logind(LogindEvent::Down)),
                    false => addr.tell(Msg::Logind(LogindEvent::Cancelled)),
                };
                if sent.is_err() {
                    break;
                }
            }
            Msg::Logind(LogindEvent::Ended)
        }));
    }

    fn logind_ended(&mut self, ctx: &mut Context<Msg>) {
        self.listening = None;
        tracing::warn!("logind says nothing any more");
        self.reconnect_later(ctx);
    }

    fn reconnect_later(&mut self, ctx: &mut Context<Msg>) {
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
                began: Some(ctx.timestamp()),
                ended: None,
            },
            ctx,
        );
        self.observe(ctx);
    }

    /// Pods that were told to end do end; no others do.
    fn cancelled(&mut self, ctx: &mut Context<Msg>) {
        self.event("Shutdown manager detected shutdown cancellation", ctx);
        self.going_down = false;
        self.step = None;
        self.steps = None;
        self.lock_state = LockState::No;
        self.end(ctx);
        self.tell(NodeShutdown::No);
        if let Some(logind) = self.logind.clone() {
            ctx.run(async move { Msg::Logind(LogindEvent::Locked(Box::new(logind.lock().await))) });
        }
    }

    fn locked(&mut self, outcome: Result<InhibitorLock, LogindError>, ctx: &mut Context<Msg>) {
        match outcome {
            Ok(lock) => self.lock = Some(lock),
            Err(error) => {
                self.complain(error);
                self.reconnect_later(ctx);
            }
        }
    }

    fn tell(&self, state: NodeShutdown) {
        let pod_manager =
            self.peers
                .pod_manager
                .tell(pod_manager::Msg::Node(pod_manager::NodeChange::Shutdown(
                    state,
                )));
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
            ctx.timestamp(),
            EventType::Normal,
            node,
            "NodeShutdown",
            message.to_owned(),
        );
    }

    fn complain(&mut self, error: LogindError) {
        let text = kernel::error_chain(&error);
        if self.last_error.as_ref() != Some(&text) {
            tracing::warn!("the machine will not wait for pods to end: {text}");
        }
        self.last_error = Some(text);
    }
}
