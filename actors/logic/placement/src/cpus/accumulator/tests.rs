//! Which CPUs are taken, by upstream's cases of cpu_assignment_test.go.

use super::distributed::{MAX_COMBINATIONS, NodeCombinations};
use super::*;
use crate::cpus::tests::machines::*;
use crate::cpus::tests::set;

/// An accumulator that needs none yet.
fn idle<'a>(machine: &'a CpuMachine, free: &str) -> Accumulator<'a> {
    Accumulator::new(machine, &set(free), 0, CpuOrder::Packed).unwrap()
}

/// The lowest CPU of each set: the number of a core on the machines here.
fn lowest(sets: &[CpuSet]) -> Vec<u32> {
    sets.iter().filter_map(|cpus| cpus.iter().next()).collect()
}

/// The sets of those groups, in that order.
fn sets<K>(groups: &std::collections::BTreeMap<K, CpuSet>, which: &[usize]) -> Vec<CpuSet> {
    let all: Vec<&CpuSet> = groups.values().collect();
    which.iter().map(|index| all[*index].clone()).collect()
}

/// Upstream's TestCPUAccumulatorFreeSockets, TestCPUAccumulatorFreeNUMANodes and
/// TestCPUAccumulatorFreeSocketsAndNUMANodes: the sockets and nodes all of whose CPUs are free.
#[test]
fn a_socket_or_node_is_free_only_as_a_whole() {
    for (machine, free, sockets) in [
        (laptop(), "0-7", &[0][..]),
        (laptop(), "1-7", &[]),
        (two_sockets(), "0-11", &[0, 1]),
        (two_sockets(), "0-9,11", &[1]),
        (two_sockets(), "0,2-9,11", &[]),
        (two_nodes_a_socket(), "0-79", &[0, 1]),
        (two_nodes_a_socket(), "1-79", &[1]),
        (two_nodes_a_socket(), "1-78", &[]),
        (two_sockets_a_node(), "0-79", &[0, 1, 2, 3]),
        (two_sockets_a_node(), "0-19,21-79", &[0, 1, 3]),
        (two_sockets_a_node(), "0-59,61-78", &[0, 1]),
        (two_sockets_a_node(), "1-19,21-38,41-78", &[1]),
        (two_sockets_a_node(), "0-40,42-49,51-68,71-79", &[]),
        (two_nodes_a_socket(), "0-79", &[0, 1]),
        (two_nodes_a_socket(), "1-79", &[1]),
        (two_nodes_a_socket(), "1-9,11-79", &[1]),
        (two_nodes_a_socket(), "1-59,61-79", &[]),
    ] {
        let accumulator = idle(&machine, free);
        let mut whole = accumulator.whole(accumulator.sockets(), machine.sockets());
        whole.sort();
        let mut expected = sets(machine.sockets(), sockets);
        expected.sort();
        assert_eq!(whole, expected, "{free}");
    }
    for (machine, free, nodes) in [
        (laptop(), "0-7", &[0][..]),
        (laptop(), "1-7", &[]),
        (two_sockets(), "0-11", &[0, 1]),
        (two_sockets(), "0-9,11", &[1]),
        (two_sockets(), "0,2-9,11", &[]),
        (two_nodes_a_socket(), "0-79", &[0, 1, 2, 3]),
        (two_nodes_a_socket(), "1-79", &[1, 2, 3]),
        (two_nodes_a_socket(), "1-9,11-79", &[2, 3]),
        (two_nodes_a_socket(), "1-9,11-59,61-79", &[3]),
        (two_nodes_a_socket(), "1-9,11-59,61-78", &[]),
        (two_sockets_a_node(), "0-79", &[0, 1]),
        (two_sockets_a_node(), "0-9,11-79", &[1]),
        (two_sockets_a_node(), "0-9,11-59,61-79", &[]),
        (two_nodes_a_socket(), "0-79", &[0, 1, 2, 3]),
        (two_nodes_a_socket(), "1-79", &[1, 2, 3]),
        (two_nodes_a_socket(), "1-9,11-79", &[2, 3]),
        (two_nodes_a_socket(), "1-59,61-79", &[1, 3]),
    ] {
        let accumulator = idle(&machine, free);
        let whole = accumulator.whole(accumulator.nodes(), machine.nodes());
        assert_eq!(whole, sets(machine.nodes(), nodes), "{free}");
    }
}

