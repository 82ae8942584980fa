//! Where each logical CPU lies: its core, socket, NUMA node and last-level cache.
//!
//! Mirrors upstream's cpumanager/topology at v1.36. Counts follow from the CPUs; upstream is told some of them apart.

use std::collections::{BTreeMap, BTreeSet};

use super::cpu_set::{CpuSet, MAX_CPUS};
use crate::topology::{NumaMask, NumaNodeId};

/// A physical core, by the lowest number of its CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CoreId(pub u32);

/// A socket, by the kernel's number of the package.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SocketId(pub u32);

/// A last-level cache that not all CPUs of a socket share, by the kernel's number; that of the socket where there is
/// none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UncoreCacheId(pub u32);

/// Where a logical CPU lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuPlace {
    pub core: CoreId,
    pub socket: SocketId,
    pub node: NumaNodeId,
    pub cache: UncoreCacheId,
}

/// The CPUs of the machine that are online.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuMachine {
    places: BTreeMap<u32, CpuPlace>,
    all: CpuSet,
    cores: BTreeMap<CoreId, CpuSet>,
    sockets: BTreeMap<SocketId, CpuSet>,
    nodes: BTreeMap<NumaNodeId, CpuSet>,
    caches: BTreeMap<UncoreCacheId, CpuSet>,
}

/// Whether CPUs share a cache; none, or one alone, always does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UncoreAlignment {
    Aligned,
    Split,
}

impl CpuMachine {
    /// The machine of these CPUs; a number that no CPU can have is left out.
    pub fn new(places: BTreeMap<u32, CpuPlace>) -> Self {
        let mut places = places;
        places.retain(|cpu, _| *cpu < MAX_CPUS);
        Self {
            all: CpuSet::from_numbers(places.keys().copied()),
            cores: groups(&places, |place| place.core),
            sockets: groups(&places, |place| place.socket),
            nodes: groups(&places, |place| place.node),
            caches: groups(&places, |place| place.cache),
            places,
        }
    }

    /// Where a CPU lies; none where it is no CPU of the machine.
    pub fn place(&self, cpu: u32) -> Option<CpuPlace> {
        self.places.get(&cpu).copied()
    }

    /// All CPUs.
    pub fn cpus(&self) -> &CpuSet {
        &self.all
    }

    /// The CPUs of each core.
    pub fn cores(&self) -> &BTreeMap<CoreId, CpuSet> {
        &self.cores
    }

    /// The CPUs of each socket.
    pub fn sockets(&self) -> &BTreeMap<SocketId, CpuSet> {
        &self.sockets
    }

    /// The CPUs of each NUMA node; a node without CPUs is absent.
    pub fn nodes(&self) -> &BTreeMap<NumaNodeId, CpuSet> {
        &self.nodes
    }

    /// The CPUs of each last-level cache.
    pub fn caches(&self) -> &BTreeMap<UncoreCacheId, CpuSet> {
        &self.caches
    }

    /// The NUMA nodes that have CPUs.
    pub fn node_mask(&self) -> NumaMask {
        self.nodes.keys().copied().collect()
    }

    /// How many CPUs a core has on average, rounded down: zero on a machine without any.
    pub fn cpus_per_core(&self) -> u32 {
        average(&self.all, self.cores.len())
    }

    /// How many CPUs share a last-level cache on average, rounded down: zero on a machine without any.
    pub fn cpus_per_cache(&self) -> u32 {
        average(&self.all, self.caches.len())
    }

    /// The CPUs of some NUMA nodes.
    pub fn cpus_in_nodes(&self, nodes: NumaMask) -> CpuSet {
        let sets = nodes.nodes().filter_map(|node| self.nodes.get(&node));
        sets.fold(CpuSet::default(), |all, cpus| all.union(cpus))
    }

    /// The sockets that have a CPU in some NUMA nodes.
    pub fn sockets_in_nodes(&self, nodes: NumaMask) -> BTreeSet<SocketId> {
        let places = self.places.values();
        let there = places.filter(|place| nodes.contains(place.node));
        there.map(|place| place.socket).collect()
    }

    /// The CPUs of the cores of some CPUs: those that run beside them as well.
    pub fn with_siblings(&self, cpus: &CpuSet) -> CpuSet {
        let cores = self.cores.values().filter(|core| core.common(cpus) > 0);
        cores.fold(CpuSet::default(), |all, core| all.union(core))
    }

    /// Whether CPUs share a cache (upstream's topology/alignment.go). CPUs that the machine does not have share none.
    pub fn uncore_alignment(&self, cpus: &CpuSet) -> UncoreAlignment {
        let is_within = |cache: &CpuSet| cpus.is_subset(cache);
        match cpus.len() <= 1 || self.caches.values().any(is_within) {
            true => UncoreAlignment::Aligned,
            false => UncoreAlignment::Split,
        }
    }
}

fn groups<K: Ord>(
    places: &BTreeMap<u32, CpuPlace>,
    key: impl Fn(&CpuPlace) -> K,
) -> BTreeMap<K, CpuSet> {
    let mut members: BTreeMap<K, Vec<u32>> = BTreeMap::new();
    for (cpu, place) in places {
        members.entry(key(place)).or_default().push(*cpu);
    }
    let sets = members.into_iter();
    sets.map(|(key, cpus)| (key, CpuSet::from_numbers(cpus)))
        .collect()
}

fn average(all: &CpuSet, groups: usize) -> u32 {
    let groups = u32::try_from(groups).unwrap_or(u32::MAX);
    all.len().checked_div(groups).unwrap_or(0)
}
