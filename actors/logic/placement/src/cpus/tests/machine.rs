//! Where CPUs lie, by upstream's cases of cpumanager/topology.

use super::*;

/// CPUs in a row, each by its core, socket, NUMA node and cache.
fn row(places: &[[u32; 4]]) -> CpuMachine {
    let count = u32::try_from(places.len()).unwrap();
    by_rule(count, |cpu| places[usize::try_from(cpu).unwrap()])
}

fn lists<K>(groups: &BTreeMap<K, CpuSet>) -> Vec<String> {
    groups.values().map(CpuSet::to_string).collect()
}

/// Upstream's TestCPUDetailsNUMANodes, TestCPUDetailsSockets, TestCPUDetailsCores, TestCPUDetailsCPUs, TestUncoreCaches
/// and TestCPUsInUncoreCaches.
#[test]
fn cpus_are_grouped_by_where_they_lie() {
    let machine = row(&[[0, 0, 0, 0], [0, 0, 0, 0], [2, 1, 1, 1], [2, 1, 1, 2]]);
    assert_eq!(machine.cpus(), &set("0-3"));
    assert_eq!(machine.node_mask(), mask(&[0, 1]));
    assert_eq!(lists(machine.nodes()), ["0-1", "2-3"]);
    assert_eq!(lists(machine.sockets()), ["0-1", "2-3"]);
    assert_eq!(lists(machine.cores()), ["0-1", "2-3"]);
    assert_eq!(lists(machine.caches()), ["0-1", "2", "3"]);
    assert_eq!(machine.caches().get(&UncoreCacheId(3)), None);
    let none = row(&[]);
    assert!(none.caches().is_empty() && none.cpus().is_empty());
    // A number that no CPU can have.
    let place = machine.place(0).unwrap();
    let odd = CpuMachine::new(BTreeMap::from([(8191, place), (8192, place)]));
    assert_eq!(odd.cpus(), &set("8191"));
}

/// Upstream's TestCPUDetailsNUMANodesInSockets, TestCPUDetailsCPUsInSockets, TestCPUDetailsSocketsInNUMANodes,
/// TestCPUDetailsCoresInNUMANodes, TestCPUDetailsCoresInSockets, TestCPUDetailsCPUsInNUMANodes,
/// TestCPUDetailsCPUsInCores and TestUncoreInNUMANodes: what has free CPUs on a level is found below it.
#[test]
fn sockets_nodes_and_cores_lie_within_each_other() {
    let machine = row(&[[0, 0, 0, 0], [1, 1, 0, 1], [2, 2, 1, 2], [3, 3, 2, 3]]);
    for (nodes, cpus, sockets) in [(&[0, 1][..], "0-2", &[0, 1, 2][..]), (&[3], "", &[])] {
        assert_eq!(machine.cpus_in_nodes(mask(nodes)), set(cpus));
        let sockets: Vec<SocketId> = sockets.iter().copied().map(SocketId).collect();
        let found = machine.sockets_in_nodes(mask(nodes));
        assert_eq!(found.into_iter().collect::<Vec<_>>(), sockets);
    }
    let sockets = |ids: &[u32]| {
        let found = ids
            .iter()
            .filter_map(|id| machine.sockets().get(&SocketId(*id)));
        found.fold(CpuSet::default(), |all, cpus| all.union(cpus))
    };
    assert_eq!((sockets(&[0, 1]), sockets(&[4])), (set("0-1"), set("")));
    let pairs = row(&[[0, 0, 0, 0], [0, 0, 0, 0], [2, 0, 0, 0], [3, 0, 0, 0]]);
    assert_eq!(pairs.with_siblings(&set("1-2")), set("0-2"));
    assert_eq!(pairs.with_siblings(&set("9")), set(""));
}

/// Upstream's TestCPUDetailsKeepOnly, TestCPUCoreID, TestCPUSocketID and TestCPUNUMANodeID.
#[test]
fn a_cpu_lies_where_its_siblings_lie_and_an_unknown_one_nowhere() {
    let machine = two_sockets();
    for (cpu, core, socket, node) in [
        (2, 2, 0, 0),
        (8, 2, 0, 0),
        (3, 3, 1, 1),
        (9, 3, 1, 1),
        (0, 0, 0, 0),
        (6, 0, 0, 0),
    ] {
        let place = machine.place(cpu).unwrap();
        assert_eq!((place.core.0, place.socket.0), (core, socket));
        assert_eq!(place.node.get(), node);
    }
    assert_eq!(machine.place(1000), None);
    assert_eq!(set("0-2").intersection(&set("0-1")), set("0-1"));
    assert_eq!(set("0-2").intersection(&set("3")), set(""));
}

/// Upstream's TestCPUsPerUncore.
#[test]
fn groups_have_so_many_cpus_on_average() {
    for (machine, per_core, per_cache) in [
        (row(&[]), 0, 0),
        (split_caches_with_smt(), 2, 8),
        (laptop(), 2, 8),
        (two_kinds_of_cores(), 1, 24),
        (four_threads_a_core(), 4, 288),
    ] {
        assert_eq!(machine.cpus_per_core(), per_core);
        assert_eq!(machine.cpus_per_cache(), per_cache);
    }
}

/// Upstream's TestNewAlignment.
#[test]
fn cpus_are_aligned_that_share_one_cache() {
    let machine = Even {
        sockets: 1,
        nodes: 1,
        caches: 8,
        cores: 32,
        threads: 1,
    }
    .machine();
    for (cpus, alignment) in [
        ("", UncoreAlignment::Aligned),
        ("11", UncoreAlignment::Aligned),
        ("29-31", UncoreAlignment::Aligned),
        ("8-11", UncoreAlignment::Aligned),
        ("9-11,23", UncoreAlignment::Split),
        ("8-11,16-19", UncoreAlignment::Split),
        ("31,32", UncoreAlignment::Split),
        ("100,101", UncoreAlignment::Split),
    ] {
        assert_eq!(machine.uncore_alignment(&set(cpus)), alignment, "{cpus}");
    }
}
