//! Which of the free CPUs a container gets.
//!
//! Mirrors upstream's cpumanager/cpu_assignment.go at v1.36, with two differences. Where a core or socket has more CPUs
//! than the others (cores of two kinds), it counts as free only if all of its own CPUs are: upstream compares with the
//! average, and may give away a CPU twice. And the sets of NUMA nodes that are compared stay as they are; upstream's of
//! four nodes and more overwrite each other.

mod distributed;
mod free_groups;
mod packed;
#[cfg(test)]
mod tests;

use thiserror::Error;

pub(super) use self::distributed::take_distributed;
pub(super) use self::packed::take_packed;
use super::cpu_set::CpuSet;
use super::machine::CpuMachine;

/// In which order single CPUs are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CpuOrder {
    /// One core after the other.
    Packed,
    /// By their numbers within a socket: as the kernel numbers the first thread of every core before the second ones,
    /// each comes from a core of its own (`distribute-cpus-across-cores`).
    Spread,
}

/// Whether CPUs are taken such that they share a last-level cache (`prefer-align-cpus-by-uncorecache`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CachePreference {
    Shared,
    Any,
}

/// There are fewer CPUs than asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "not enough cpus available to satisfy request: requested={requested}, available={available}"
)]
pub(super) struct NotEnoughCpus {
    pub requested: u32,
    pub available: u32,
}

/// Takes CPUs from those that are free until it has as many as it needs.
#[derive(Debug)]
pub(super) struct Accumulator<'a> {
    machine: &'a CpuMachine,
    order: CpuOrder,
    free: CpuSet,
    taken: CpuSet,
    /// How many more it needs.
    needed: u32,
}

impl<'a> Accumulator<'a> {
    /// # Errors
    ///
    /// Fewer CPUs of the machine are available than asked for.
    pub(super) fn new(
        machine: &'a CpuMachine,
        available: &CpuSet,
        needed: u32,
        order: CpuOrder,
    ) -> Result<Self, NotEnoughCpus> {
        let free = machine.cpus().intersection(available);
        if needed > free.len() {
            return Err(NotEnoughCpus {
                requested: needed,
                available: available.len(),
            });
        }
        Ok(Self {
            machine,
            order,
            free,
            taken: CpuSet::default(),
            needed,
        })
    }

    /// Takes CPUs that are free, no more than it needs.
    pub(super) fn take(&mut self, cpus: &CpuSet) {
        debug_assert!(cpus.is_subset(&self.free) && cpus.len() <= self.needed);
        self.taken = self.taken.union(cpus);
        self.free = self.free.difference(cpus);
        self.needed -= cpus.len();
    }

    pub(super) fn is_satisfied(&self) -> bool {
        self.needed == 0
    }

    /// Takes every one of the groups that is no larger than what it still needs.
    fn take_whole(&mut self, groups: Vec<CpuSet>) {
        for group in groups {
            if group.len() <= self.needed {
                self.take(&group);
            }
        }
    }

    /// All that it has taken.
    fn into_taken(self) -> CpuSet {
        debug_assert!(self.is_satisfied());
        self.taken
    }
}
