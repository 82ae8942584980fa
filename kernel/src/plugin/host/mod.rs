//! The actor of one plugin.
//!
//! **Owns** the plugin's socket, its generations and its restart history. What must survive a panic
//! of this actor lies in the [`Line`]'s estate, so that its successor finds the running process and
//! goes on with it.
//! **Hears** news of its generations, and the operator's restart, swap and stop.
//! **Tells** whoever follows the [`Line`] where the plugin stands.
//! **Never** starts a generation on a socket whose last generation is not proven dead or abandoned, and never
//! leads callers of a swapped plugin to one that has not said that it is ready.

mod ends;
mod errand;
mod launch;
mod replace;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use serde::{Deserialize, Serialize};
use tokio::sync::watch;

pub use self::errand::HostError;
use self::errand::{Asker, Errand};
use super::abandoned::Abandoned;
use super::channel::{Line, State, View};
use super::declaration::{Declaration, Kind, Start};
use super::generation::{End, Event, Introduction, News, Order};
use super::health::Report;
use super::socket::Socket;
use crate::actor::{Actor, Exit};
use crate::context::{Context, TaskId, TimerId, wall};
use crate::mailbox::Reply;
use crate::restart::History;

/// Everything that can be said to a plugin's host.
#[derive(Debug, strum::IntoStaticStr)]
pub enum Msg {
    /// Takes note of what became of a generation; sent by the host's own tasks.
    News(News),
    /// Starts the plugin again: its back-off is over.
    Due,
    /// Drains and ends the plugin, and starts it again at once; answers with the new generation when
    /// that is ready.
    Restart {
        /// The new generation, or why there is none.
        reply: Asker,
    },
    /// Replaces the plugin by another one of the same name; answers with the new generation when it
    /// serves and the old one is dead. If the new one does not get ready, the old one stays.
    Swap {
        /// What to start.
        declaration: Box<Declaration>,
        /// The new generation, or why there is none.
        reply: Asker,
    },
    /// Takes note that a generation has a thread that is stuck in the kernel. If it is the one that
    /// callers reach, starts another one of the same declaration beside it, which takes over when it is
    /// ready; then the old one is drained and ended, or abandoned. To be told again changes nothing.
    Replace {
        /// Which one.
        generation: u64,
    },
    /// Drains and ends the plugin for good; answers when it is dead.
    Stop {
        /// Sent at the end.
        reply: Reply<()>,
    },
}

/// A plugin as `oxctl plugins` shows it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Snapshot {
    /// As declared.
    pub name: String,
    /// As declared.
    pub kind: Kind,
    /// The socket that it serves.
    pub socket: PathBuf,
    /// Where it stands.
    pub state: State,
    /// Since when.
    pub since: SystemTime,
    /// Why it is not ready. Empty when it is.
    pub reason: String,
    /// Which process, counted from the first.
    pub generation: u64,
    /// The process; none for an endpoint of somebody else.
    pub pid: Option<u32>,
    /// The program's own name and version, if it says.
    pub program: String,
    /// How often it was restarted without being asked to.
    pub restarts: u64,
    /// How the last generation ended.
    pub last_exit: Option<String>,
    /// Processes that were killed, do not end, and were given up.
    #[serde(default)]
    pub abandoned: Vec<Abandoned>,
    /// What the operator should know although it is ready. Empty when there is nothing.
    #[serde(default)]
    pub warning: String,
    /// What it says of itself.
    pub attributes: BTreeMap<String, String>,
}

/// The actor of one plugin.
#[derive(Debug)]
pub struct Host {
    declaration: Arc<Declaration>,
    folder: Arc<Path>,
    line: Line,

    history: History,
    /// The generation that callers reach, or will.
    current: Option<Alive>,
    /// A swap's new generation, until it is ready.
    next: Option<Alive>,
    /// A swap's old generation, until it is dead.
    retired: Option<Alive>,
    errand: Option<Errand>,
    /// The generation that is said to have a stuck thread, until it is replaced.
    stuck: Option<u64>,
    /// Waits until a stuck generation may be replaced.
    room: Option<TaskId>,
    due: Option<TimerId>,
    since: SystemTime,
}

