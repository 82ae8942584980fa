//! The actor of one plugin.
//!
//! **Owns** the plugin's socket, its generations and its restart history. What must survive a panic
//! of this actor lies in the [`PluginClient`]'s persistent state, so that the restarted actor finds the running
//! process and goes on with it.
//! **Hears** state changes of its generations, and the operator's restart, swap and stop.
//! **Tells** the subscribers of the [`PluginClient`] the plugin's state.
//! **Never** starts a generation on a socket whose last generation is not proven dead or abandoned, and never leads
//! callers of a swapped plugin to one that has not reported that it is ready.

mod admin_request;
mod exit;
mod launch;
mod replace;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use kernel::supervisor::restart::RestartHistory;
use kernel::watch;
use kernel::{Actor, Context, Exit, TaskId, TimerId, wall};
use serde::{Deserialize, Serialize};

use self::admin_request::AdminRequest;
use crate::client::{PluginClient, PluginState, PluginStatus};
use crate::confinement::{Confined, Confiner};
use crate::declaration::{Declaration, LaunchMethod, ServiceKind};
use crate::generation::update::{
    GenerationCommand, GenerationEvent, GenerationExit, GenerationUpdate, PluginIdentity,
};
use crate::health::PluginHealth;
use crate::message::Msg;
use crate::persistent::Abandoned;
use crate::process::socket::PluginSocket;

/// A plugin as `oxctl plugins` shows it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Snapshot {
    /// The declared name.
    pub name: String,
    /// The declared kind.
    pub kind: ServiceKind,
    /// The socket that it serves.
    pub socket: PathBuf,
    /// The plugin's state.
    pub state: PluginState,
    /// When the state last changed.
    pub since: SystemTime,
    /// Why it is not ready. Empty when it is.
    pub reason: String,
    /// Which process, counted from the first.
    pub generation: u64,
    /// The process; none for an external plugin.
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
    /// A warning for the operator although the plugin is ready. Empty when there is none.
    #[serde(default)]
    pub warning: String,
    /// What its process is confined to; none for an external plugin, and until its program runs.
    #[serde(default)]
    pub confined: Option<Confined>,
    /// The attributes of its last health report.
    pub attributes: BTreeMap<String, String>,
}

/// Is told of each end of a plugin that nobody ordered, with the reason in words, before it is started again.
#[derive(Clone)]
pub struct FailureListener(Rc<dyn Fn(&str)>);

impl FailureListener {
    /// Calls `hear` on the actors' thread; it must not wait.
    pub fn new(hear: impl Fn(&str) + 'static) -> Self {
        Self(Rc::new(hear))
    }
}

impl fmt::Debug for FailureListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FailureListener")
    }
}

/// The actor of one plugin.
#[derive(Debug)]
pub struct PluginHost {
    declaration: Arc<Declaration>,
    folder: Arc<Path>,
    line: PluginClient,
    /// None where processes are started as they are.
    confiner: Option<Arc<Confiner>>,
    listener: Option<FailureListener>,

    history: RestartHistory,
    /// The generation that callers reach, or will.
    current: Option<LiveGeneration>,
    /// A swap's new generation, until it is ready.
    next: Option<LiveGeneration>,
    /// A swap's old generation, until it is dead.
    retired: Option<LiveGeneration>,
    admin_request: Option<AdminRequest>,
    /// The generation that has a stuck thread, until it is replaced.
    stuck: Option<u64>,
    /// Waits until a stuck generation may be replaced.
    room: Option<TaskId>,
    due: Option<TimerId>,
    since: SystemTime,
}

/// The role of a generation in a swap.
#[derive(Clone, Copy, Debug)]
enum GenerationRole {
    Current,
    Next,
    Retired,
}

