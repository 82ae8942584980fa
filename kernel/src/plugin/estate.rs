//! What one incarnation of a host leaves to the next: the actor may panic, the plugin serves on.

use std::collections::BTreeMap;
use std::sync::Arc;

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
    pub(super) restarts: u64,
    pub(super) last_exit: Option<String>,
}

impl Estate {
    /// Takes the processes of every generation but the current one.
    pub(super) fn take_others(&mut self) -> Vec<Process> {
        let current = self.current;
        let (kept, others) = std::mem::take(&mut self.processes)
            .into_iter()
            .partition(|(generation, _)| Some(*generation) == current);
        self.processes = kept;
        BTreeMap::into_values(others).collect()
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
