//! What every server hears and shows.

use std::io;

use serde::Serialize;

use crate::http::Traffic;

/// A server hears its own accept loop only.
pub const MAILBOX: usize = 16;

/// What a server is told.
#[derive(Debug, strum::IntoStaticStr)]
pub enum Msg {
    /// Fails: no connection is accepted any more.
    Deaf(AcceptError),
}

/// Why a server stopped accepting connections.
#[derive(Debug, thiserror::Error)]
#[error("{address} accepts no connections any more")]
pub struct AcceptError {
    pub address: String,
    pub source: io::Error,
}

/// Where it listens and how busy it is.
#[derive(Debug, Serialize)]
pub struct Snapshot {
    pub address: String,
    pub connections: usize,
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
