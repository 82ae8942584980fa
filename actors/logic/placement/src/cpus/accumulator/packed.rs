//! CPUs that lie close together: whole sockets and NUMA nodes first, then whole caches if that is preferred, then whole
//! cores, then single CPUs of the fullest cores.

use super::{Accumulator, CachePreference, CpuOrder, NotEnoughCpus};
use crate::cpus::cpu_set::CpuSet;
use crate::cpus::machine::CpuMachine;

/// So many of the available CPUs.
///
/// # Errors
///
/// Fewer are available.
pub(in crate::cpus) fn take_packed(
    machine: &CpuMachine,
    available: &CpuSet,
    count: u32,
    order: CpuOrder,
    caches: CachePreference,
) -> Result<CpuSet, NotEnoughCpus> {
    let mut accumulator = Accumulator::new(machine, available, count, order)?;
    accumulator.take_first_level();
    accumulator.take_second_level();
    if caches == CachePreference::Shared {
        accumulator.take_by_cache();
    }
    if order == CpuOrder::Packed {
        let cores = accumulator.whole(accumulator.cores(), machine.cores());
        accumulator.take_whole(cores);
    }
    accumulator.take_singles();
    Ok(accumulator.into_taken())
}

impl Accumulator<'_> {
    /// Whole sockets; whole NUMA nodes where those are larger.
    fn take_first_level(&mut self) {
        match self.machine.sockets().len() >= self.machine.nodes().len() {
            true => self.take_nodes(),
            false => self.take_sockets(),
        }
    }

    fn take_second_level(&mut self) {
        match self.machine.sockets().len() >= self.machine.nodes().len() {
            true => self.take_sockets(),
            false => self.take_nodes(),
        }
    }

    fn take_nodes(&mut self) {
        let nodes = self.whole(self.nodes(), self.machine.nodes());
        self.take_whole(nodes);
    }

    fn take_sockets(&mut self) {
        let sockets = self.whole(self.sockets(), self.machine.sockets());
        self.take_whole(sockets);
    }

    /// Whole caches as long as it needs that many CPUs, and then the first cache that has all the rest.
    fn take_by_cache(&mut self) {
        let caches: Vec<CpuSet> = self.caches().into_iter().cloned().collect();
        if self.needed >= self.machine.cpus_per_cache() {
            let free = caches.iter().filter(|cache| cache.is_subset(&self.free));
            let free = free.cloned().collect();
            self.take_whole(free);
        }
        for cache in caches {
            if self.is_satisfied() {
                return;
            }
            let rest = self.rest_in_cache(&cache);
            if rest.len() == self.needed {
                self.take(&rest);
            }
        }
    }

    /// What one cache could give of what it still needs: the free CPUs of as many of its lowest cores as it takes. An
    /// odd number ends with one CPU of the last core.
    fn rest_in_cache(&self, cache: &CpuSet) -> CpuSet {
        let per_core = self.machine.cpus_per_core().max(1);
        let wanted = usize::try_from(self.needed.div_ceil(per_core)).unwrap_or(usize::MAX);
        let free = self.free.intersection(cache);
        let cores = self.machine.cores().values();
        let cores = cores.filter(|core| core.common(&free) > 0).take(wanted);
        let cpus = cores.fold(CpuSet::default(), |all, core| all.union(core));
        let cpus = cpus.intersection(&self.free);
        match !self.needed.is_multiple_of(2) && per_core > 1 && cpus.len() > self.needed {
            true => cpus.lowest(cpus.len() - 1),
            false => cpus,
        }
    }

    fn take_singles(&mut self) {
        for cpu in self.cpus() {
            if self.is_satisfied() {
                return;
            }
            self.take(&CpuSet::from_numbers([cpu]));
        }
    }
}
