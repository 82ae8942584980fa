//! The actor of one plugin.
//!
//! **Owns** the plugin's socket, its generations and its restart history; what must survive a panic
//! of this actor lies in the [`Line`]'s estate, so the successor finds the running process and goes
//! on with it.
//! **Hears** news of its generations, and the operator's restart, swap and stop.
//! **Tells** whoever follows the [`Line`] where the plugin stands.
//! **Never** starts a generation on a socket whose last generation is not proven dead, and never
//! leads callers to one that has not said that it is ready.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::channel::{Line, Route, State, View};
use super::declaration::{Declaration, DeclarationError, Kind, Start};
use super::generation::{End, Event, Introduction, Life, News, Order};
use super::health::Report;
use super::process::Process;
use super::socket::{Socket, private_folder};
use crate::actor::{Actor, Exit};
use crate::context::{Context, TimerId};
use crate::mailbox::Reply;
use crate::restart::{Decision, History, LONGEST_PAUSE, decide};

/// A plugin with this ability must have its folder for itself: a swap ends the old generation before
/// it starts the new one, and calls wait meanwhile.
const ALONE: &str = "alone";

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
        reply: Reply<Result<u64, HostError>>,
    },
    /// Replaces the plugin by another one of the same name; answers with the new generation when it
    /// serves and the old one is dead. If the new one does not get ready, the old one stays.
    Swap {
        /// What to start.
        declaration: Box<Declaration>,
        /// The new generation, or why there is none.
        reply: Reply<Result<u64, HostError>>,
    },
    /// Drains and ends the plugin for good; answers when it is dead.
    Stop {
        /// Sent at the end.
        reply: Reply<()>,
    },
}

/// Why a restart or a swap came to nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    /// One at a time.
    #[error("another restart, swap or stop of plugin {plugin} is under way")]
    Busy {
        /// The plugin's name.
        plugin: String,
    },
    /// The new generation was of no use.
    #[error("the new generation of plugin {plugin} did not get ready: {why}")]
    NotReady {
        /// The plugin's name.
        plugin: String,
        /// In words.
        why: String,
    },
    /// A plugin cannot become another one's.
    #[error("plugin {plugin} cannot be swapped for {other}, which has another name or kind")]
    Other {
        /// The plugin's name.
        plugin: String,
        /// The name that was declared.
        other: String,
    },
    /// The declaration is of no use.
    #[error("the declaration is refused")]
    Declaration(#[from] DeclarationError),
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
    due: Option<TimerId>,
    since: SystemTime,
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

/// What the operator waits for.
#[derive(Debug)]
enum Errand {
    Restart(Reply<Result<u64, HostError>>),
    Swap(Reply<Result<u64, HostError>>),
    /// A swap whose old generation ends first; the old declaration is the way back.
    SwapAlone {
        reply: Reply<Result<u64, HostError>>,
        way_back: Arc<Declaration>,
    },
    Stop(Reply<()>),
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
            due: None,
            since: crate::context::wall(),
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
        let others = self.line.estate().take_others();
        for process in others {
            process.kill().await;
        }
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
            Msg::Stop { reply } => self.stop_plugin(reply, ctx),
        }
        Ok(())
    }

    async fn stop(&mut self, ctx: &mut Context<Msg>) {
        self.show(State::Stopped, "the agent is ending".to_owned(), ctx);
        let processes = std::mem::take(&mut self.line.estate().processes);
        let ends = processes
            .values()
            .map(|process| process.terminate(self.declaration.term_within));
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
            attributes: report
                .map(|report| report.attributes.clone())
                .unwrap_or_default(),
        }
    }
}

impl Host {
    fn news(&mut self, News { generation, event }: News, ctx: &mut Context<Msg>) {
        let is = |alive: &Option<Alive>| {
            alive
                .as_ref()
                .is_some_and(|alive| alive.generation == generation)
        };
        if let Event::Ended(end) = event {
            if is(&self.current) {
                self.current_ended(end, ctx);
            } else if is(&self.next) {
                self.next_ended(end, ctx);
            } else if is(&self.retired) {
                self.retired_ended(end);
            }
            return;
        }
        let (current, next) = (is(&self.current), is(&self.next));
        let slots = [&mut self.current, &mut self.next, &mut self.retired];
        let Some(alive) = slots
            .into_iter()
            .flatten()
            .find(|alive| alive.generation == generation)
        else {
            return;
        };
        match event {
            Event::Started { pid } => alive.pid = Some(pid),
            Event::Introduced(introduction) => alive.introduction = introduction,
            Event::Reported(report) => alive.report = Some(report),
            Event::Unreachable { why } => alive.unreachable = why,
            Event::Ended(_) => {}
        }
        if current {
            self.show_current(ctx);
        } else if next {
            self.take_over(ctx);
        }
    }

