//! The microkernel: supervised actors, bounded mailboxes, checkpoints, the clock and seeded randomness.
//!
//! It knows no pod. The modules stand in the order in which a newcomer reads them.

// Actors: the trait, and their context while they run.
pub mod actor;

pub mod context;

pub mod error_chain;

// How actors talk to each other.
pub mod mailbox;

pub mod watch;

// How children are supervised, when they are restarted, and what can be seen of them.
pub mod supervisor;

pub mod observe;

// How an actor's state outlives the process.
pub mod checkpoint;

// What carries the actors: the thread, its clock, its randomness and its watchdog.
pub mod system;

// How actors are tested.
#[cfg(feature = "testing")]
pub mod testing;

pub use actor::Actor;
pub use context::{Context, TaskId, TimerId};
pub use error_chain::error_chain;
pub use mailbox::address::{Addr, AskError, Full, Overloaded, Recipient, Reply};
pub use mailbox::gauge::MailboxView;
pub use mailbox::message::Message;
pub use mailbox::{Port, mailbox};
pub use observe::{DegradedChild, LateActor, TreeNode};
pub use supervisor::exit::Exit;
pub use supervisor::fault::InjectedFault;
pub use supervisor::restart::Intensity;
pub use supervisor::spec::{ChildSpec, Restart, Strategy};
pub use supervisor::{NoSuchChild, Supervisor};
pub use system::blocking::spawn_blocking;
pub use system::clock::{now, timestamp, timestamp_of, wall};
pub use system::compute::ComputeThread;
pub use system::random::chance;
