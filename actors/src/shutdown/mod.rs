//! A node that goes down takes its pods with it in order: the less important first, each within its grace.
//!
//! - **Owns** the lock that makes the machine wait, and the steps that are left.
//! - **Hears** from logind that the machine goes down, or does not after all.
//! - **Tells** the directory which pods end and that none may begin, the node's object that it is not ready.
//! - **Never** keeps the machine longer than the configuration says; never gives the lock back before the last step is
//!   over and what became of the pods has been told.
//!
//! Upstream: pkg/kubelet/nodeshutdown/nodeshutdown_manager_linux.go (1.36). Decisions: `logic::shutdown`.

mod logind;
mod noting;
pub mod record;
mod steps;
#[cfg(test)]
mod tests;

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use cluster::events::{Object, Recorder, Type};
use futures_util::StreamExt;
use jiff::Timestamp;
use kernel::{Actor, Addr, Context, Exit, Recipient, TaskId};
use logic::admission::ShuttingDown;
use logic::shutdown::Step;
use serde::Serialize;

pub use self::logind::LogindError;
use self::logind::{Lock, Logind};
use self::noting::{Noting, Releasing};
use self::record::Record;
use self::steps::Going;
pub use self::steps::Seen;
use crate::{directory, volumes};

/// It hears logind and its own looks.
pub const MAILBOX: usize = 16;

/// Before the bus is tried again: upstream's `dbusReconnectPeriod`.
const RECONNECT: Duration = Duration::from_secs(1);
/// The same while it goes on failing: a machine without logind is not asked all day.
const RECONNECT_AT_MOST: Duration = Duration::from_secs(60);

/// The section of the configuration.
#[derive(Debug, Clone)]
pub struct Policy {
    pub order: logic::shutdown::Policy,
    pub node_name: String,
    /// logind's own folder for files that overrule its settings.
    pub logind_folder: PathBuf,
    /// Where it is noted when the node goes down; none where nobody measures that.
    pub record: Option<PathBuf>,
}

/// Whom it works with.
#[derive(Debug, Clone)]
pub struct Peers {
    pub directory: Addr<directory::Msg>,
    pub volumes: Addr<volumes::Msg>,
    /// The node's object, if there is one.
    pub node: Option<Recipient<ShuttingDown>>,
    pub recorder: Recorder,
}

/// What the keeper of the lock is told.
#[derive(Debug, strum::IntoStaticStr)]
pub enum Msg {
    /// Connects to logind.
    Connect,
    /// Holds the lock, and listens.
    Connected(Box<Result<(Logind, Lock), LogindError>>),
    /// Begins to end pods.
    Down,
    /// Lets pods begin again, and takes a new lock.
    Cancelled,
    /// Takes the new lock.
    Locked(Box<Result<Lock, LogindError>>),
    /// Goes on: some of what was waited for may have ended.
    Look,
    /// Learns what still runs, or holds volumes.
    Seen(Box<Option<Seen>>),
    /// Connects again: logind says nothing any more.
    Silent,
    /// Lets the machine go on.
    Release,
    /// Tells the node's object again whether the node goes down: its keeper has a successor.
    TellAgain,
    /// Shows when an earlier life went down.
    Remembered(io::Result<Record>),
    /// Goes on: it is noted, or cannot be.
    Noted(io::Result<()>),
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
pub struct Shutdown {
    policy: Policy,
    peers: Peers,

    logind: Option<Logind>,
    lock: Option<Lock>,
    listening: Option<TaskId>,
    pause: Duration,
    going_down: bool,
    going: Option<Going>,
    steps: Option<Vec<Step>>,
    record: Record,
    noting: Noting,
    releasing: Releasing,
    trouble: Option<String>,
}

impl Actor for Shutdown {
    type Msg = Msg;
    type Snapshot = Snapshot;

