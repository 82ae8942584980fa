//! What a group does when a child fails: restart it, restart others with it, or fail itself.

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::supervisor::exit::Exit;
use crate::supervisor::group::child::{Child, Unit};
use crate::supervisor::group::{ChildGroup, TreeFuture};
use crate::supervisor::restart::{
    Intensity, LONGEST_PAUSE, RestartDecision, RestartHistory, decide,
};
use crate::supervisor::spec::{Restart, Strategy};
use crate::system::clock::{now, wall};

/// A group in which one child used up its restarts.
#[derive(Debug, thiserror::Error)]
#[error("{child} used up its restarts, {why}")]
struct Exhausted {
    child: Arc<str>,
    why: String,
}

/// What the supervisor does with a child that ended by itself.
enum ExitDecision {
    /// It leaves the tree.
    Remove,
    /// It is restarted after a pause.
    Restart(Duration),
    /// It is given up by this group.
    GiveUp,
}

impl ChildGroup {
    /// Decides about a child that ended by itself.
    pub(crate) fn exited(self: &Rc<Self>, seq: u64, exit: Exit, busy_with: Option<&'static str>) {
        let judged = self.children.borrow_mut().get_mut(&seq).map(|child| {
            let verdict = child.judge(&exit, self.intensity);
            (child.unit.clone(), verdict)
        });
        let Some((unit, verdict)) = judged else {
            return;
        };
        let child = unit.path();
        match verdict {
            ExitDecision::Remove => {
                tracing::info!(%child, busy_with, %exit, "child ended");
                unit.end();
            }
            ExitDecision::Restart(pause) => {
                tracing::warn!(%child, busy_with, %exit, ?pause, "child failed and is restarted");
                self.restart(seq, pause);
            }
            ExitDecision::GiveUp => {
                tracing::error!(%child, busy_with, %exit, "child used up its restarts");
                self.escalate(seq, child, exit.to_string());
            }
        }
    }

    /// Fails itself; the root cannot, and keeps trying.
    fn escalate(self: &Rc<Self>, seq: u64, child: Arc<str>, why: String) {
        match &self.parent {
            Some(parent) => {
                self.halt();
                if let Some(group) = parent.group.upgrade() {
                    let exit = Exit::Failed(Box::new(Exhausted { child, why }));
                    group.exited(parent.seq, exit, None);
                }
            }
            None => {
                if let Some(child) = self.children.borrow_mut().get_mut(&seq) {
                    child.degraded = Some((wall(), why));
                }
                self.restart(seq, LONGEST_PAUSE);
            }
        }
    }

    /// Restarts a child after `pause`, and with it the children that the group's [`Strategy`] names.
    fn restart(self: &Rc<Self>, seq: u64, pause: Duration) {
        let at = now() + pause;
        let fate = self.fate(seq);
        if let [Unit::Actor(cell)] = fate.as_slice() {
            return cell.go(at);
        }
        if let Some(failed) = self.unit(seq) {
            failed.halt();
        }
        let regroup = tokio::task::spawn_local(async move {
            for unit in fate.iter().rev() {
                unit.halt();
                unit.halted().await;
            }
            tokio::time::sleep_until(at.into()).await;
            let now = now();
            for unit in &fate {
                unit.go(now);
            }
        });
        if let Some(child) = self.children.borrow_mut().get_mut(&seq) {
            child.regroup = Some(regroup.abort_handle());
        }
    }

    /// Returns the children that are restarted with a child, oldest first. The temporary among its siblings have no
    /// second incarnation and are ended.
    fn fate(&self, seq: u64) -> Vec<Unit> {
        let (oldest, youngest) = match self.strategy {
            Strategy::OneForOne => (seq, seq),
            Strategy::RestForOne => (seq, u64::MAX),
            Strategy::OneForAll => (0, u64::MAX),
        };
        let mut fate = Vec::new();
        for (other, child) in self.children.borrow_mut().range_mut(oldest..=youngest) {
            child.abort_regroup();
            match child.restart {
                Restart::Temporary if *other != seq => child.unit.end(),
                Restart::Permanent | Restart::Transient | Restart::Temporary => {
                    fate.push(child.unit.clone());
                }
            }
        }
        fate
    }

    pub(super) fn halt(&self) {
        self.abort_regroups();
        for child in self.children.borrow().values().rev() {
            match child.restart {
                Restart::Temporary => child.unit.end(),
                Restart::Permanent | Restart::Transient => child.unit.halt(),
            }
        }
    }

    pub(super) fn halted(&self) -> TreeFuture<'_> {
        Box::pin(async move {
            let units: Vec<Unit> = {
                let children = self.children.borrow();
                children.values().map(|child| child.unit.clone()).collect()
            };
            for unit in units.iter().rev() {
                unit.halted().await;
            }
        })
    }

    pub(super) fn go(&self, at: Instant) {
        self.started.set(at);
        for child in self.children.borrow_mut().values_mut() {
            child.history = RestartHistory::default();
            child.unit.go(at);
        }
    }

    pub(super) fn abort_regroups(&self) {
        for child in self.children.borrow_mut().values_mut() {
            child.abort_regroup();
        }
    }
}

impl Child {
    fn judge(&mut self, exit: &Exit, intensity: Intensity) -> ExitDecision {
        self.last_exit = Some(exit.to_string());
        if !self.restart.follows(exit) {
            return ExitDecision::Remove;
        }
        let now = now();
        self.restarts += 1;
        self.history.failed(self.unit.started(), now, intensity);
        match decide(&self.history, now, intensity) {
            _ if self.degraded.is_some() => ExitDecision::Restart(LONGEST_PAUSE),
            RestartDecision::RestartAfter(pause) => ExitDecision::Restart(pause),
            RestartDecision::Escalate => ExitDecision::GiveUp,
        }
    }
}

impl Unit {
    /// Ends an actor for good. Groups are permanent: only their owner stops them.
    fn end(&self) {
        match self {
            Unit::Actor(cell) => cell.stop(),
            Unit::Group(_) => {}
        }
    }
}

impl Restart {
    /// Returns whether a restart follows this exit.
    fn follows(self, exit: &Exit) -> bool {
        match (self, exit) {
            (_, Exit::Stopped) => false,
            (Restart::Temporary, _) => false,
            (Restart::Transient, Exit::Done) => false,
            (Restart::Permanent | Restart::Transient, _) => true,
        }
    }
}