    fn due(&mut self, ctx: &mut Context<Msg>) {
        self.due = None;
        if self.current.is_none() && self.next.is_none() {
            self.launch(None, ctx);
        }
    }

    fn restart(&mut self, reply: Reply<Result<u64, HostError>>, ctx: &mut Context<Msg>) {
        if self.errand.is_some() {
            return reply.send(Err(self.busy()));
        }
        tracing::info!(plugin = self.declaration.name, "restart asked for");
        self.errand = Some(Errand::Restart(reply));
        self.history = History::default();
        self.end_current_or(ctx, |host, ctx| host.launch(None, ctx));
    }

    fn swap(
        &mut self,
        declaration: Declaration,
        reply: Reply<Result<u64, HostError>>,
        ctx: &mut Context<Msg>,
    ) {
        if self.errand.is_some() {
            return reply.send(Err(self.busy()));
        }
        if let Err(error) = declaration.check() {
            return reply.send(Err(error.into()));
        }
        if (&declaration.name, declaration.kind) != (&self.declaration.name, self.declaration.kind)
        {
            let plugin = self.declaration.name.clone();
            return reply.send(Err(HostError::Other {
                plugin,
                other: declaration.name,
            }));
        }
        tracing::info!(plugin = declaration.name, "swap asked for");
        let declaration = Arc::new(declaration);
        self.cancel_due(ctx);
        let alone = |alive: &Alive| {
            alive
                .introduction
                .capabilities
                .iter()
                .any(|ability| ability == ALONE)
        };
        if self.current.as_ref().is_some_and(alone) {
            let way_back = std::mem::replace(&mut self.declaration, declaration);
            self.errand = Some(Errand::SwapAlone { reply, way_back });
            return self.end_current_or(ctx, |host, ctx| host.launch(None, ctx));
        }
        self.errand = Some(Errand::Swap(reply));
        let path = self.folder.join(format!("{}.next.sock", declaration.name));
        match self.socket_for(&declaration, &path) {
            Ok(socket) => self.next = Some(self.begin(declaration, socket, None, ctx)),
            Err(why) => self.next_ended(End::Failed { why, exit: None }, ctx),
        }
    }

    fn stop_plugin(&mut self, reply: Reply<()>, ctx: &mut Context<Msg>) {
        self.cancel_due(ctx);
        match self.errand.replace(Errand::Stop(reply)) {
            Some(
                Errand::Restart(asker)
                | Errand::Swap(asker)
                | Errand::SwapAlone { reply: asker, .. },
            ) => {
                asker.send(Err(self.not_ready("it was stopped meanwhile")));
            }
            Some(Errand::Stop(asker)) => asker.send(()),
            None => {}
        }
        for alive in [&self.next, &self.retired].into_iter().flatten() {
            alive.orders.send_replace(Order::Finish);
        }
        self.end_current_or(ctx, |host, ctx| host.stopped(ctx));
    }

    /// The generation that callers reach has ended.
    fn current_ended(&mut self, end: End, ctx: &mut Context<Msg>) {
        let Some(ended) = self.current.take() else {
            return;
        };
        let ordered = *ended.orders.borrow() == Order::Finish;
        let (why, exit) = match end {
            End::Finished { exit } => (String::new(), exit),
            End::Failed { why, exit } => (why, exit),
        };
        self.note_exit(exit);
        if self.next.is_some() {
            // A swap is under way: its new generation will serve, or the old declaration starts again.
            return self.show(State::Starting, why, ctx);
        }
        match self.errand.take() {
            Some(Errand::Stop(reply)) => {
                self.errand = Some(Errand::Stop(reply));
                self.stopped(ctx);
            }
            Some(errand) if ordered => {
                self.errand = Some(errand);
                self.launch(None, ctx);
            }
            Some(Errand::SwapAlone { reply, way_back }) => {
                reply.send(Err(self.not_ready(&why)));
                self.declaration = way_back;
                self.launch(None, ctx);
            }
            Some(Errand::Restart(reply) | Errand::Swap(reply)) => {
                reply.send(Err(self.not_ready(&why)));
                self.failed(&ended, why, ctx);
            }
            None => self.failed(&ended, why, ctx),
        }
    }

