//! The order in which NUMA nodes, sockets, caches, cores and CPUs are tried: those with the fewest free CPUs first, so
//! that what is whole stays whole; lower numbers first among equals.
//!
//! Each level is ordered within the level above it. Sockets stand above NUMA nodes where there are fewer of them, and
//! NUMA nodes above sockets otherwise. Only what has a free CPU is listed.

use std::collections::BTreeMap;

use super::{Accumulator, CpuOrder};
use crate::cpus::cpu_set::CpuSet;
use crate::cpus::machine::{CoreId, SocketId};
use crate::topology::NumaNodeId;

impl Accumulator<'_> {
    /// Whether a NUMA node may hold several sockets, rather than a socket several nodes.
    fn nodes_come_first(&self) -> bool {
        self.machine.sockets().len() >= self.machine.nodes().len()
    }

    pub(super) fn nodes(&self) -> Vec<NumaNodeId> {
        let nodes = self.machine.nodes();
        match self.nodes_come_first() {
            true => self.within(nodes, self.machine.cpus()),
            false => self.below(nodes, self.machine.sockets(), &self.sockets()),
        }
    }

    pub(super) fn sockets(&self) -> Vec<SocketId> {
        let sockets = self.machine.sockets();
        match self.nodes_come_first() {
            true => self.below(sockets, self.machine.nodes(), &self.nodes()),
            false => self.within(sockets, self.machine.cpus()),
        }
    }

    pub(super) fn cores(&self) -> Vec<CoreId> {
        let cores = self.machine.cores();
        match self.nodes_come_first() {
            true => self.below(cores, self.machine.sockets(), &self.sockets()),
            false => self.below(cores, self.machine.nodes(), &self.nodes()),
        }
    }

    /// The CPUs of each cache that has a free one.
    pub(super) fn caches(&self) -> Vec<&CpuSet> {
        let caches = self.machine.caches();
        let order = self.below(caches, self.machine.nodes(), &self.nodes());
        order.iter().filter_map(|id| caches.get(id)).collect()
    }

    /// The single CPUs.
    pub(super) fn cpus(&self) -> Vec<u32> {
        let free_of = |cpus: &CpuSet| cpus.intersection(&self.free);
        let groups: Vec<CpuSet> = match self.order {
            CpuOrder::Packed => {
                let cores = self.cores();
                let cores = cores.iter().filter_map(|id| self.machine.cores().get(id));
                cores.map(free_of).collect()
            }
            CpuOrder::Spread => {
                let sockets = self.sockets();
                let sockets = sockets.iter();
                let sockets = sockets.filter_map(|id| self.machine.sockets().get(id));
                sockets.map(free_of).collect()
            }
        };
        groups.iter().flat_map(CpuSet::iter).collect()
    }

    /// Those of the groups that are free as a whole.
    pub(super) fn whole<K: Ord>(&self, order: Vec<K>, groups: &BTreeMap<K, CpuSet>) -> Vec<CpuSet> {
        let sets = order.iter().filter_map(|id| groups.get(id));
        sets.filter(|cpus| cpus.is_subset(&self.free))
            .cloned()
            .collect()
    }

    /// The groups of one level, for each group of the level above in turn.
    fn below<K: Copy + Ord, A: Ord>(
        &self,
        groups: &BTreeMap<K, CpuSet>,
        above: &BTreeMap<A, CpuSet>,
        order: &[A],
    ) -> Vec<K> {
        let mut listed: Vec<K> = Vec::new();
        for cpus in order.iter().filter_map(|id| above.get(id)) {
            let new = self.within(groups, cpus);
            let new: Vec<K> = new.into_iter().filter(|id| !listed.contains(id)).collect();
            listed.extend(new);
        }
        listed
    }

    /// The groups that have a free CPU among these, by how many are free in all of the group.
    fn within<K: Copy + Ord>(&self, groups: &BTreeMap<K, CpuSet>, among: &CpuSet) -> Vec<K> {
        let free = self.free.intersection(among);
        let there = groups.iter().filter(|(_, cpus)| cpus.common(&free) > 0);
        let mut there: Vec<(u32, K)> = there
            .map(|(id, cpus)| (cpus.common(&self.free), *id))
            .collect();
        there.sort_unstable();
        there.into_iter().map(|(_, id)| id).collect()
    }
}
