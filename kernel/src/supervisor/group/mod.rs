//! A supervisor's children: how they come and how they go.

mod child;
mod failure;
mod inspection;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::actor::Actor;
use crate::mailbox::Port;
use crate::mailbox::ask_order::TreePosition;
use crate::supervisor::cell::{self, ActorCell};
use crate::supervisor::group::child::{Child, Unit};
use crate::supervisor::incarnations::live;
use crate::supervisor::restart::Intensity;
use crate::supervisor::shell::Shell;
use crate::supervisor::spec::{ChildSpec, Restart, Strategy};
use crate::system::clock::now;

/// A future of a tree, which is as deep as the tree.
type TreeFuture<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// A supervisor's children, and the rules of their restarts.
pub(crate) struct ChildGroup {
    id: String,
    path: Arc<str>,
    strategy: Strategy,
    intensity: Intensity,
    parent: Option<Parent>,
    /// The interval of this tree's sweep; shared by all its groups.
    pace: Rc<Cell<Duration>>,

    /// In the order of their spawning, which is the order of every restart.
    children: RefCell<BTreeMap<u64, Child>>,
    ids: RefCell<BTreeMap<String, u64>>,
    next: Cell<u64>,
    started: Cell<Instant>,
    closed: Cell<bool>,
}

/// The group to which a group escalates, and its number there.
struct Parent {
    group: Weak<ChildGroup>,
    seq: u64,
}

impl ChildGroup {
    pub(crate) fn root(name: &str, intensity: Intensity) -> Rc<ChildGroup> {
        Rc::new(ChildGroup {
            id: name.to_owned(),
            path: name.into(),
            strategy: Strategy::OneForOne,
            intensity,
            parent: None,
            pace: Rc::new(Cell::new(cell::SLOWEST)),
            children: RefCell::default(),
            ids: RefCell::default(),
            next: Cell::new(0),
            started: Cell::new(now()),
            closed: Cell::new(false),
        })
    }

    pub(crate) fn add_group(
        self: &Rc<Self>,
        id: &str,
        strategy: Strategy,
        intensity: Intensity,
    ) -> Rc<ChildGroup> {
        let seq = self.reserve();
        let group = Rc::new(ChildGroup {
            id: id.to_owned(),
            path: self.beneath(id),
            strategy,
            intensity,
            parent: Some(Parent {
                group: Rc::downgrade(self),
                seq,
            }),
            pace: Rc::clone(&self.pace),
            children: RefCell::default(),
            ids: RefCell::default(),
            next: Cell::new(0),
            started: Cell::new(now()),
            closed: Cell::new(self.closed()),
        });
        let unit = Unit::Group(Rc::clone(&group));
        self.insert(seq, Child::new(id.to_owned(), Restart::Permanent, unit));
        group
    }

    pub(crate) fn add_actor<A: Actor>(
        self: &Rc<Self>,
        spec: ChildSpec,
        port: Port<A::Msg>,
        make: impl FnMut() -> A + 'static,
    ) {
        if self.closed() {
            tracing::debug!(supervisor = %self.path, child = spec.id, "shut down: nothing is spawned");
            return;
        }
        let Port {
            context,
            open,
            addr,
        } = port;
        let postbox = addr.clone();
        let control = Box::new(move |control| postbox.control(control));
        let path = self.beneath(&spec.id);
        let seq = self.reserve();
        addr.gauge().place(TreePosition {
            path: Arc::clone(&path),
            order: self.order_of(seq),
        });
        let actor = Rc::new(ActorCell::new(
            &spec,
            path,
            Arc::clone(addr.gauge()),
            control,
        ));
        let shell = Shell::new(addr, Rc::clone(&actor), make);
        let engine = Box::new(context.into_future(shell));
        let unit = Unit::Actor(Rc::clone(&actor));
        self.insert(seq, Child::new(spec.id, spec.restart, unit));
        let pace = cell::pace(spec.answer_within);
        self.pace.set(self.pace().min(pace));
        tokio::task::spawn_local(live(engine, actor, open, Rc::clone(self), seq));
    }

    fn reserve(&self) -> u64 {
        let seq = self.next.get();
        self.next.set(seq + 1);
        seq
    }

    /// The order of a child: the numbers on the way from the root to it.
    fn order_of(&self, seq: u64) -> Vec<u64> {
        let parent = self.parent.as_ref();
        let above = parent.and_then(|parent| Some(parent.group.upgrade()?.order_of(parent.seq)));
        let mut order = above.unwrap_or_default();
        order.push(seq);
        order
    }

    fn beneath(&self, id: &str) -> Arc<str> {
        format!("{}/{id}", self.path).into()
    }

    fn insert(self: &Rc<Self>, seq: u64, child: Child) {
        if self.ids.borrow().contains_key(&child.id) {
            tracing::error!(supervisor = %self.path, child = child.id, "the name is taken: the older child is stopped");
            self.stop_child(&child.id);
        }
        self.ids.borrow_mut().insert(child.id.clone(), seq);
        self.children.borrow_mut().insert(seq, child);
    }

    pub(crate) fn stop_child(self: &Rc<Self>, id: &str) {
        let Some(seq) = self.ids.borrow_mut().remove(id) else {
            return;
        };
        match self.unit(seq) {
            Some(Unit::Actor(cell)) => cell.stop(),
            Some(Unit::Group(group)) => {
                let parent = Rc::clone(self);
                tokio::task::spawn_local(async move {
                    group.shutdown().await;
                    parent.forget(seq);
                });
            }
            None => {}
        }
    }

    /// Takes a child that has ended out of the tree.
    pub(crate) fn forget(&self, seq: u64) {
        let child = self.children.borrow_mut().remove(&seq);
        if let Some(mut child) = child {
            child.abort_regroup();
            let mut ids = self.ids.borrow_mut();
            if ids.get(&child.id) == Some(&seq) {
                ids.remove(&child.id);
            }
        }
    }

    /// Ends all children, the youngest first; none is accepted from now on.
    pub(crate) fn shutdown(&self) -> TreeFuture<'_> {
        Box::pin(async move {
            self.closed.set(true);
            self.abort_regroups();
            while let Some((seq, unit)) = self.youngest() {
                match unit {
                    Unit::Actor(cell) => {
                        cell.stop();
                        cell.stopped().await;
                    }
                    Unit::Group(group) => group.shutdown().await,
                }
                self.forget(seq);
            }
        })
    }

    fn youngest(&self) -> Option<(u64, Unit)> {
        let children = self.children.borrow();
        let (seq, child) = children.last_key_value()?;
        Some((*seq, child.unit.clone()))
    }

    fn unit(&self, seq: u64) -> Option<Unit> {
        let children = self.children.borrow();
        children.get(&seq).map(|child| child.unit.clone())
    }

    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    pub(crate) fn pace(&self) -> Duration {
        self.pace.get()
    }

    pub(crate) fn closed(&self) -> bool {
        self.closed.get()
    }
}

impl fmt::Debug for ChildGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChildGroup")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}
