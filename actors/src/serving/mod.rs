//! What the outside may ask: health, the pods, and, through the admin socket, everything.
//!
//! Each server is an actor that owns its listener. Requests are answered beside it, each connection in
//! a task of its own: a request that breaks or waits is one connection's trouble. A listener that
//! cannot be had is the actor's failure, and its supervisor tries again.

pub mod admin;
pub mod healthz;
pub mod read_only;

#[cfg(test)]
mod tests;

use std::io;

use serde::Serialize;

pub use ::serving::listen::{self, BindError};

/// A server hears its own accept loop only.
pub const MAILBOX: usize = 16;

/// What a server is told.
#[derive(Debug, strum::IntoStaticStr)]
pub enum Msg {
    /// Fails: no connection is accepted any more.
    Deaf(Deaf),
}

/// Why a server stopped accepting connections.
#[derive(Debug, thiserror::Error)]
#[error("{address} accepts no connections any more")]
pub struct Deaf {
    address: String,
    source: io::Error,
}

/// Where it listens and how busy it is.
#[derive(Debug, Serialize)]
pub struct Snapshot {
    pub address: String,
    pub connections: usize,
    pub requests: u64,
}
