//! What can be seen of a group.

use std::rc::Rc;
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::sync::oneshot;
use tokio::time::timeout_at;

use crate::mailbox::MailboxView;
use crate::observe::{Degraded, Kind, Node, State};
use crate::shell::Control;
use crate::supervisor::group::Group;
use crate::supervisor::group::child::{Child, Unit};
use crate::supervisor::life::Life;

/// How long the actors of a tree have to show themselves.
const SHOW_WITHIN: Duration = Duration::from_secs(1);

/// The snapshots asked for, in the order of the tree.
type Answers = Vec<oneshot::Receiver<Value>>;

impl Group {
    pub(crate) async fn tree(&self) -> Node {
        let mut answers = Answers::new();
        let mut tree = self.node(&mut answers);
        // All are asked before the first answer is awaited, so one deadline is enough.
        let deadline = tokio::time::Instant::now() + SHOW_WITHIN;
        let mut snapshots = Vec::with_capacity(answers.len());
        for answer in answers {
            let shown = timeout_at(deadline, answer).await;
            snapshots.push(shown.ok().and_then(Result::ok).unwrap_or(Value::Null));
        }
        fill(&mut tree, &mut snapshots.into_iter());
        tree
    }

    /// Draws the tree beneath, and asks every actor in it for its snapshot.
    fn node(&self, answers: &mut Answers) -> Node {
        let children = self.children.borrow();
        let children = children.values().map(|child| child.node(answers)).collect();
        Node {
            id: self.id.clone(),
            path: self.path.to_string(),
            kind: Kind::Supervisor,
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

    pub(super) fn state(&self) -> State {
        let children = self.children.borrow();
        let halted = |child: &Child| child.unit.state() == State::BackingOff;
        if self.closed() {
            State::Stopped
        } else if !children.is_empty() && children.values().all(halted) {
            State::BackingOff
        } else {
            State::Running
        }
    }

    pub(crate) fn degraded(&self) -> Vec<Degraded> {
        let children = self.children.borrow();
        let degraded = children.values().filter_map(|child| {
            let (since, why) = child.degraded.clone()?;
            let id = child.unit.path().to_string();
            Some(Degraded { id, since, why })
        });
        degraded.collect()
    }

    /// Takes children off the degraded list that have held out for a whole window.
    pub(crate) fn recover(&self, now: Instant) {
        for child in self.children.borrow_mut().values_mut() {
            let ran = now.saturating_duration_since(child.unit.started());
            let steady = child.unit.state() == State::Running && ran > self.intensity.within;
            if steady && child.degraded.take().is_some() {
                tracing::info!(child = %child.unit.path(), "child is well again");
            }
        }
    }

    pub(crate) fn each_actor(&self, look: &mut dyn FnMut(&Life)) {
        for child in self.children.borrow().values() {
            match &child.unit {
                Unit::Actor(life) => look(life),
                Unit::Group(group) => group.each_actor(look),
            }
        }
    }

    pub(crate) fn find(&self, path: &str) -> Option<Rc<Life>> {
        let beneath = path.strip_prefix(&*self.path)?.strip_prefix('/')?;
        let first = beneath.split_once('/').map_or(beneath, |(first, _)| first);
        let seq = {
            let ids = self.ids.borrow();
            // An actor's own id may contain slashes.
            ids.get(beneath).or_else(|| ids.get(first)).copied()?
        };
        match self.unit(seq)? {
            Unit::Actor(life) => (*life.path == *path).then_some(life),
            Unit::Group(group) => group.find(path),
        }
    }
}

impl Child {
    fn node(&self, answers: &mut Answers) -> Node {
        let mut node = match &self.unit {
            Unit::Actor(life) => life.node(&self.id, answers),
            Unit::Group(group) => group.node(answers),
        };
        node.restarts = self.restarts;
        node.last_exit.clone_from(&self.last_exit);
        if self.degraded.is_some() {
            node.state = State::Degraded;
        }
        node
    }
}

impl Life {
    fn node(&self, id: &str, answers: &mut Answers) -> Node {
        let state = self.state();
        let (asker, answer) = oneshot::channel();
        match state {
            State::Starting | State::Running => self.control(Control::Snapshot(asker)),
            // Nobody is there to answer.
            State::BackingOff | State::Degraded | State::Stopped => drop(asker),
        }
        answers.push(answer);
        Node {
            id: id.to_owned(),
            path: self.path.to_string(),
            kind: Kind::Actor,
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
fn fill(node: &mut Node, snapshots: &mut impl Iterator<Item = Value>) {
    match node.kind {
        Kind::Actor => node.snapshot = snapshots.next().unwrap_or(Value::Null),
        Kind::Supervisor => {
            for child in &mut node.children {
                fill(child, snapshots);
            }
        }
    }
}
