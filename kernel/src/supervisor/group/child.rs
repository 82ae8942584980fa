//! What a group knows of one child: an actor or another group, restarted as one.

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use tokio::task::AbortHandle;

use crate::observe::State;
use crate::restart::History;
use crate::supervisor::Restart;
use crate::supervisor::group::{Group, Later};
use crate::supervisor::life::Life;

pub(super) struct Child {
    pub(super) id: String,
    pub(super) restart: Restart,
    pub(super) unit: Unit,
    pub(super) history: History,
    pub(super) restarts: u64,
    pub(super) last_exit: Option<String>,
    pub(super) degraded: Option<(SystemTime, String)>,
    /// The restart of this child and those who share its fate, while it is under way.
    pub(super) regroup: Option<AbortHandle>,
}

/// What is restarted as one.
#[derive(Clone)]
pub(super) enum Unit {
    Actor(Rc<Life>),
    Group(Rc<Group>),
}

impl Child {
    pub(super) fn new(id: String, restart: Restart, unit: Unit) -> Child {
        Child {
            id,
            restart,
            unit,
            history: History::default(),
            restarts: 0,
            last_exit: None,
            degraded: None,
            regroup: None,
        }
    }

    pub(super) fn abort_regroup(&mut self) {
        if let Some(regroup) = self.regroup.take() {
            regroup.abort();
        }
    }
}

impl Unit {
    pub(super) fn path(&self) -> Arc<str> {
        match self {
            Unit::Actor(life) => Arc::clone(&life.path),
            Unit::Group(group) => Arc::clone(&group.path),
        }
    }

    pub(super) fn started(&self) -> Instant {
        match self {
            Unit::Actor(life) => life.started(),
            Unit::Group(group) => group.started.get(),
        }
    }

    pub(super) fn state(&self) -> State {
        match self {
            Unit::Actor(life) => life.state(),
            Unit::Group(group) => group.state(),
        }
    }

    /// Lets it live from `at` on.
    pub(super) fn go(&self, at: Instant) {
        match self {
            Unit::Actor(life) => life.go(at),
            Unit::Group(group) => group.go(at),
        }
    }

    /// Drops its present incarnation and lets no other begin.
    pub(super) fn halt(&self) {
        match self {
            Unit::Actor(life) => life.halt(),
            Unit::Group(group) => group.halt(),
        }
    }

    pub(super) fn halted(&self) -> Later<'_> {
        match self {
            Unit::Actor(life) => Box::pin(life.halted()),
            Unit::Group(group) => group.halted(),
        }
    }
}