    /// The new generation of a swap was of no use: the old one stays.
    fn next_ended(&mut self, end: End, ctx: &mut Context<Msg>) {
        self.next = None;
        let why = match end {
            End::Failed { why, .. } => why,
            End::Finished { .. } => "it was ended".to_owned(),
        };
        match self.errand.take() {
            Some(Errand::Stop(reply)) => {
                self.errand = Some(Errand::Stop(reply));
                return if self.current.is_none() {
                    self.stopped(ctx)
                };
            }
            Some(
                Errand::Swap(reply) | Errand::Restart(reply) | Errand::SwapAlone { reply, .. },
            ) => {
                tracing::warn!(plugin = self.declaration.name, why, "swap came to nothing");
                reply.send(Err(self.not_ready(&why)));
            }
            None => {}
        }
        if self.current.is_none() && self.due.is_none() {
            self.launch(None, ctx);
        }
    }

    /// The old generation of a swap is dead: the swap is done.
    fn retired_ended(&mut self, end: End) {
        let (End::Finished { exit } | End::Failed { exit, .. }) = end;
        self.note_exit(exit);
        self.retired = None;
        self.swapped();
    }

    /// The new generation of a swap has spoken: if it is ready, callers are led to it.
    fn take_over(&mut self, ctx: &mut Context<Msg>) {
        let Some(next) = self.next.take_if(|next| next.ready()) else {
            return;
        };
        if let Err(why) = self.adopt_name(&next) {
            next.orders.send_replace(Order::Finish);
            return self.next_ended(End::Failed { why, exit: None }, ctx);
        }
        let retired = self.current.replace(next);
        self.retired = retired;
        self.settle_in();
        self.show_current(ctx);
        match &self.retired {
            Some(retired) => {
                retired.orders.send_replace(Order::Finish);
            }
            None => self.swapped(),
        }
    }

    /// Counts a failure, and starts the plugin again: at once, after a pause, or after a long one.
    fn failed(&mut self, ended: &Alive, why: String, ctx: &mut Context<Msg>) {
        let now = ctx.now();
        self.line.estate().restarts += 1;
        // Time spent on the way to readiness is no success.
        let since = if ended.ready() { ended.started } else { now };
        self.history.failed(since, now, self.declaration.intensity);
        let external = matches!(self.declaration.start, Start::External { .. });
        let (state, pause) = match decide(&self.history, now, self.declaration.intensity) {
            // Nothing is started: to connect costs nothing, and the sooner it is back the better.
            Decision::RestartAfter(pause) if external => {
                (State::Starting, pause.min(self.declaration.health_interval))
            }
            Decision::RestartAfter(pause) => (State::Starting, pause),
            Decision::Escalate if external => (State::Failed, self.declaration.health_interval),
            Decision::Escalate => (State::Failed, LONGEST_PAUSE),
        };
        tracing::warn!(
            plugin = self.declaration.name,
            why,
            ?pause,
            "restarting a plugin that failed"
        );
        self.show(state, why, ctx);
        if pause.is_zero() {
            self.launch(None, ctx);
        } else {
            self.due = Some(ctx.after(pause, Msg::Due));
        }
    }

    /// Starts the next generation on the plugin's own socket, or goes on with an inherited process.
    fn launch(&mut self, heir: Option<(u64, Process)>, ctx: &mut Context<Msg>) {
        self.cancel_due(ctx);
        let declaration = self.declaration.clone();
        let kept = self
            .line
            .estate()
            .socket
            .clone()
            .filter(|socket| socket.reachable());
        let socket = match kept {
            Some(socket) if matches!(declaration.start, Start::Managed { .. }) => Ok(Some(socket)),
            Some(_) | None => self.socket_for(&declaration, &self.socket_path()),
        };
        let (socket, why) = match socket {
            Ok(socket) => (socket, String::new()),
            Err(why) => (None, why),
        };
        let alive = self.begin(declaration, socket, heir, ctx);
        self.current = Some(alive);
        self.settle_in();
        // Why the last one failed stays to be read until this one is ready.
        let before = self.line.state();
        let failed = matches!(before.state, State::Starting | State::Failed);
        let why = if why.is_empty() && failed {
            before.reason
        } else {
            why
        };
        self.show(State::Starting, why, ctx);
    }

    fn begin(
        &mut self,
        declaration: Arc<Declaration>,
        socket: Option<Arc<Socket>>,
        heir: Option<(u64, Process)>,
        ctx: &mut Context<Msg>,
    ) -> Alive {
        let (generation, inherited) = match heir {
            Some((generation, process)) => (generation, Some(process)),
            None => {
                let mut estate = self.line.estate();
                estate.generation += 1;
                (estate.generation, None)
            }
        };
        let (orders, ordered) = watch::channel(Order::Serve);
        let life = Life {
            generation,
            declaration: declaration.clone(),
            line: self.line.clone(),
            folder: self.folder.clone(),
            socket: socket.clone(),
            inherited,
            orders: ordered,
            host: ctx.addr().clone(),
        };
        ctx.run(life.live());
        Alive {
            generation,
            declaration,
            socket,
            orders,
            pid: None,
            introduction: Introduction::default(),
            unreachable: String::new(),
            report: None,
            started: ctx.now(),
        }
    }