/// What a generation is to its host.
#[derive(Clone, Copy, Debug)]
enum Role {
    Current,
    Next,
    Retired,
}

/// A generation that has not ended.
#[derive(Debug)]
struct Alive {
    generation: u64,
    declaration: Arc<Declaration>,
    socket: Option<Arc<Socket>>,
    orders: watch::Sender<Order>,
    pid: Option<u32>,
    introduction: Introduction,
    /// Why it cannot be reached yet.
    unreachable: String,
    /// The last report. The first one makes it ready.
    report: Option<Report>,
    started: Instant,
}

impl Host {
    /// Hosts the plugin as declared, unless a swap has changed that since. Sockets and the plugins'
    /// own folders lie in `folder`.
    pub fn new(declaration: Declaration, folder: impl Into<PathBuf>, line: Line) -> Self {
        let swapped = line.estate().declaration.clone();
        Self {
            declaration: swapped.unwrap_or_else(|| Arc::new(declaration)),
            folder: folder.into().into(),
            line,
            history: History::default(),
            current: None,
            next: None,
            retired: None,
            errand: None,
            stuck: None,
            room: None,
            due: None,
            since: wall(),
        }
    }
}

impl Actor for Host {
    type Msg = Msg;
    type Snapshot = Snapshot;

    async fn start(&mut self, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        if let Err(error) = self.declaration.check() {
            // To start again would change nothing; the operator reads why.
            self.show(State::Failed, error.to_string(), ctx);
            return Ok(());
        }
        let spawning = self.line.spawning().await;
        let others = self.line.estate().others();
        let patience = self.declaration.patience();
        let ends = others
            .iter()
            .map(|(generation, process)| self.line.kill(*generation, process, patience));
        futures_util::future::join_all(ends).await;
        drop(spawning);
        let heir = self.line.estate().heir();
        self.launch(heir, ctx);
        Ok(())
    }

    async fn handle(&mut self, msg: Msg, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        match msg {
            Msg::News(news) => self.news(news, ctx),
            Msg::Due => self.due(ctx),
            Msg::Restart { reply } => self.restart(reply, ctx),
            Msg::Swap { declaration, reply } => self.swap(*declaration, reply, ctx),
            Msg::Replace { generation } => self.note_stuck(generation, ctx),
            Msg::Stop { reply } => self.stop_plugin(reply, ctx),
        }
        Ok(())
    }

    async fn stop(&mut self, ctx: &mut Context<Msg>) {
        self.show(State::Stopped, "the agent is ending".to_owned(), ctx);
        let processes = self.line.estate().all();
        let patience = self.declaration.patience();
        let ends = processes
            .iter()
            .map(|(generation, process)| self.line.terminate(*generation, process, patience));
        futures_util::future::join_all(ends).await;
    }

    fn snapshot(&self) -> Snapshot {
        let View {
            state,
            generation,
            reason,
        } = self.line.state();
        let alive = self.current.as_ref();
        let report = alive.and_then(|alive| alive.report.as_ref());
        let estate = self.line.estate();
        Snapshot {
            name: self.declaration.name.clone(),
            kind: self.declaration.kind,
            socket: match &self.declaration.start {
                Start::Managed { .. } => self.socket_path(),
                Start::External { endpoint } => endpoint.clone(),
            },
            state,
            since: self.since,
            reason,
            generation,
            pid: alive.and_then(|alive| alive.pid),
            program: alive
                .map(|alive| alive.introduction.program.clone())
                .unwrap_or_default(),
            restarts: estate.restarts,
            last_exit: estate.last_exit.clone(),
            abandoned: self.line.abandonments().borrow().clone(),
            warning: self.warning(),
            attributes: report
                .map(|report| report.attributes.clone())
                .unwrap_or_default(),
        }
    }
}

