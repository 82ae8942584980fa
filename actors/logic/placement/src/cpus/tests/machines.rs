//! Upstream's machines of policy_test.go, described by how they are built.

use std::collections::BTreeMap;

use crate::cpus::{CoreId, CpuMachine, CpuPlace, SocketId, UncoreCacheId};
use crate::topology::NumaNodeId;

/// A machine whose parts are all alike. The first threads of all cores are numbered before the second ones.
#[derive(Clone, Copy)]
pub(in crate::cpus) struct Even {
    pub(in crate::cpus) sockets: u32,
    pub(in crate::cpus) nodes: u32,
    pub(in crate::cpus) caches: u32,
    pub(in crate::cpus) cores: u32,
    pub(in crate::cpus) threads: u32,
}

impl Even {
    pub(in crate::cpus) fn machine(self) -> CpuMachine {
        let Self { cores, .. } = self;
        by_rule(cores * self.threads, |cpu| {
            let core = cpu % cores;
            let part = |of: u32| core * of / cores;
            [
                core,
                part(self.sockets),
                part(self.nodes),
                part(self.caches),
            ]
        })
    }
}

/// Each CPU's core, socket, NUMA node and cache by its number.
pub(in crate::cpus) fn by_rule(cpus: u32, rule: impl Fn(u32) -> [u32; 4]) -> CpuMachine {
    let place = |cpu| {
        let [core, socket, node, cache] = rule(cpu);
        let place = CpuPlace {
            core: CoreId(core),
            socket: SocketId(socket),
            node: NumaNodeId::new(node.into()).unwrap(),
            cache: UncoreCacheId(cache),
        };
        (cpu, place)
    };
    CpuMachine::new((0..cpus).map(place).collect::<BTreeMap<_, _>>())
}

fn even([sockets, nodes, caches, cores, threads]: [u32; 5]) -> CpuMachine {
    Even {
        sockets,
        nodes,
        caches,
        cores,
        threads,
    }
    .machine()
}

/// Upstream's topoSingleSocketHT.
pub(in crate::cpus) fn laptop() -> CpuMachine {
    even([1, 1, 1, 4, 2])
}

/// Upstream's topoDualSocketHT.
pub(in crate::cpus) fn two_sockets() -> CpuMachine {
    by_rule(12, |cpu| [cpu % 6, cpu % 2, cpu % 2, 0])
}

/// Upstream's topoDualSocketNoHT.
pub(in crate::cpus) fn two_sockets_without_smt() -> CpuMachine {
    even([2, 2, 1, 8, 1])
}

/// Upstream's topoTripleSocketHT.
pub(in crate::cpus) fn three_sockets() -> CpuMachine {
    by_rule(18, |cpu| {
        let socket = [1, 0, 2][usize::try_from(cpu / 6).unwrap()];
        [cpu / 2, socket, socket, 0]
    })
}

/// Upstream's topoQuadSocketFourWayHT: four threads a core, in the order of its firmware.
pub(in crate::cpus) fn four_threads_a_core() -> CpuMachine {
    by_rule(288, |cpu| {
        let core = match cpu {
            0 => 0,
            37 => 63,
            1..=36 => 64 + (cpu - 1) % 12,
            38..=49 => cpu + 26,
            _ => match 48 + (cpu - 48) % 60 {
                48 => 63,
                49 => 0,
                low @ 50..=64 => low - 49,
                low @ 65..=104 => low - 47,
                low => low - 45,
            },
        };
        let socket = core % 8 / 2;
        [core, socket, socket, 0]
    })
}

/// Upstream's topoDualSocketMultiNumaPerSocketHT.
pub(in crate::cpus) fn two_nodes_a_socket() -> CpuMachine {
    even([2, 4, 1, 40, 2])
}

/// Upstream's fakeTopoMultiSocketDualSocketPerNumaHT.
pub(in crate::cpus) fn two_sockets_a_node() -> CpuMachine {
    even([4, 2, 1, 40, 2])
}

/// Upstream's topoDualSocketMultiNumaPerSocketHTLarge.
pub(in crate::cpus) fn eight_nodes() -> CpuMachine {
    even([2, 8, 1, 128, 2])
}

/// Upstream's topoUncoreDualSocketNoSMT.
pub(in crate::cpus) fn split_caches_on_two_sockets() -> CpuMachine {
    even([2, 1, 4, 16, 1])
}

/// Upstream's topoUncoreSingleSocketMultiNuma.
pub(in crate::cpus) fn split_caches_on_two_nodes() -> CpuMachine {
    even([1, 2, 4, 16, 1])
}

/// Upstream's topoUncoreSingleSocketSMT.
pub(in crate::cpus) fn split_caches_with_smt() -> CpuMachine {
    even([1, 1, 2, 8, 2])
}

/// Upstream's topoUncoreSingleSocketNoSMT.
pub(in crate::cpus) fn split_caches() -> CpuMachine {
    even([1, 1, 4, 16, 1])
}

/// Upstream's topoDualSocketSingleNumaPerSocketSMTUncore.
pub(in crate::cpus) fn epyc() -> CpuMachine {
    even([2, 2, 24, 192, 2])
}

/// Upstream's topoSingleSocketSingleNumaPerSocketSMTSmallUncore.
pub(in crate::cpus) fn small_caches_with_smt() -> CpuMachine {
    even([1, 1, 16, 64, 2])
}

/// Upstream's topoSingleSocketSingleNumaPerSocketNoSMTSmallUncore.
pub(in crate::cpus) fn small_caches() -> CpuMachine {
    even([1, 1, 16, 64, 1])
}

/// Upstream's topoSmallDualSocketSingleNumaPerSocketNoSMTUncore.
pub(in crate::cpus) fn four_caches_a_socket() -> CpuMachine {
    even([2, 2, 8, 64, 1])
}

/// Upstream's topoSmallSingleSocketSingleNumaPerSocketNoSMTUncore.
pub(in crate::cpus) fn four_caches() -> CpuMachine {
    even([1, 1, 4, 32, 1])
}

/// Upstream's topoLargeSingleSocketSingleNumaPerSocketSMTUncore.
pub(in crate::cpus) fn sixteen_caches_with_smt() -> CpuMachine {
    even([1, 1, 16, 128, 2])
}

/// Upstream's topoDualSocketMultiNumaPerSocketUncore.
pub(in crate::cpus) fn six_caches_a_node() -> CpuMachine {
    even([2, 4, 24, 192, 1])
}

/// Upstream's topoDualSocketSubNumaPerSocketHTMonolithicUncore.
pub(in crate::cpus) fn sub_numa_clusters() -> CpuMachine {
    even([2, 4, 2, 120, 2])
}

/// Upstream's topoSingleSocketSingleNumaPerSocketPCoreHTMonolithicUncore: cores 8 to 15 have two threads.
pub(in crate::cpus) fn two_kinds_of_cores() -> CpuMachine {
    by_rule(24, |cpu| [if cpu < 16 { cpu } else { cpu - 8 }, 0, 0, 0])
}

/// Upstream's topoLargeSingleSocketSingleNumaPerSocketUncore.
pub(in crate::cpus) fn arm_with_sixteen_caches() -> CpuMachine {
    even([1, 1, 16, 128, 1])
}

/// Upstream's topoSingleSocketSingleNumaPerSocketUncore.
pub(in crate::cpus) fn arm() -> CpuMachine {
    even([1, 1, 1, 64, 1])
}
