//! What can be seen of a group.

use std::rc::Rc;
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::sync::oneshot;
use tokio::time::timeout_at;

use crate::mailbox::gauge::MailboxView;
use crate::mailbox::mail::Control;
use crate::observe::{DegradedChild, LateActor, TreeNode, TreeNodeKind, TreeNodeState};
use crate::supervisor::cell::ActorCell;
use crate::supervisor::group::ChildGroup;
use crate::supervisor::group::child::{Child, Unit};

/// How long the actors of a tree have to show themselves.
const SNAPSHOT_TIMEOUT: Duration = Duration::from_secs(1);

/// The snapshots asked for, in the order of the tree.
type SnapshotReceivers = Vec<oneshot::Receiver<Value>>;

impl ChildGroup {
    pub(crate) async fn tree(&self) -> TreeNode {
        let mut answers = SnapshotReceivers::new();
        let mut tree = self.node(&mut answers);
        // All are asked before the first answer is awaited, so one deadline is enough.
        let deadline = tokio::time::Instant::now() + SNAPSHOT_TIMEOUT;
        let mut snapshots = Vec::with_capacity(answers.len());
        for answer in answers {
            let shown = timeout_at(deadline, answer).await;
            snapshots.push(shown.ok().and_then(Result::ok).unwrap_or(Value::Null));
        }
        fill(&mut tree, &mut snapshots.into_iter());
        tree
    }

    /// Draws the tree beneath, and asks every actor in it for its snapshot.
    fn node(&self, answers: &mut SnapshotReceivers) -> TreeNode {
        let children = self.children.borrow();
        let children = children.values().map(|child| child.node(answers)).collect();
        TreeNode {
            id: self.id.clone(),
            path: self.path.to_string(),
            kind: TreeNodeKind::Supervisor,
            state: self.state(),
            restarts: 0,
            mailbox: MailboxView::default(),
            handled: 0,
            busy_with: None,
            last_exit: None,
            snapshot: Value::Null,
            children,
        }
    }

    pub(super) fn state(&self) -> TreeNodeState {
        let children = self.children.borrow();
        let halted = |child: &Child| child.unit.state() == TreeNodeState::BackingOff;
        if self.closed() {
            TreeNodeState::Stopped
        } else if !children.is_empty() && children.values().all(halted) {
            TreeNodeState::BackingOff
        } else {
            TreeNodeState::Running
        }
    }

    pub(crate) fn degraded(&self) -> Vec<DegradedChild> {
        let children = self.children.borrow();
        let degraded = children.values().filter_map(|child| {
            let (since, why) = child.degraded.clone()?;
            let id = child.unit.path().to_string();
            Some(DegradedChild { id, since, why })
        });
        degraded.collect()
    }

    pub(crate) fn late(&self) -> Vec<LateActor> {
        let mut late = Vec::new();
        self.each_actor(&mut |cell| {
            let ping = cell.ping.get();
            if cell.running() && ping.sent && ping.pulse == cell.pulse() {
                late.push(LateActor {
                    path: cell.path.to_string(),
                    busy_with: cell.gauge.busy(),
                });
            }
        });
        late
    }

    /// Takes children off the degraded list that have held out for a whole window.
    pub(crate) fn recover(&self, now: Instant) {
        for child in self.children.borrow_mut().values_mut() {
            let ran = now.saturating_duration_since(child.unit.started());
            let steady =
                child.unit.state() == TreeNodeState::Running && ran > self.intensity.within;
            if steady && child.degraded.take().is_some() {
                tracing::info!(child = %child.unit.path(), "child is well again");
            }
        }
    }

    pub(crate) fn each_actor(&self, look: &mut dyn FnMut(&ActorCell)) {
        for child in self.children.borrow().values() {
            match &child.unit {
                Unit::Actor(cell) => look(cell),
                Unit::Group(group) => group.each_actor(look),
            }
        }
    }

    pub(crate) fn find(&self, path: &str) -> Option<Rc<ActorCell>> {
        let beneath = path.strip_prefix(&*self.path)?.strip_prefix('/')?;
        let first = beneath.split_once('/').map_or(beneath, |(first, _)| first);
        let seq = {
            let ids = self.ids.borrow();
            // An actor's own id may contain slashes.
            ids.get(beneath).or_else(|| ids.get(first)).copied()?
        };
        match self.unit(seq)? {
            Unit::Actor(cell) => (*cell.path == *path).then_some(cell),
            Unit::Group(group) => group.find(path),
        }
    }
}

impl Child {
    fn node(&self, answers: &mut SnapshotReceivers) -> TreeNode {
        let mut node = match &self.unit {
            Unit::Actor(cell) => cell.node(&self.id, answers),
            Unit::Group(group) => group.node(answers),
        };
        node.restarts = self.restarts;
        node.last_exit.clone_from(&self.last_exit);
        if self.degraded.is_some() {
            node.state = TreeNodeState::Degraded;
        }
        node
    }
}

impl ActorCell {
    fn node(&self, id: &str, answers: &mut SnapshotReceivers) -> TreeNode {
        let state = self.state();
        let (asker, answer) = oneshot::channel();
        match state {
            TreeNodeState::Starting | TreeNodeState::Running => {
                self.control(Control::Snapshot(asker))
            }
            // There is no running child that could answer.
            TreeNodeState::BackingOff | TreeNodeState::Degraded | TreeNodeState::Stopped => {
                drop(asker)
            }
        }
        answers.push(answer);
        TreeNode {
            id: id.to_owned(),
            path: self.path.to_string(),
            kind: TreeNodeKind::Actor,
            state,
            restarts: 0,
            mailbox: self.gauge.view(),
            handled: self.gauge.handled(),
            busy_with: self.gauge.busy().map(str::to_owned),
            last_exit: None,
            snapshot: Value::Null,
            children: Vec::new(),
        }
    }
}

/// Puts the snapshots where they belong, in the order in which they were asked for.
fn fill(node: &mut TreeNode, snapshots: &mut impl Iterator<Item = Value>) {
    match node.kind {
        TreeNodeKind::Actor => node.snapshot = snapshots.next().unwrap_or(Value::Null),
        TreeNodeKind::Supervisor => {
            for child in &mut node.children {
                fill(child, snapshots);
            }
        }
    }
}
