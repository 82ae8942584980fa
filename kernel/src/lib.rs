//! The microkernel: supervised actors, bounded mailboxes, checkpoints, the clock and seeded randomness.
//!
//! It knows no pod. The modules stand in the order in which a newcomer reads them.

// Actors: their messages, their ends, and their context while they run.
pub mod actor;

pub mod message;

pub mod exit;

pub mod error_chain;

pub mod context;

pub mod clock;

pub mod random;

pub mod blocking;

// How actors talk to each other.
pub mod address;
mod ask_order;

pub mod mailbox;

pub mod watch;

mod gauge;

mod mail;

// How children are supervised, when they are restarted, and what can be seen of them.
pub mod spec;

pub mod supervisor;

pub mod restart;

pub mod fault;

pub mod observe;

// How an actor's state outlives the process.
pub mod checkpoint;

// What carries the actors: the thread, the watchdog of the thread, and actix.
pub mod system;

pub mod watchdog;

mod shell;

// How actors are tested.
#[cfg(feature = "testing")]
pub mod testing;

pub use actor::Actor;
pub use address::{Addr, AskError, Full, Overloaded, Recipient, Reply};
pub use blocking::spawn_blocking;
pub use clock::{now, timestamp, timestamp_of, wall};
pub use context::{Context, TaskId, TimerId};
pub use error_chain::error_chain;
pub use exit::Exit;
pub use fault::InjectedFault;
pub use gauge::MailboxView;
pub use mailbox::{Port, mailbox};
pub use message::Message;
pub use observe::{DegradedChild, TreeNode};
pub use random::chance;
pub use restart::Intensity;
pub use spec::{ChildSpec, Restart, Strategy};
pub use supervisor::{NoSuchChild, Supervisor};
