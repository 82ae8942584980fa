//! The message and the snapshot that all servers share.

use std::io;

use serde::Serialize;

use crate::http::Traffic;

/// A server's own accept loop is the only sender.
pub const MAILBOX: usize = 16;

/// Messages of a server.
#[derive(Debug, strum::IntoStaticStr)]
pub enum Msg {
    /// Fails the actor: the listener accepts no more connections.
    Deaf(AcceptError),
}

/// Why a server stopped accepting connections.
#[derive(Debug, thiserror::Error)]
#[error("{address} accepts no connections any more")]
pub struct AcceptError {
    /// Where the listener was.
    pub address: String,
    pub source: io::Error,
}

/// Snapshot: where the server listens and how busy it is.
#[derive(Debug, Serialize)]
pub struct Snapshot {
    pub address: String,
    /// Open now.
    pub connections: usize,
    /// Since the start.
    pub requests: u64,
}

impl Snapshot {
    pub fn new(address: String, traffic: &Traffic) -> Self {
        Snapshot {
            address,
            connections: traffic.connections(),
            requests: traffic.requests(),
        }
    }
}