    async fn start(&mut self, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        self.connect(ctx);
        if let Some(path) = self.policy.record.clone() {
            ctx.run(async move { Msg::Remembered(record::read(path).await) });
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
            Msg::Look => self.look(ctx),
            Msg::Seen(seen) => self.seen(*seen, ctx),
            Msg::Silent => self.silent(ctx),
            Msg::Release => self.release(ctx),
            Msg::TellAgain => self.tell_node(),
            Msg::Remembered(record) => self.remembered(record),
            Msg::Noted(outcome) => self.noted(outcome, ctx),
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

impl Shutdown {
    pub fn new(policy: Policy, peers: Peers) -> Self {
        Shutdown {
            policy,
            peers,
            logind: None,
            lock: None,
            listening: None,
            pause: RECONNECT,
            going_down: false,
            going: None,
            steps: None,
            record: Record::default(),
            noting: Noting::No,
            releasing: Releasing::No,
            trouble: None,
        }
    }

    fn connect(&mut self, ctx: &mut Context<Msg>) {
        let (wanted, folder) = (self.policy.order.total(), self.policy.logind_folder.clone());
        ctx.run(async move {
            let connect = async {
                let logind = Logind::connect(wanted, &folder).await?;
                let lock = logind.lock().await?;
                Ok((logind, lock))
            };
            Msg::Connected(Box::new(connect.await))
        });
    }

    fn connected(&mut self, outcome: Result<(Logind, Lock), LogindError>, ctx: &mut Context<Msg>) {
        match outcome {
            Ok((logind, lock)) => {
                self.pause = RECONNECT;
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

    fn listen(&mut self, logind: &Logind, ctx: &mut Context<Msg>) {
        if let Some(task) = self.listening.take() {
            ctx.abort(task);
        }
        let (logind, addr) = (logind.clone(), ctx.addr().clone());
        self.listening = Some(ctx.run(async move {
            let Ok(news) = logind.news().await else {
                return Msg::Silent;
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
            Msg::Silent
        }));
    }

    fn silent(&mut self, ctx: &mut Context<Msg>) {
        self.listening = None;
        tracing::warn!("logind says nothing any more");
        self.again(ctx);
    }

    fn again(&mut self, ctx: &mut Context<Msg>) {
        ctx.after(self.pause, Msg::Connect);
        self.pause = (self.pause * 2).min(RECONNECT_AT_MOST);
    }

    fn down(&mut self, ctx: &mut Context<Msg>) {
        if std::mem::replace(&mut self.going_down, true) {
            return;
        }
        self.event("Shutdown manager detected shutdown event", ctx);
        self.tell(ShuttingDown::Yes);
        self.steps = None;
        self.note(
            Record {
                began: Some(timestamp(ctx)),
                ended: None,
            },
            ctx,
        );
        self.look(ctx);
    }

    /// What has been told to end ends; nothing else does.
    fn cancelled(&mut self, ctx: &mut Context<Msg>) {
        self.event("Shutdown manager detected shutdown cancellation", ctx);
        self.going_down = false;
        self.going = None;
        self.steps = None;
        self.releasing = Releasing::No;
        self.end(ctx);
        self.tell(ShuttingDown::No);
        if let Some(logind) = self.logind.clone() {
            ctx.run(async move { Msg::Locked(Box::new(logind.lock().await)) });
        }
    }

    fn locked(&mut self, outcome: Result<Lock, LogindError>, ctx: &mut Context<Msg>) {
        match outcome {
            Ok(lock) => self.lock = Some(lock),
            Err(error) => {
                self.complain(error);
                self.again(ctx);
            }
        }
    }

    fn tell(&self, state: ShuttingDown) {
        let directory = self
            .peers
            .directory
            .tell(directory::Msg::ShuttingDown(state));
        if directory.is_err() {
            tracing::warn!("not everybody knows whether the node goes down: a mailbox is full");
        }
        self.tell_node();
    }

    fn tell_node(&self) {
        let state = match self.going_down {
            true => ShuttingDown::Yes,
            false => ShuttingDown::No,
        };
        if let Some(node) = &self.peers.node
            && let Err(full) = node.tell(state)
        {
            tracing::warn!("the node's object does not show whether the node goes down: {full}");
        }
    }

    fn event(&self, message: &str, ctx: &Context<Msg>) {
        let node = Object::node(&self.policy.node_name);
        self.peers.recorder.record(
            timestamp(ctx),
            Type::Normal,
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