impl Host {
    fn news(&mut self, News { generation, event }: News, ctx: &mut Context<Msg>) {
        let role = self.role(generation);
        let slot = match role {
            Some(Role::Current) => &mut self.current,
            Some(Role::Next) => &mut self.next,
            Some(Role::Retired) => &mut self.retired,
            // Of an earlier incarnation of this actor, or of a swap that came to nothing.
            None => return,
        };
        let Some(alive) = slot else { return };
        match event {
            Event::Started { pid } => alive.pid = Some(pid),
            Event::Introduced(introduction) => alive.introduction = introduction,
            Event::Reported(report) => alive.report = Some(report),
            Event::Unreachable { why } => alive.unreachable = why,
            Event::Ended(end) => return self.ended(role, end, ctx),
        }
        match role {
            Some(Role::Current) => self.show_current(ctx),
            Some(Role::Next) => self.take_over(ctx),
            Some(Role::Retired) | None => {}
        }
    }

    fn ended(&mut self, role: Option<Role>, end: End, ctx: &mut Context<Msg>) {
        match role {
            Some(Role::Current) => self.current_ended(end, ctx),
            Some(Role::Next) => self.next_ended(end, ctx),
            Some(Role::Retired) => self.retired_ended(end, ctx),
            None => {}
        }
    }

    fn role(&self, generation: u64) -> Option<Role> {
        let roles = [
            (Role::Current, &self.current),
            (Role::Next, &self.next),
            (Role::Retired, &self.retired),
        ];
        let is = |alive: &Alive| alive.generation == generation;
        roles
            .into_iter()
            .find(|(_, alive)| alive.as_ref().is_some_and(is))
            .map(|(role, _)| role)
    }

    fn due(&mut self, ctx: &mut Context<Msg>) {
        self.due = None;
        if self.current.is_none() && self.next.is_none() {
            self.launch(None, ctx);
        }
    }

    fn show_current(&mut self, ctx: &Context<Msg>) {
        let Some(alive) = &self.current else { return };
        if *alive.orders.borrow() == Order::Finish {
            return;
        }
        let Some(report) = &alive.report else {
            return self.show_unreachable(alive.unreachable.clone(), ctx);
        };
        let (generation, reason) = (alive.generation, report.reason.clone());
        let state = if report.healthy {
            State::Ready
        } else {
            State::Degraded
        };
        self.show(state, reason, ctx);
        match self.errand.take() {
            Some(Errand::Restart(asker) | Errand::SwapAlone { asker, .. }) => {
                asker.send(Ok(generation))
            }
            Some(Errand::ReplaceAlone) => {}
            other => self.errand = other,
        }
    }

    fn show_unreachable(&mut self, why: String, ctx: &Context<Msg>) {
        if why.is_empty() {
            return;
        }
        match self.errand.take() {
            // It may stay away for long; who asked for it need not wait.
            Some(Errand::Restart(asker)) => asker.send(Err(self.not_ready(&why))),
            other => self.errand = other,
        }
        self.show(State::Starting, why, ctx);
    }

    fn show(&mut self, state: State, reason: String, ctx: &Context<Msg>) {
        let before = self.line.state();
        if before.state != state {
            self.since = ctx.wall();
        }
        let generation = self
            .current
            .as_ref()
            .map_or(before.generation, |alive| alive.generation);
        let view = View {
            state,
            generation,
            reason,
        };
        if view != before {
            let (plugin, reason) = (&self.declaration.name, &view.reason);
            tracing::info!(plugin, generation, reason, "plugin is {state}");
        }
        self.line.show(view);
    }

    fn note_exit(&mut self, exit: Option<String>) {
        if exit.is_some() {
            self.line.estate().last_exit = exit;
        }
    }

    fn cancel_due(&mut self, ctx: &mut Context<Msg>) {
        if let Some(timer) = self.due.take() {
            ctx.cancel(timer);
        }
    }

    fn socket_path(&self) -> PathBuf {
        self.folder.join(format!("{}.sock", self.declaration.name))
    }
}

impl Alive {
    fn ready(&self) -> bool {
        self.report.is_some()
    }
}
