//! The microkernel: supervised actors, bounded mailboxes, checkpoints and the plugin host.
//!
//! It has never heard of a pod. The modules stand in the order in which a newcomer reads them.

// What an actor is, how it is talked to, and what it is given while it runs.
pub mod actor;

pub mod mailbox;

pub mod context;

// Who restarts it and when, and what can be seen of it.
pub mod supervisor;

pub mod restart;

pub mod observe;

// How its state outlives the process.
pub mod checkpoint;

// How processes beside it are kept alive and called.
pub mod plugin;

// What carries it all: the thread, who watches the thread, and actix.
pub mod system;

pub mod watchdog;

mod shell;

// How it is tested.
#[cfg(feature = "testing")]
pub mod testing;

pub use actor::{Actor, Exit, Message};
pub use context::{Context, TaskId, TimerId, now, wall};
pub use mailbox::{Addr, AskError, Full, MailboxView, Overloaded, Port, Recipient, Reply, mailbox};
pub use observe::{Degraded, Node};
pub use supervisor::{ChildSpec, Fault, Intensity, NoSuchChild, Restart, Strategy, Supervisor};
