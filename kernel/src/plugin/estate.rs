//! What one incarnation of a host leaves to the next: the actor may panic, the plugin serves on.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::connection::Wire;
use super::declaration::Declaration;
use super::process::Process;
use super::socket::Socket;

/// Kept with the [`Line`](super::Line), which outlives the actor as well.
#[derive(Debug, Default)]
pub(super) struct Estate {
    /// Another declaration than the first one, since a swap.
    pub(super) declaration: Option<Arc<Declaration>>,
    /// The socket that the current generation serves.
    pub(super) socket: Option<Arc<Socket>>,
    /// The last generation that was started.
    pub(super) generation: u64,
    /// The generation that callers are led to.
    pub(super) current: Option<u64>,
    /// Processes that were started and have not been seen to end.
    pub(super) processes: BTreeMap<u64, Process>,
    /// What leads to those of them that callers reach, or reached.
    pub(super) wires: BTreeMap<u64, Wire>,
    pub(super) restarts: u64,
    pub(super) last_exit: Option<String>,
}

impl Estate {
    /// Returns the processes of every generation but the current one.
    pub(super) fn others(&self) -> Vec<(u64, Process)> {
        let mut others = self.all();
        others.retain(|(generation, _)| Some(*generation) != self.current);
        others
    }

    /// Returns the processes of every generation.
    pub(super) fn all(&self) -> Vec<(u64, Process)> {
        let all = self.processes.iter();
        all.map(|(generation, process)| (*generation, process.clone()))
            .collect()
    }

    /// Notes what leads to a generation.
    pub(super) fn wire(&mut self, generation: u64, wire: Wire) {
        // A generation that never had a process has nobody to be forgotten with.
        let Self {
            wires, processes, ..
        } = self;
        wires.retain(|other, _| processes.contains_key(other));
        wires.insert(generation, wire);
    }

    /// Returns the process of the current generation, if it lives.
    pub(super) fn heir(&self) -> Option<(u64, Process)> {
        let generation = self.current?;
        let process = self
            .processes
            .get(&generation)
            .filter(|process| process.alive())?;
        Some((generation, process.clone()))
    }
}
