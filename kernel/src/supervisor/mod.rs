//! Supervision in OTP's words: who is restarted, when, and with whom.
//!
//! A supervisor is a handle on a group of children, each an actor or another supervisor. A child
//! that ends is restarted by the rules of its [`ChildSpec`], the first time at once and then after
//! growing pauses. One that fails more often than the group's [`Intensity`] allows escalates: the
//! whole group is restarted, which counts as one failure of the group in *its* supervisor. At the
//! root there is nobody left to escalate to: the child is *degraded*, which everybody can see, and
//! tried again at the longest pause for ever, while its siblings go on.
//!
//! The tree lives on the actors' thread and so does every handle on it.

mod group;
mod hang;
pub(crate) mod life;

use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::actor::Actor;
use crate::mailbox::Port;
use crate::observe::{Degraded, Node};
use crate::supervisor::group::Group;

/// When a child that ended is restarted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Restart {
    /// Always.
    Permanent,
    /// When it ended other than by its own wish.
    Transient,
    /// Never.
    Temporary,
}

/// Who is restarted with a child that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Strategy {
    /// Nobody.
    OneForOne,
    /// Everyone spawned after it.
    RestForOne,
    /// Everyone.
    OneForAll,
}

/// How many restarts of one child are taken before its supervisor gives up on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Intensity {
    /// So many restarts are taken ...
    pub restarts: u32,
    /// ... in any stretch of time as long as this.
    pub within: Duration,
}

impl Intensity {
    /// Never gives up: for children that must not take their group down, such as one pod's worker
    /// among a thousand. Their restarts slow down to one every thirty seconds.
    pub const UNLIMITED: Intensity = Intensity {
        restarts: u32::MAX,
        within: Duration::from_secs(60),
    };
}

/// How one actor is supervised.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChildSpec {
    /// Its name among its siblings.
    pub id: String,
    /// When it is restarted.
    pub restart: Restart,
    /// How long its [`stop`](Actor::stop) may take, the message before it included.
    pub shutdown: Duration,
    /// How long one message may take before the actor counts as hung.
    pub answer_within: Duration,
}

impl ChildSpec {
    /// A child that is always restarted.
    pub fn permanent(id: impl Into<String>) -> ChildSpec {
        ChildSpec {
            id: id.into(),
            restart: Restart::Permanent,
            shutdown: Duration::from_secs(5),
            answer_within: Duration::from_secs(30),
        }
    }

    /// A child that may end by its own wish.
    pub fn transient(id: impl Into<String>) -> ChildSpec {
        let restart = Restart::Transient;
        ChildSpec {
            restart,
            ..ChildSpec::permanent(id)
        }
    }

    /// A child that is never restarted.
    pub fn temporary(id: impl Into<String>) -> ChildSpec {
        let restart = Restart::Temporary;
        ChildSpec {
            restart,
            ..ChildSpec::permanent(id)
        }
    }

    /// Sets how long its [`stop`](Actor::stop) may take.
    pub fn shutdown(self, shutdown: Duration) -> ChildSpec {
        ChildSpec { shutdown, ..self }
    }

    /// Sets how long one message may take.
    pub fn answer_within(self, answer_within: Duration) -> ChildSpec {
        ChildSpec {
            answer_within,
            ..self
        }
    }
}

/// A way to break an actor on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fault {
    /// It panics at its next message.
    Panic,
    /// It never finishes its next message.
    Hang,
}

/// There is no actor at this path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no actor {path}")]
pub struct NoSuchChild {
    /// The path that was looked for.
    pub path: String,
}

/// A handle on a group of children. Clones are handles on the same group.
#[derive(Clone)]
pub struct Supervisor(Rc<Group>);

impl Supervisor {
    /// Makes the root of a tree, on the actors' thread (see [`system::run`](crate::system::run)).
    pub fn root(name: &str, intensity: Intensity) -> Supervisor {
        let root = Group::root(name, intensity);
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

    /// Looks at the whole tree. An actor that does not show itself within a second has a null
    /// snapshot, and `busy_with` says what keeps it.
    pub async fn tree(&self) -> Node {
        self.0.tree().await
    }

    /// Returns the children whose restarts are exhausted. Only the root's ever are: further down they escalate.
    pub fn degraded(&self) -> Vec<Degraded> {
        self.0.degraded()
    }

    /// Breaks the actor at `path`, as [`Node::path`] spells it.
    pub fn inject(&self, path: &str, fault: Fault) -> Result<(), NoSuchChild> {
        match self.0.find(path) {
            Some(life) => {
                life.inject(fault);
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