/// Upstream's TestCPUAccumulatorFreeCores and TestCPUAccumulatorFreeCPUs.
#[test]
fn the_fullest_core_of_the_fullest_socket_comes_first() {
    for (machine, free, cores) in [
        (laptop(), "0-7", &[0, 1, 2, 3][..]),
        (laptop(), "0-2,4-6", &[0, 1, 2]),
        (laptop(), "0-6", &[0, 1, 2]),
        (laptop(), "", &[]),
        (laptop(), "0-3", &[]),
        (two_sockets(), "0-11", &[0, 2, 4, 1, 3, 5]),
        (two_sockets(), "1-5,7-11", &[2, 4, 1, 3, 5]),
        (two_sockets(), "2-5,8-11", &[2, 4, 3, 5]),
    ] {
        let accumulator = idle(&machine, free);
        let whole = accumulator.whole(accumulator.cores(), machine.cores());
        assert_eq!(lowest(&whole), cores, "{free}");
    }
    for (machine, free, cpus) in [
        (laptop(), "0-7", &[0, 4, 1, 5, 2, 6, 3, 7][..]),
        (laptop(), "3-7", &[4, 5, 6, 3, 7]),
        (
            two_sockets(),
            "0-11",
            &[0, 6, 2, 8, 4, 10, 1, 7, 3, 9, 5, 11],
        ),
        (two_sockets(), "1-11", &[6, 2, 8, 4, 10, 1, 7, 3, 9, 5, 11]),
        (two_sockets(), "1-5,7-11", &[2, 8, 4, 10, 1, 7, 3, 9, 5, 11]),
        (
            three_sockets(),
            "0-3,6-13",
            &[12, 13, 0, 1, 2, 3, 6, 7, 8, 9, 10, 11],
        ),
    ] {
        assert_eq!(idle(&machine, free).cpus(), cpus, "{free}");
    }
}

/// Upstream's TestCPUAccumulatorTake.
#[test]
fn what_is_taken_is_no_longer_free() {
    let all = ["0", "1", "2", "3", "4", "5", "6", "7"];
    for (free, needed, taken, satisfied) in [
        ("0-7", 1, &[""][..], false),
        ("0-7", 1, &["0"], true),
        ("0-7", 2, &["0"], false),
        ("0-7", 8, &all, true),
    ] {
        let machine = laptop();
        let packed = CpuOrder::Packed;
        let mut accumulator = Accumulator::new(&machine, &set(free), needed, packed).unwrap();
        let mut total = 0;
        for cpus in taken {
            accumulator.take(&set(cpus));
            total += set(cpus).len();
            assert_eq!(accumulator.free.common(&set(cpus)), 0);
            assert!(set(cpus).is_subset(&accumulator.taken));
        }
        assert_eq!(accumulator.is_satisfied(), satisfied);
        assert_eq!(accumulator.needed, needed - total);
    }
    for (free, requested) in [("", 1), ("0-2", 4)] {
        let machine = laptop();
        let refused = Accumulator::new(&machine, &set(free), requested, CpuOrder::Packed);
        let available = set(free).len();
        let expected = NotEnoughCpus {
            requested,
            available,
        };
        assert_eq!(refused.unwrap_err(), expected);
    }
}

type Case = (
    CpuMachine,
    &'static str,
    u32,
    Result<&'static str, &'static str>,
);

/// Upstream's commonTakeByTopologyTestCases.
fn common() -> Vec<Case> {
    vec![
        (
            laptop(),
            "0,2,4,6",
            5,
            Err("not enough cpus available to satisfy request: requested=5, available=4"),
        ),
        (laptop(), "0-7", 0, Ok("")),
        (laptop(), "0-7", 1, Ok("0")),
        (laptop(), "1,3,5-7", 1, Ok("6")),
        (laptop(), "0-7", 2, Ok("0,4")),
        (laptop(), "0-7", 8, Ok("0-7")),
        (laptop(), "0-3,6", 2, Ok("2,6")),
        (two_sockets(), "0-11", 6, Ok("0,2,4,6,8,10")),
        (two_nodes_a_socket(), "0-79", 40, Ok("0-19,40-59")),
        (two_nodes_a_socket(), "0-79", 20, Ok("0-9,40-49")),
        (two_nodes_a_socket(), "10-39,50-79", 20, Ok("10-19,50-59")),
        (two_nodes_a_socket(), "0-79", 60, Ok("0-29,40-69")),
        (two_nodes_a_socket(), "1-39,41-79", 60, Ok("10-39,50-79")),
    ]
}

