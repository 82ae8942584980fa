//! Supervision in OTP's words: which children are restarted, when, and with which siblings.
//!
//! A supervisor is a handle on a group of children, each an actor or another supervisor. A child that ends is
//! restarted by the rules of its [`ChildSpec`], the first time at once and then after growing pauses. One that fails
//! more often than the group's [`Intensity`] allows escalates: the whole group is restarted, which counts as one
//! failure of the group in *its* supervisor. The root has no supervisor to escalate to: the child is *degraded*, which
//! a snapshot shows, and tried again at the longest pause for ever, while its siblings go on.
//!
//! The tree lives on the actors' thread and so does every handle on it.

pub(crate) mod cell;
pub mod exit;
pub mod fault;
mod group;
mod hang;
mod incarnations;
pub mod restart;
pub(crate) mod shell;
pub mod spec;

use std::fmt;
use std::rc::Rc;

use crate::actor::Actor;
use crate::mailbox::Port;
use crate::observe::{DegradedChild, LateActor, TreeNode};
use crate::supervisor::fault::InjectedFault;
use crate::supervisor::group::ChildGroup;
use crate::supervisor::restart::Intensity;
use crate::supervisor::spec::{ChildSpec, Strategy};

/// There is no actor at this path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no actor {path}")]
pub struct NoSuchChild {
    /// The path that was looked for.
    pub path: String,
}

/// A handle on a group of children. Clones are handles on the same group.
#[derive(Clone)]
pub struct Supervisor(Rc<ChildGroup>);

impl Supervisor {
    /// Makes the root of a tree, on the actors' thread (see [`system::run`](crate::system::run)).
    pub fn root(name: &str, intensity: Intensity) -> Supervisor {
        let root = ChildGroup::root(name, intensity);
        tokio::task::spawn_local(hang::sweep(Rc::clone(&root)));
        Supervisor(root)
    }

    /// Adds a supervisor beneath this one.
    pub fn supervisor(&self, id: &str, strategy: Strategy, intensity: Intensity) -> Supervisor {
        Supervisor(self.0.add_group(id, strategy, intensity))
    }

    /// Adds an actor, which `make` makes anew at every restart, behind its mailbox.
    ///
    /// An `id` that is taken is a mistake of the caller: the older child is stopped, and a line in
    /// the log says so.
    pub fn spawn<A: Actor>(
        &self,
        spec: ChildSpec,
        port: Port<A::Msg>,
        make: impl FnMut() -> A + 'static,
    ) {
        self.0.add_actor(spec, port, make);
    }

    /// Ends a child in good order, in the background, and closes its mailbox. The name is free at once.
    pub fn stop_child(&self, id: &str) {
        self.0.stop_child(id);
    }

    /// Ends all children, the youngest first, each within its `shutdown`.
    pub async fn shutdown(&self) {
        self.0.shutdown().await;
    }

    /// Returns a snapshot of the whole tree. An actor that does not answer within a second has a null snapshot, and
    /// `busy_with` names the message that it handles.
    pub async fn tree(&self) -> TreeNode {
        self.0.tree().await
    }

    /// Returns the children whose restarts are exhausted. Only the root's ever are: further down they escalate.
    pub fn degraded(&self) -> Vec<DegradedChild> {
        self.0.degraded()
    }

    /// Returns the actors beneath that have been pinged and have not answered yet: they are restarted if they do not
    /// within their deadlines.
    pub fn late(&self) -> Vec<LateActor> {
        self.0.late()
    }

    /// Breaks the actor at `path`, as [`TreeNode::path`] spells it.
    ///
    /// # Errors
    /// [`NoSuchChild`] where no actor has this path.
    pub fn inject(&self, path: &str, fault: InjectedFault) -> Result<(), NoSuchChild> {
        match self.0.find(path) {
            Some(cell) => {
                cell.inject(fault);
                Ok(())
            }
            None => Err(NoSuchChild {
                path: path.to_owned(),
            }),
        }
    }
}

impl fmt::Debug for Supervisor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Supervisor({})", self.0.path())
    }
}
