//! The plugin host: processes that serve gRPC, kept alive by one actor each.
//!
//! [`PluginHost`] is that actor. It starts a plugin from its [`Declaration`], checks that it is what it was declared
//! to be, watches its health, and replaces it when it dies, hangs, or is to be swapped. [`PluginClient`] is the
//! caller's end: it follows the plugin from generation to generation, so that a caller of an idempotent call never
//! sees one go. A [`Confiner`] has each process confine itself before it becomes the plugin. The contract between the two sides is `proto/plugin/v1/base.proto`; `plugins/sdk` is the other side of
//! it.
//!
//! **Invariants.** The listening socket is bound here and outlives every process that serves it,
//! so a plugin that is down delays a connection but never refuses it. A generation is proven dead
//! before the next one gets its socket; or, where its declaration says so, killed and stuck in the
//! kernel, from where it cannot come back. Nothing is made twice: a call that creates is sent once.

mod client;
mod confinement;
mod connection;
mod declaration;
mod error;
mod generation;
mod health;
mod host;
mod message;
mod persistent;
mod process;
#[cfg(feature = "testing")]
pub mod testing;

pub use client::{MESSAGE_LIMIT, PluginClient, PluginState, PluginStatus};
pub use confine::{Capabilities, SystemCalls};
pub use confinement::{Confined, Confinement, Confiner, GroupUsage, MountVisibility, group_usage};
pub use declaration::{Declaration, DeclarationError, LaunchMethod, ServiceKind};
pub use error::CallError;
pub use generation::update::GenerationUpdate;
pub use host::{FailureListener, PluginHost, Snapshot};
pub use message::{GenerationReply, HostError, Msg};
pub use persistent::Abandoned;