fn check(
    cases: Vec<Case>,
    take: impl Fn(&CpuMachine, &CpuSet, u32) -> Result<CpuSet, NotEnoughCpus>,
) {
    for (machine, free, count, expected) in cases {
        let taken = take(&machine, &set(free), count).map_err(|error| error.to_string());
        let taken = taken.map(|cpus| cpus.to_string());
        let expected = expected.map(str::to_owned).map_err(str::to_owned);
        assert_eq!(taken, expected, "{count} of {free}");
    }
}

/// Upstream's TestTakeByTopologyNUMAPacked.
#[test]
fn cpus_are_packed_onto_as_few_nodes_and_cores_as_can_be() {
    let mut cases = common();
    cases.extend([
        (two_sockets(), "1-5,7-11", 1, Ok("2")),
        (two_sockets(), "0-11", 8, Ok("0-2,4,6-8,10")),
        (two_nodes_a_socket(), "0-79", 64, Ok("0-31,40-71")),
    ]);
    check(cases, |machine, free, count| {
        take_packed(machine, free, count, CpuOrder::Packed, CachePreference::Any)
    });
    let by_cache = vec![
        (split_caches(), "1-15", 10, Ok("1-2,4-11")),
        (two_sockets(), "1-5,7-11", 1, Ok("1")),
        (split_caches_on_two_sockets(), "0-15", 4, Ok("0-3")),
        (split_caches_on_two_sockets(), "2-15", 6, Ok("2-7")),
        (split_caches_on_two_sockets(), "8-15", 4, Ok("8-11")),
        (split_caches_on_two_nodes(), "3-8,12", 2, Ok("4-5")),
        (split_caches_with_smt(), "2-7,10-15", 6, Ok("4-6,12-14")),
        (split_caches_with_smt(), "1-7,9-15", 10, Ok("1,4-7,9,12-15")),
    ];
    check(by_cache, |machine, free, count| {
        take_packed(
            machine,
            free,
            count,
            CpuOrder::Packed,
            CachePreference::Shared,
        )
    });
}

/// Upstream's TestTakeByTopologyWithSpreadPhysicalCPUsPreferredOption.
#[test]
fn cpus_come_from_a_core_each_if_they_are_to_be_spread() {
    let cases = vec![
        (laptop(), "0-7", 3, Ok("0-2")),
        (two_sockets(), "0-11", 2, Ok("0,2")),
        (two_sockets(), "0-11", 3, Ok("0,2,4")),
        (two_sockets(), "0-11", 6, Ok("0,2,4,6,8,10")),
        (two_sockets(), "0-11", 8, Ok("0-4,6,8,10")),
        (two_sockets_without_smt(), "0-7", 2, Ok("0-1")),
        (two_nodes_a_socket(), "0-79", 8, Ok("0-7")),
        (
            four_threads_a_core(),
            "0-287",
            12,
            Ok("0-2,9-10,13-14,21-22,25-26,33"),
        ),
    ];
    check(cases, |machine, free, count| {
        take_packed(machine, free, count, CpuOrder::Spread, CachePreference::Any)
    });
}

/// A machine, what is free, how many are taken in groups of how many, and which ones.
type Distributed = (fn() -> CpuMachine, &'static str, u32, u32, &'static str);

