//! What one incarnation of a host leaves to the next: the actor may panic, the plugin serves on.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::connection::ClientConnection;
use crate::declaration::Declaration;
use crate::process::PluginProcess;
use crate::process::socket::PluginSocket;

/// Kept with the [`PluginClient`](crate::PluginClient), which outlives the actor as well.
#[derive(Debug, Default)]
pub(super) struct PersistentState {
    /// Another declaration than the first one, since a swap.
    pub(super) declaration: Option<Arc<Declaration>>,
    /// The socket that the current generation serves.
    pub(super) socket: Option<Arc<PluginSocket>>,
    /// The last generation that was started.
    pub(super) generation: u64,
    /// The generation that callers are led to.
    pub(super) current: Option<u64>,
    /// Processes that were started and have not been seen to end.
    pub(super) processes: BTreeMap<u64, PluginProcess>,
    /// The connections to those generations that callers reach, or reached.
    pub(super) wires: BTreeMap<u64, ClientConnection>,
    pub(super) restarts: u64,
    pub(super) last_exit: Option<String>,
}

impl PersistentState {
    /// Returns the processes of every generation but the current one.
    pub(super) fn others(&self) -> Vec<(u64, PluginProcess)> {
        let mut others = self.all();
        others.retain(|(generation, _)| Some(*generation) != self.current);
        others
    }

    /// Returns the processes of every generation.
    pub(super) fn all(&self) -> Vec<(u64, PluginProcess)> {
        let all = self.processes.iter();
        all.map(|(generation, process)| (*generation, process.clone()))
            .collect()
    }

    /// Notes what leads to a generation.
    pub(super) fn wire(&mut self, generation: u64, wire: ClientConnection) {
        // A generation that never had a process is never forgotten by `forget`.
        let Self {
            wires, processes, ..
        } = self;
        wires.retain(|other, _| processes.contains_key(other));
        wires.insert(generation, wire);
    }

    /// Returns the process of the current generation, if it lives.
    pub(super) fn adoptable(&self) -> Option<(u64, PluginProcess)> {
        let generation = self.current?;
        let process = self
            .processes
            .get(&generation)
            .filter(|process| process.alive())?;
        Some((generation, process.clone()))
    }
}

/// A process that was killed and given up, because it is stuck in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Abandoned {
    /// Which generation it was; 0 for a process of an earlier agent.
    pub generation: u64,
    /// The process, for as long as it is listed.
    pub pid: u32,
}
