//! Starting a generation: when, on which socket, and as whose successor.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kernel::Context;
use kernel::supervisor::restart::{LONGEST_PAUSE, RestartDecision, RestartHistory, decide};
use kernel::watch;

use super::{LiveGeneration, PluginHost};
use crate::client::PluginState;
use crate::connection::SocketRoute;
use crate::declaration::{Declaration, LaunchMethod};
use crate::generation::GenerationTask;
use crate::generation::update::{GenerationCommand, PluginIdentity};
use crate::message::Msg;
use crate::process::PluginProcess;
use crate::process::socket::{PluginSocket, private_folder};

/// A plugin that has served for so long does not crash at its start: it is better had, with pauses, than given up.
const LONG_ENOUGH: Duration = Duration::from_millis(500);
/// Such a one pauses for this part of the time that it served: it is there for more than nine tenths.
const SERVED_PER_PAUSE: u32 = 10;

fn earns_restart(served: Duration) -> bool {
    served >= LONG_ENOUGH
}

/// For how long a generation served; time spent on the way to readiness does not count.
fn served(ended: &LiveGeneration, now: Instant) -> Duration {
    match ended.ready() {
        true => now.saturating_duration_since(ended.started),
        false => Duration::ZERO,
    }
}

/// The socket of a managed plugin, none for an external one, or why there is none.
type BindResult = Result<Option<Arc<PluginSocket>>, String>;

impl PluginHost {
    /// Counts a failure, and starts the plugin again: at once, after a pause, or after a long one.
    pub(super) fn failed(&mut self, ended: &LiveGeneration, why: String, ctx: &mut Context<Msg>) {
        let now = ctx.now();
        self.line.persistent().restarts += 1;
        // Time spent on the way to readiness is no success.
        let since = if ended.ready() { ended.started } else { now };
        self.history.failed(since, now, self.declaration.intensity);
        let served = served(ended, now);
        let external = matches!(self.declaration.start, LaunchMethod::External { .. });
        let (state, pause) = match decide(&self.history, now, self.declaration.intensity) {
            // Nothing is started: to connect costs nothing, and the sooner it is back the better.
            RestartDecision::RestartAfter(pause) if external => (
                PluginState::Starting,
                pause.min(self.declaration.health_interval),
            ),
            decided if !external && earns_restart(served) => {
                // It counts as the first failure: one that is killed at its start after this is not given up for it.
                self.history = RestartHistory::default();
                self.history.failed(since, now, self.declaration.intensity);
                let earned = (served / SERVED_PER_PAUSE).min(LONGEST_PAUSE);
                match decided {
                    RestartDecision::RestartAfter(pause) => {
                        (PluginState::Starting, pause.min(earned))
                    }
                    RestartDecision::Escalate => (PluginState::Starting, earned),
                }
            }
            RestartDecision::RestartAfter(pause) => (PluginState::Starting, pause),
            RestartDecision::Escalate if external => {
                (PluginState::Failed, self.declaration.health_interval)
            }
            RestartDecision::Escalate => (PluginState::Failed, LONGEST_PAUSE),
        };
        tracing::warn!(
            plugin = self.declaration.name,
            why,
            ?pause,
            "restarting a plugin that failed"
        );
        if let Some(listener) = &self.listener {
            (listener.0)(&why);
        }
        self.show(state, why, ctx);
        if pause.is_zero() {
            self.launch(None, ctx);
        } else {
            self.due = Some(ctx.after(pause, Msg::Due));
        }
    }

    /// Starts the next generation on the plugin's own socket, or goes on with an inherited process.
    pub(super) fn launch(
        &mut self,
        adoptable: Option<(u64, PluginProcess)>,
        ctx: &mut Context<Msg>,
    ) {
        self.cancel_due(ctx);
        let declaration = self.declaration.clone();
        let socket = self.own_socket(&declaration, adoptable.is_some());
        let alive = self.begin(declaration, socket, adoptable, ctx);
        self.current = Some(alive);
        self.publish_current();
        // Why the last one failed stays to be read until this one is ready.
        let before = self.line.state();
        let failed = matches!(before.state, PluginState::Starting | PluginState::Failed);
        let why = if failed { before.reason } else { String::new() };
        self.show(PluginState::Starting, why, ctx);
    }