/// The cases that upstream's test has beyond the common ones.
const DISTRIBUTED: &[Distributed] = &[
    (two_sockets, "0-11", 8, 1, "0-3,6-9"),
    (
        two_nodes_a_socket,
        "0-79",
        64,
        1,
        "0-7,10-17,20-27,30-37,40-47,50-57,60-67,70-77",
    ),
    (
        two_nodes_a_socket,
        "0-79",
        48,
        1,
        "0-7,10-17,20-27,40-47,50-57,60-67",
    ),
    (
        two_nodes_a_socket,
        "1-29,32-39,41-69,72-79",
        48,
        1,
        "1-8,10-17,20-27,41-48,50-57,60-67",
    ),
    (
        two_nodes_a_socket,
        "2-29,31-39,42-69,71-79",
        48,
        1,
        "10-17,20-27,31-38,50-57,60-67,71-78",
    ),
    (
        two_nodes_a_socket,
        "0-2,10-12,20-22,30-32,40-41,50-51,60-61,70-71",
        16,
        1,
        "0-1,10-11,20-21,30-31,40-41,50-51,60-61,70-71",
    ),
    (two_sockets, "1-5,7-11", 1, 1, "1"),
    (two_sockets, "1-5,7-11", 1, 2, "2"),
    (two_nodes_a_socket, "0-79", 26, 1, "0-6,10-16,40-45,50-55"),
    (two_nodes_a_socket, "0-79", 26, 2, "0-6,10-15,40-46,50-55"),
    (
        two_nodes_a_socket,
        "0-79",
        62,
        1,
        "0-7,10-17,20-27,30-37,40-47,50-57,60-66,70-76",
    ),
    (
        two_nodes_a_socket,
        "0-79",
        62,
        2,
        "0-7,10-17,20-27,30-36,40-47,50-57,60-67,70-76",
    ),
    (
        two_nodes_a_socket,
        "0-8,10-18,20-48,50-58,60-79",
        62,
        1,
        "0-7,10-17,20-27,30-37,40-46,50-56,60-67,70-77",
    ),
    (
        two_nodes_a_socket,
        "0-8,10-18,20-48,50-58,60-79",
        62,
        2,
        "0-7,10-16,20-27,30-37,40-47,50-56,60-67,70-77",
    ),
    (
        two_nodes_a_socket,
        "0-3,10-13,20-23,30-36,40-43,50-53,60-63,70-76",
        34,
        1,
        "0-3,10-13,20-23,30-34,40-43,50-53,60-63,70-74",
    ),
    (
        eight_nodes,
        "0,30-31,43-47,62-63,75-79,94,96,101-111,126-128,158-159,171-175,190-191,203-207,222-223,229-239,254-255",
        28,
        1,
        "43-47,75-79,96,101-105,171-174,203-206,229-232",
    ),
];

/// Upstream's TestTakeByTopologyNUMADistributed.
#[test]
fn cpus_are_spread_evenly_over_the_nodes_that_they_need() {
    check(common(), |machine, free, count| {
        take_distributed(machine, free, count, 1, CpuOrder::Packed)
    });
    for (machine, free, count, group, expected) in DISTRIBUTED {
        let taken = take_distributed(&machine(), &set(free), *count, *group, CpuOrder::Packed);
        assert_eq!(taken, Ok(set(expected)), "{count} of {free} by {group}");
    }
}

/// Upstream's sets of four nodes and more overwrite each other (cpu_assignment.go, `iterateCombinations`).
#[test]
fn the_first_of_equal_sets_of_many_nodes_stays_the_best() {
    let machine = eight_nodes();
    let taken = take_distributed(&machine, machine.cpus(), 128, 1, CpuOrder::Packed);
    assert_eq!(taken, Ok(set("0-63,128-191")));
}

#[test]
fn a_core_that_others_use_is_not_given_whatever_other_cores_are_like() {
    // Of a machine whose cores have 1.5 CPUs on average, one thread each of cores that have two.
    let taken = take_packed(
        &two_kinds_of_cores(),
        &set("8-10"),
        2,
        CpuOrder::Packed,
        CachePreference::Any,
    );
    assert_eq!(taken, Ok(set("8-9")));
}

#[test]
fn a_search_for_nodes_ends_within_its_bound() {
    let eight = eight_nodes();
    let holes = "0-9,16-20,32-44,48,64-70,80-95,96-110,112,128-137,160-161,176-191,208-220";
    for (free, count) in [
        ("0-255", 128),
        (holes, 30),
        (holes, 47),
        (holes, 61),
        ("0-255", 255),
    ] {
        for group in [1, 2] {
            let packed = CpuOrder::Packed;
            let accumulator = Accumulator::new(&eight, &set(free), count, packed).unwrap();
            assert!(NodeCombinations::new(&accumulator, group).count() < MAX_COMBINATIONS);
        }
    }
    // More nodes than any search of all sets would get through: it stops, and the CPUs are packed.
    let many = Even {
        sockets: 2,
        nodes: 32,
        caches: 1,
        cores: 96,
        threads: 1,
    }
    .machine();
    let uneven = CpuSet::from_numbers((0..96).filter(|cpu| cpu % 7 != 0));
    let accumulator = Accumulator::new(&many, &uneven, 59, CpuOrder::Packed).unwrap();
    assert!(NodeCombinations::new(&accumulator, 1).count() <= MAX_COMBINATIONS);
    let taken = take_distributed(&many, &uneven, 59, 1, CpuOrder::Packed).unwrap();
    assert_eq!((taken.len(), taken.is_subset(&uneven)), (59, true));
}
