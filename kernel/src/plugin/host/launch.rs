//! Starting a generation: when, on which socket, and as whose successor.

use std::path::Path;
use std::sync::Arc;

use tokio::sync::watch;

use super::super::channel::State;
use super::super::connection::Route;
use super::super::declaration::{Declaration, Start};
use super::super::generation::{Introduction, Life, Order};
use super::super::process::Process;
use super::super::socket::{Socket, private_folder};
use super::{Alive, Host, Msg};
use crate::context::Context;
use crate::restart::{Decision, LONGEST_PAUSE, decide};

/// The socket of a managed plugin, none for an external one, or why there is none.
type Bound = Result<Option<Arc<Socket>>, String>;

impl Host {
    /// Counts a failure, and starts the plugin again: at once, after a pause, or after a long one.
    pub(super) fn failed(&mut self, ended: &Alive, why: String, ctx: &mut Context<Msg>) {
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
    pub(super) fn launch(&mut self, heir: Option<(u64, Process)>, ctx: &mut Context<Msg>) {
        self.cancel_due(ctx);
        let declaration = self.declaration.clone();
        let socket = self.own_socket(&declaration, heir.is_some());
        let alive = self.begin(declaration, socket, heir, ctx);
        self.current = Some(alive);
        self.settle_in();
        // Why the last one failed stays to be read until this one is ready.
        let before = self.line.state();
        let failed = matches!(before.state, State::Starting | State::Failed);
        let why = if failed { before.reason } else { String::new() };
        self.show(State::Starting, why, ctx);
    }

    pub(super) fn begin(
        &mut self,
        declaration: Arc<Declaration>,
        socket: Bound,
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
            socket: socket.ok().flatten(),
            orders,
            pid: None,
            introduction: Introduction::default(),
            unreachable: String::new(),
            report: None,
            started: ctx.now(),
        }
    }

    /// Makes the current generation the one that callers reach and a successor of this actor finds.
    pub(super) fn settle_in(&mut self) {
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
        if alive.socket.is_some() {
            let wire = self.line.wire();
            self.line.estate().wire(alive.generation, wire);
        }
    }

    /// Gives a swap's new socket the plugin's own name.
    pub(super) fn adopt_name(&self, next: &Alive) -> Result<(), String> {
        let Some(socket) = &next.socket else {
            return Ok(());
        };
        let path = self.socket_path();
        socket
            .rename(&path)
            .map_err(|error| format!("cannot rename its socket to {}: {error}", path.display()))
    }

    /// Returns the plugin's own socket, bound anew if it was not yet, or if its name leads nowhere.
    fn own_socket(&self, declaration: &Declaration, inherited: bool) -> Bound {
        let managed = matches!(declaration.start, Start::Managed { .. });
        let kept = self.line.estate().socket.clone();
        match kept.filter(|socket| managed && (inherited || socket.reachable())) {
            Some(socket) => Ok(Some(socket)),
            None => self.bind(declaration, &self.socket_path()),
        }
    }

    /// Binds a socket for a process of ours.
    pub(super) fn bind(&self, declaration: &Declaration, path: &Path) -> Bound {
        if let Start::External { .. } = declaration.start {
            return Ok(None);
        }
        let bound = private_folder(&self.folder).and_then(|()| Socket::bind(path));
        let bound = bound.map(|socket| Some(Arc::new(socket)));
        bound.map_err(|error| format!("cannot listen on {}: {error}", path.display()))
    }
}
