//! What a group knows of one child: an actor or another group, restarted as one.

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use tokio::task::AbortHandle;

use crate::observe::TreeNodeState;
use crate::supervisor::cell::ActorCell;
use crate::supervisor::group::{ChildGroup, TreeFuture};
use crate::supervisor::restart::RestartHistory;
use crate::supervisor::spec::Restart;

pub(super) struct Child {
    pub(super) id: String,
    pub(super) restart: Restart,
    pub(super) unit: Unit,
    pub(super) history: RestartHistory,
    pub(super) restarts: u64,
    pub(super) last_exit: Option<String>,
    pub(super) degraded: Option<(SystemTime, String)>,
    /// The restart of this child and the siblings that are restarted with it, while it is under way.
    pub(super) regroup: Option<AbortHandle>,
}

/// An actor or a group, restarted as one.
#[derive(Clone)]
pub(super) enum Unit {
    Actor(Rc<ActorCell>),
    Group(Rc<ChildGroup>),
}

impl Child {
    pub(super) fn new(id: String, restart: Restart, unit: Unit) -> Child {
        Child {
            id,
            restart,
            unit,
            history: RestartHistory::default(),
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
            Unit::Actor(cell) => Arc::clone(&cell.path),
            Unit::Group(group) => Arc::clone(&group.path),
        }
    }

    pub(super) fn started(&self) -> Instant {
        match self {
            Unit::Actor(cell) => cell.started(),
            Unit::Group(group) => group.started.get(),
        }
    }

    pub(super) fn state(&self) -> TreeNodeState {
        match self {
            Unit::Actor(cell) => cell.state(),
            Unit::Group(group) => group.state(),
        }
    }

    /// Lets it live from `at` on.
    pub(super) fn go(&self, at: Instant) {
        match self {
            Unit::Actor(cell) => cell.go(at),
            Unit::Group(group) => group.go(at),
        }
    }

    /// Drops its present incarnation and lets no other begin.
    pub(super) fn halt(&self) {
        match self {
            Unit::Actor(cell) => cell.halt(),
            Unit::Group(group) => group.halt(),
        }
    }

    pub(super) fn halted(&self) -> TreeFuture<'_> {
        match self {
            Unit::Actor(cell) => Box::pin(cell.halted()),
            Unit::Group(group) => group.halted(),
        }
    }
}