    /// Makes the current generation the one that callers reach and a successor of this actor finds.
    fn settle_in(&mut self) {
        let Some(alive) = &self.current else { return };
        self.declaration = alive.declaration.clone();
        let route = match (&alive.declaration.start, &alive.socket) {
            (Start::External { endpoint }, _) => Some(Route::Foreign(endpoint.clone())),
            (Start::Managed { .. }, Some(socket)) => Some(Route::Kept(socket.path())),
            (Start::Managed { .. }, None) => None,
        };
        let mut estate = self.line.estate();
        let same_socket = match (&estate.socket, &alive.socket) {
            (Some(before), Some(now)) => Arc::ptr_eq(before, now),
            (None, None) | (None, Some(_)) | (Some(_), None) => false,
        };
        estate.current = Some(alive.generation);
        estate.socket.clone_from(&alive.socket);
        estate.declaration = Some(alive.declaration.clone());
        drop(estate);
        if let Some(route) = route.filter(|_| !same_socket) {
            self.line.lead(route);
        }
    }

    /// Gives a swap's new socket the plugin's own name.
    fn adopt_name(&self, next: &Alive) -> Result<(), String> {
        let Some(socket) = &next.socket else {
            return Ok(());
        };
        let path = self.socket_path();
        socket
            .rename(&path)
            .map_err(|error| format!("cannot rename its socket to {}: {error}", path.display()))
    }

    fn socket_for(
        &self,
        declaration: &Declaration,
        path: &Path,
    ) -> Result<Option<Arc<Socket>>, String> {
        if let Start::External { .. } = declaration.start {
            return Ok(None);
        }
        let bound = private_folder(&self.folder).and_then(|()| Socket::bind(path));
        match bound {
            Ok(socket) => Ok(Some(Arc::new(socket))),
            Err(error) => Err(format!("cannot listen on {}: {error}", path.display())),
        }
    }

    /// Orders the current generation to end; what follows comes with its end, or at once.
    fn end_current_or(
        &mut self,
        ctx: &mut Context<Msg>,
        otherwise: fn(&mut Self, &mut Context<Msg>),
    ) {
        match &self.current {
            Some(alive) => {
                alive.orders.send_replace(Order::Finish);
                self.show(State::Draining, String::new(), ctx);
            }
            None if self.next.is_some() || self.retired.is_some() => {}
            None => otherwise(self, ctx),
        }
    }

    fn stopped(&mut self, ctx: &mut Context<Msg>) {
        self.show(State::Stopped, String::new(), ctx);
        if let Some(Errand::Stop(reply)) = self.errand.take() {
            reply.send(());
        }
    }

    fn swapped(&mut self) {
        let generation = self.current.as_ref().map(|alive| alive.generation);
        if let Some(generation) = generation
            && let Some(Errand::Swap(reply)) = self
                .errand
                .take_if(|errand| matches!(errand, Errand::Swap(_)))
        {
            reply.send(Ok(generation));
        }
    }

    fn show_current(&mut self, ctx: &Context<Msg>) {
        let Some(alive) = &self.current else { return };
        if *alive.orders.borrow() == Order::Finish {
            return;
        }
        let Some(report) = &alive.report else {
            if !alive.unreachable.is_empty() {
                self.show(State::Starting, alive.unreachable.clone(), ctx);
            }
            return;
        };
        let (generation, reason) = (alive.generation, report.reason.clone());
        let state = if report.healthy {
            State::Ready
        } else {
            State::Degraded
        };
        self.show(state, reason, ctx);
        match self.errand.take() {
            Some(Errand::Restart(reply) | Errand::SwapAlone { reply, .. }) => {
                reply.send(Ok(generation))
            }
            other => self.errand = other,
        }
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

    fn busy(&self) -> HostError {
        HostError::Busy {
            plugin: self.declaration.name.clone(),
        }
    }

    fn not_ready(&self, why: &str) -> HostError {
        HostError::NotReady {
            plugin: self.declaration.name.clone(),
            why: why.to_owned(),
        }
    }
}

impl Alive {
    fn ready(&self) -> bool {
        self.report.is_some()
    }
}