/// A generation that has not ended.
#[derive(Debug)]
struct LiveGeneration {
    generation: u64,
    declaration: Arc<Declaration>,
    socket: Option<Arc<PluginSocket>>,
    orders: watch::Sender<GenerationCommand>,
    pid: Option<u32>,
    introduction: PluginIdentity,
    /// Why it cannot be reached yet.
    unreachable: String,
    /// The last report. The first one makes it ready.
    report: Option<PluginHealth>,
    started: Instant,
}

impl PluginHost {
    /// Hosts the plugin as declared, unless a swap has changed that since. Sockets and the plugins' own directories
    /// are in `folder`.
    pub fn new(declaration: Declaration, folder: impl Into<PathBuf>, line: PluginClient) -> Self {
        let swapped = line.persistent().declaration.clone();
        Self {
            declaration: swapped.unwrap_or_else(|| Arc::new(declaration)),
            folder: folder.into().into(),
            line,
            confiner: None,
            listener: None,
            history: RestartHistory::default(),
            current: None,
            next: None,
            retired: None,
            admin_request: None,
            stuck: None,
            room: None,
            due: None,
            since: wall(),
        }
    }

    /// Has each process confine itself as its declaration says.
    pub fn confined_by(mut self, confiner: Arc<Confiner>) -> Self {
        self.confiner = Some(confiner);
        self
    }

    /// Has each failure of the plugin told.
    pub fn heard_by(mut self, listener: FailureListener) -> Self {
        self.listener = Some(listener);
        self
    }
}

impl Actor for PluginHost {
    type Msg = Msg;
    type Snapshot = Snapshot;

    async fn start(&mut self, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        if let Err(error) = self.declaration.check() {
            // To start again would change nothing; the operator reads why.
            self.show(PluginState::Failed, error.to_string(), ctx);
            return Ok(());
        }
        let spawning = self.line.spawning().await;
        let others = self.line.persistent().others();
        let timeouts = self.declaration.termination_timeouts();
        let ends = others
            .iter()
            .map(|(generation, process)| self.line.kill(*generation, process, timeouts));
        futures_util::future::join_all(ends).await;
        drop(spawning);
        let adoptable = self.line.persistent().adoptable();
        self.launch(adoptable, ctx);
        Ok(())
    }

    async fn handle(&mut self, msg: Msg, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        match msg {
            Msg::Generation(update) => self.generation_update(update, ctx),
            Msg::Due => self.due(ctx),
            Msg::Restart { reply } => self.restart(reply, ctx),
            Msg::Swap { declaration, reply } => self.swap(*declaration, reply, ctx),
            Msg::Try { declaration, reply } => self.try_out(*declaration, reply, ctx),
            Msg::Replace { generation } => self.note_stuck(generation, ctx),
            Msg::Stop { reply } => self.stop_plugin(reply, ctx),
        }
        Ok(())
    }

    async fn stop(&mut self, ctx: &mut Context<Msg>) {
        self.show(PluginState::Stopped, "the agent is ending".to_owned(), ctx);
        let processes = self.line.persistent().all();
        let timeouts = self.declaration.termination_timeouts();
        let ends = processes
            .iter()
            .map(|(generation, process)| self.line.terminate(*generation, process, timeouts));
        futures_util::future::join_all(ends).await;
    }

    fn snapshot(&self) -> Snapshot {
        let PluginStatus {
            state,
            generation,
            reason,
        } = self.line.state();
        let alive = self.current.as_ref();
        let report = alive.and_then(|alive| alive.report.as_ref());
        let persistent = self.line.persistent();
        Snapshot {
            name: self.declaration.name.clone(),
            kind: self.declaration.kind,
            socket: match &self.declaration.start {
                LaunchMethod::Managed { .. } => self.socket_path(),
                LaunchMethod::External { endpoint } => endpoint.clone(),
            },
            state,
            since: self.since,
            reason,
            generation,
            pid: alive.and_then(|alive| alive.pid),
            program: alive
                .map(|alive| alive.introduction.program.clone())
                .unwrap_or_default(),
            restarts: persistent.restarts,
            last_exit: persistent.last_exit.clone(),
            abandoned: self.line.abandonments().borrow().clone(),
            warning: self.warning(),
            confined: alive.and_then(|alive| {
                let process = persistent.processes.get(&alive.generation)?;
                process.confined()
            }),
            attributes: report
                .map(|report| report.attributes.clone())
                .unwrap_or_default(),
        }
    }
}

