//! A node for the tests of the areas above.

use std::collections::BTreeMap;

use crate::NodePlacement;
use crate::cpus::{
    CoreId, CpuMachine, CpuManager, CpuPlace, CpuSet, CpuSettings, ExclusiveQuota, OptionGates,
    SocketId, UncoreCacheId,
};
use crate::memory::{MemoryManager, MemorySettings};
use crate::topology::{NumaNodeId, PodLevelManagers, TopologyManager, TopologyPolicy};

/// A node that assigns CPUs by the static policy: it has so many on one NUMA node, each with a core of its own, and
/// keeps one for the system.
pub fn static_cpus(cpus: u32) -> NodePlacement {
    let place = |core: u32| CpuPlace {
        core: CoreId(core),
        socket: SocketId(0),
        node: NumaNodeId::new(0).expect("0 is a node"),
        cache: UncoreCacheId(0),
    };
    let places: BTreeMap<u32, CpuPlace> = (0..cpus).map(|cpu| (cpu, place(cpu))).collect();
    let machine = CpuMachine::new(places);
    let settings = CpuSettings {
        policy: "static",
        options: &BTreeMap::new(),
        gates: OptionGates::default(),
        reserved_milli: Some(500),
        reserved: &CpuSet::default(),
        topology: TopologyPolicy::None,
        pod_level: PodLevelManagers::Off,
        quota: ExclusiveQuota::Off,
    };
    let cpus = CpuManager::new(&settings, machine.clone()).expect("one CPU is reserved");
    let settings = MemorySettings {
        policy: "None",
        of_node: &BTreeMap::new(),
        reservations: &[],
        pod_level: PodLevelManagers::Off,
    };
    let memory = MemoryManager::new(&settings, &BTreeMap::new()).expect("there is no policy");
    NodePlacement::new(TopologyManager::default(), machine, cpus, memory)
}