    pub(super) fn begin(
        &mut self,
        declaration: Arc<Declaration>,
        socket: BindResult,
        adoptable: Option<(u64, PluginProcess)>,
        ctx: &mut Context<Msg>,
    ) -> LiveGeneration {
        let (generation, inherited) = match adoptable {
            Some((generation, process)) => (generation, Some(process)),
            None => {
                let mut persistent = self.line.persistent();
                persistent.generation += 1;
                (persistent.generation, None)
            }
        };
        let (orders, ordered) = watch::channel(GenerationCommand::Serve);
        let life = GenerationTask {
            generation,
            declaration: declaration.clone(),
            line: self.line.clone(),
            folder: self.folder.clone(),
            confiner: self.confiner.clone(),
            socket: socket.clone(),
            inherited,
            orders: ordered,
            host: ctx.addr().clone(),
        };
        ctx.run(life.live());
        LiveGeneration {
            generation,
            declaration,
            socket: socket.ok().flatten(),
            orders,
            pid: None,
            introduction: PluginIdentity::default(),
            unreachable: String::new(),
            report: None,
            started: ctx.now(),
        }
    }

    /// Makes the current generation the one that callers reach and a successor of this actor finds.
    pub(super) fn publish_current(&mut self) {
        let Some(alive) = &self.current else { return };
        self.declaration = alive.declaration.clone();
        let route = match (&alive.declaration.start, &alive.socket) {
            (LaunchMethod::External { endpoint }, _) => {
                Some(SocketRoute::Foreign(endpoint.clone()))
            }
            (LaunchMethod::Managed { .. }, Some(socket)) => Some(SocketRoute::Kept(socket.path())),
            (LaunchMethod::Managed { .. }, None) => None,
        };
        let mut persistent = self.line.persistent();
        let same_socket = match (&persistent.socket, &alive.socket) {
            (Some(before), Some(now)) => Arc::ptr_eq(before, now),
            (None, None) | (None, Some(_)) | (Some(_), None) => false,
        };
        persistent.current = Some(alive.generation);
        persistent.socket.clone_from(&alive.socket);
        persistent.declaration = Some(alive.declaration.clone());
        drop(persistent);
        if let Some(route) = route.filter(|_| !same_socket) {
            self.line.set_route(route);
        }
        if alive.socket.is_some() {
            let wire = self.line.wire();
            self.line.persistent().wire(alive.generation, wire);
        }
    }

    /// Gives a swap's new socket the plugin's own name.
    pub(super) fn adopt_name(&self, next: &LiveGeneration) -> Result<(), String> {
        let Some(socket) = &next.socket else {
            return Ok(());
        };
        let path = self.socket_path();
        socket
            .rename(&path)
            .map_err(|error| format!("cannot rename its socket to {}: {error}", path.display()))
    }

    /// Returns the plugin's own socket, bound anew if it was not yet, or if its name leads nowhere.
    fn own_socket(&self, declaration: &Declaration, inherited: bool) -> BindResult {
        let managed = matches!(declaration.start, LaunchMethod::Managed { .. });
        let kept = self.line.persistent().socket.clone();
        match kept.filter(|socket| managed && (inherited || socket.reachable())) {
            Some(socket) => Ok(Some(socket)),
            None => self.bind(declaration, &self.socket_path()),
        }
    }

    /// Binds a socket for a process of ours.
    pub(super) fn bind(&self, declaration: &Declaration, path: &Path) -> BindResult {
        if let LaunchMethod::External { .. } = declaration.start {
            return Ok(None);
        }
        let bound = private_folder(&self.folder).and_then(|()| PluginSocket::bind(path));
        let bound = bound.map(|socket| Some(Arc::new(socket)));
        bound.map_err(|error| format!("cannot listen on {}: {error}", path.display()))
    }
}