impl PluginHost {
    fn generation_update(
        &mut self,
        GenerationUpdate { generation, event }: GenerationUpdate,
        ctx: &mut Context<Msg>,
    ) {
        let role = self.role(generation);
        let slot = match role {
            Some(GenerationRole::Current) => &mut self.current,
            Some(GenerationRole::Next) => &mut self.next,
            Some(GenerationRole::Retired) => &mut self.retired,
            // Of an earlier incarnation of this actor, or of a swap that came to nothing.
            None => return,
        };
        let Some(alive) = slot else { return };
        match event {
            GenerationEvent::Started { pid } => alive.pid = Some(pid),
            GenerationEvent::Introduced(introduction) => alive.introduction = introduction,
            GenerationEvent::Reported(report) => alive.report = Some(report),
            GenerationEvent::Unreachable { why } => alive.unreachable = why,
            GenerationEvent::Ended(end) => return self.ended(role, end, ctx),
        }
        match role {
            Some(GenerationRole::Current) => self.show_current(ctx),
            Some(GenerationRole::Next) => self.take_over(ctx),
            Some(GenerationRole::Retired) | None => {}
        }
    }

    fn ended(&mut self, role: Option<GenerationRole>, end: GenerationExit, ctx: &mut Context<Msg>) {
        match role {
            Some(GenerationRole::Current) => self.current_ended(end, ctx),
            Some(GenerationRole::Next) => self.next_ended(end, ctx),
            Some(GenerationRole::Retired) => self.retired_ended(end, ctx),
            None => {}
        }
    }

    fn role(&self, generation: u64) -> Option<GenerationRole> {
        let roles = [
            (GenerationRole::Current, &self.current),
            (GenerationRole::Next, &self.next),
            (GenerationRole::Retired, &self.retired),
        ];
        let is = |alive: &LiveGeneration| alive.generation == generation;
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
        if *alive.orders.borrow() == GenerationCommand::Finish {
            return;
        }
        let Some(report) = &alive.report else {
            return self.show_unreachable(alive.unreachable.clone(), ctx);
        };
        let (generation, reason) = (alive.generation, report.reason.clone());
        let state = if report.healthy {
            PluginState::Ready
        } else {
            PluginState::Degraded
        };
        self.show(state, reason, ctx);
        match self.admin_request.take() {
            Some(AdminRequest::Restart(reply) | AdminRequest::SwapAlone { reply, .. }) => {
                reply.send(Ok(generation))
            }
            Some(AdminRequest::ReplaceAlone) => {}
            other => self.admin_request = other,
        }
    }

    fn show_unreachable(&mut self, why: String, ctx: &Context<Msg>) {
        if why.is_empty() {
            return;
        }
        match self.admin_request.take() {
            // It may be unreachable for long; the operator's request need not wait.
            Some(AdminRequest::Restart(reply)) => reply.send(Err(self.not_ready(&why))),
            other => self.admin_request = other,
        }
        self.show(PluginState::Starting, why, ctx);
    }

    fn show(&mut self, state: PluginState, reason: String, ctx: &Context<Msg>) {
        let before = self.line.state();
        if before.state != state {
            self.since = ctx.wall();
        }
        let generation = self
            .current
            .as_ref()
            .map_or(before.generation, |alive| alive.generation);
        let view = PluginStatus {
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
            self.line.persistent().last_exit = exit;
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

impl LiveGeneration {
    fn ready(&self) -> bool {
        self.report.is_some()
    }
}
