//! Servers for clients outside the agent: health, the pods, and the admin socket.
//!
//! Each server is an actor that owns its listener. Requests are answered beside it, each connection in
//! a task of its own: a request that panics or hangs affects its own connection alone. A listener that
//! cannot be had is the actor's failure, and its supervisor tries again.

pub mod admin;
pub mod healthz;
pub mod node_api;

#[cfg(test)]
mod tests;

use serving::listen;
pub use serving::listen::ListenError;
pub use serving::server::{AcceptError, MAILBOX, Msg, Snapshot};
