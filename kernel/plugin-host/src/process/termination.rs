//! The end of processes, and those that do not come to theirs: killed, stuck in the kernel, given up.

use std::collections::BTreeSet;
use std::time::Duration;

use kernel::watch;

use crate::client::PluginClient;
use crate::declaration::TerminationTimeouts;
use crate::persistent::Abandoned;
use crate::process::PluginProcess;

/// So many abandoned processes of one plugin are borne; the next one is waited for. What a stuck
/// process holds, memory above all, it holds until it ends.
pub(crate) const MAX_ABANDONED: usize = 8;

/// How long a killed process is waited for until that is worth a line.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);

/// How a process ended that was abandoned.
const STUCK: &str = "killed, but stuck in the kernel";

/// The generation that stands for the processes of an earlier agent.
pub(crate) const PREDECESSOR_GENERATION: u64 = 0;

impl PluginClient {
    /// Returns the generations that were given up and whose process still exists; 0 stands for those
    /// of an earlier agent.
    pub fn abandoned(&self) -> BTreeSet<u64> {
        let list = self.shared.abandoned.borrow();
        list.iter().map(|abandoned| abandoned.generation).collect()
    }

    /// Follows which processes are abandoned. It changes at every end of a process, too, so that a task that waits for
    /// one may check again.
    pub fn abandonments(&self) -> watch::Receiver<Vec<Abandoned>> {
        self.shared.abandoned.subscribe()
    }

    /// Whether anything of a generation is left: its process runs, is being ended, or was given up and
    /// has not ended yet.
    pub fn exists(&self, generation: u64) -> bool {
        self.persistent().processes.contains_key(&generation)
            || self.abandoned().contains(&generation)
    }

    /// Waits until nothing of a generation is left.
    ///
    /// Until then a call that it is stuck in may still come to its end in the kernel, and whatever
    /// repeats that call is likely to get stuck as well.
    pub async fn ended(&self, generation: u64) {
        let mut ends = self.abandonments();
        while self.exists(generation) {
            // The sender lives in `self`: waiting cannot fail.
            drop(ends.changed().await);
        }
    }

    /// Waits until one more process may be abandoned.
    pub(crate) async fn room(&self) {
        let mut ends = self.abandonments();
        // The sender lives in `self`: waiting cannot fail.
        drop(ends.wait_for(|list| list.len() < MAX_ABANDONED).await);
    }

    /// Asks the process of a generation to end, then kills it; returns how it ended.
    pub(crate) async fn terminate(
        &self,
        generation: u64,
        process: &PluginProcess,
        timeouts: TerminationTimeouts,
    ) -> String {
        match process.terminate(timeouts.term).await {
            Some(exit) => {
                self.forget(generation);
                exit
            }
            None => self.kill(generation, process, timeouts).await,
        }
    }

    /// Kills the process of a generation and waits until it is dead, or may be abandoned; returns how
    /// it ended.
    pub(crate) async fn kill(
        &self,
        generation: u64,
        process: &PluginProcess,
        timeouts: TerminationTimeouts,
    ) -> String {
        let mut within = timeouts.abandon.unwrap_or(KILL_TIMEOUT);
        loop {
            if let Some(exit) = process.killed(within).await {
                self.forget(generation);
                return exit;
            }
            if timeouts.abandon.is_some() && self.abandon(generation, process) {
                return STUCK.to_owned();
            }
            tracing::error!(
                plugin = self.name(),
                pid = process.pid(),
                "killed process does not die; its successor waits for it"
            );
            within = KILL_TIMEOUT;
        }
    }

    /// Takes note that a generation has no process any more.
    pub(crate) fn forget(&self, generation: u64) {
        let mut persistent = self.persistent();
        persistent.processes.remove(&generation);
        persistent.wires.remove(&generation);
        drop(persistent);
        // The tasks that wait in `ended` check again.
        self.shared.abandoned.send_modify(|_| {});
    }

    /// Gives a killed process up, unless too many are already; returns whether it did.
    fn abandon(&self, generation: u64, process: &PluginProcess) -> bool {
        let abandoned = Abandoned {
            generation,
            pid: process.pid(),
        };
        let noted = self.shared.abandoned.send_if_modified(|list| {
            let room = list.len() < MAX_ABANDONED;
            if room {
                list.push(abandoned);
            }
            room
        });
        if !noted {
            return false;
        }
        let (plugin, pid) = (self.name(), process.pid());
        tracing::error!(
            plugin,
            generation,
            pid,
            "killed process is stuck in the kernel; going on without it"
        );
        let wire = self.persistent().wires.remove(&generation);
        self.forget(generation);
        if let Some(wire) = wire {
            wire.cut();
        }
        let (line, process) = (self.clone(), process.clone());
        tokio::spawn(async move {
            process.dead().await;
            tracing::info!(plugin, generation, pid, "abandoned process has ended");
            line.shared
                .abandoned
                .send_modify(|list| list.retain(|other| *other != abandoned));
        });
        true
    }
}
