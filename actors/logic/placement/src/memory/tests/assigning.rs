//! What containers are assigned, and what is free then.

use super::*;

const NO_DEFAULT: &str = "[memorymanager] failed to get the default NUMA affinity, no NUMA nodes with enough memory is \
                          available";

/// Upstream's TestStaticPolicyAllocate, those that are assigned nothing new.
#[test]
fn only_guaranteed_pods_get_memory_and_a_container_keeps_what_it_has() {
    let manager = managed(&[(1536, 1)]);
    let none = HeldAssignments::new();
    assert_eq!(
        assign(&manager, &burstable("a"), &none, ANY),
        Ok(String::new())
    );
    let amounts = [("cpu", "1"), ("memory", "1Gi")];
    let whole = pod_level(one("a", "1Gi", "1Gi"), &amounts, &amounts);
    assert_eq!(assign(&manager, &whole, &none, ANY), Ok(String::new()));
    // Another request than the one that it was admitted with.
    let held = held(&[("a", "main", "0 memory 1Gi")]);
    let kept = assign(&manager, &one("a", "1Gi", "1Gi"), &held, ANY);
    assert_eq!(kept.unwrap(), "0 memory 1Gi");
    let expected = ["0 x1 hugepages-1Gi 1Gi+0 memory 512Mi+1Gi"];
    assert_eq!(state(&manager, &held), expected);
}

/// Upstream's TestStaticPolicyAllocate and TestAddContainer, those that get memory.
#[test]
fn memory_comes_from_as_few_nodes_as_will_do() {
    let pod = one("a", "1Gi", "1Gi");
    for (nodes, pod, hint, expected, after) in [
        (
            &[(1536, 1)][..],
            &pod,
            ANY,
            "0 hugepages-1Gi 1Gi + 0 memory 1Gi",
            &["0 x2 hugepages-1Gi 0+1Gi memory 512Mi+1Gi"][..],
        ),
        (
            &[(512, 1); 4],
            &pod,
            ANY_PREFERRED,
            "0,1 hugepages-1Gi 1Gi + 0,1 memory 1Gi",
            &[
                "0,1 x2 hugepages-1Gi 0+1Gi memory 0+512Mi",
                "0,1 x2 hugepages-1Gi 1Gi+0 memory 0+512Mi",
                "2 x0 hugepages-1Gi 1Gi+0 memory 512Mi+0",
                "3 x0 hugepages-1Gi 1Gi+0 memory 512Mi+0",
            ],
        ),
        (
            &[(9216, 5); 2],
            &pod,
            ANY,
            "0 hugepages-1Gi 1Gi + 0 memory 1Gi",
            &[
                "0 x2 hugepages-1Gi 4Gi+1Gi memory 8Gi+1Gi",
                "1 x0 hugepages-1Gi 5Gi+0 memory 9Gi+0",
            ],
        ),
        (
            &[(9216, 5); 2],
            &one("a", "12Gi", "4Gi"),
            ANY,
            "0,1 hugepages-1Gi 4Gi + 0,1 memory 12Gi",
            &[
                "0,1 x2 hugepages-1Gi 1Gi+4Gi memory 0+9Gi",
                "0,1 x2 hugepages-1Gi 5Gi+0 memory 6Gi+3Gi",
            ],
        ),
        // A hint that is too narrow is widened.
        (
            &[(512, 1); 4],
            &pod,
            off(&[2]),
            "0,2 hugepages-1Gi 1Gi + 0,2 memory 1Gi",
            &[
                "0,2 x2 hugepages-1Gi 0+1Gi memory 0+512Mi",
                "1 x0 hugepages-1Gi 1Gi+0 memory 512Mi+0",
                "0,2 x2 hugepages-1Gi 1Gi+0 memory 0+512Mi",
                "3 x0 hugepages-1Gi 1Gi+0 memory 512Mi+0",
            ],
        ),
    ] {
        let manager = managed(nodes);
        let assigned = assign(&manager, pod, &HeldAssignments::new(), hint);
        assert_eq!(assigned.as_deref(), Ok(expected));
        assert_eq!(state(&manager, &held(&[("a", "main", expected)])), after);
    }
}

/// Upstream's order of bit masks.
#[test]
fn of_sets_of_as_many_nodes_the_one_without_the_highest_is_taken() {
    let manager = managed(&[(400, 0), (500, 0), (600, 0), (700, 0)]);
    let assigned = assign(
        &manager,
        &one("a", "1100Mi", ""),
        &HeldAssignments::new(),
        ANY,
    );
    assert_eq!(assigned.unwrap(), "1,2 memory 1100Mi");
}

/// Upstream's TestStaticPolicyAllocate and TestAddContainer, those that fail.
#[test]
fn a_container_is_refused_that_finds_no_memory_where_it_must_lie() {
    let small = &[(1024, 1), (512, 1), (512, 1)][..];
    let group = held(&[("b", "main", "1,2 memory 2Gi")]);
    let half = held(&[("b", "main", "0 memory 512Mi")]);
    let one_gib = held(&[("b", "main", "0 memory 1Gi")]);
    let full = held(&[("b", "main", "0 memory 1Gi + 0 hugepages-1Gi 1Gi")]);
    for (nodes, memory, held, hint, expected) in [
        (&[(1536, 1)][..], ("1Gi", "1Gi"), &full, ANY, NO_DEFAULT),
        (
            small,
            ("1Gi", "1Gi"),
            &half,
            ANY_PREFERRED,
            "[memorymanager] failed to find the default preferred hint",
        ),
        (
            &[(512, 1), (1536, 1), (1536, 1)],
            ("1Gi", "1Gi"),
            &group,
            off(&[0]),
            "[memorymanager] failed to find NUMA nodes to extend the current topology hint",
        ),
        (
            small,
            ("1Gi", "1Gi"),
            &half,
            on(&[1]),
            "[memorymanager] failed to find the extended preferred hint",
        ),
        (
            &[(1536, 1), (512, 1)],
            ("1Gi", "1Gi"),
            &one_gib,
            on(&[0, 1]),
            "[memorymanager] preferred hint violates NUMA node allocation",
        ),
        (&[(9216, 5); 2], ("12Gi", "4Gi"), &full, ANY, NO_DEFAULT),
        // A resource that the machine has not.
        (
            &[(9216, 0)],
            ("1Gi", "1Gi"),
            &HeldAssignments::new(),
            ANY,
            NO_DEFAULT,
        ),
        (
            &[(9216, 0)],
            ("1.5Gi", ""),
            &HeldAssignments::new(),
            ANY,
            "[memorymanager] failed to represent quantity as int64",
        ),
    ] {
        let pod = one("a", memory.0, memory.1);
        let refused = assign(&managed(nodes), &pod, held, hint);
        assert_eq!(refused.unwrap_err(), expected);
    }
}

/// Upstream's Test_isAffinityViolatingNUMAAllocations.
#[test]
fn a_node_is_used_alone_or_in_one_group() {
    let manager = managed(&[(1536, 1); 4]);
    let grouped = held(&[
        ("a", "main", "0,1 memory 1Gi"),
        ("b", "main", "2 memory 1Gi"),
    ]);
    let alone = held(&[("a", "main", "1 memory 1Gi")]);
    let none = HeldAssignments::new();
    for (held, nodes, expected) in [
        (&grouped, &[1, 2][..], true),
        (&alone, &[0, 1], true),
        (&none, &[0, 1], false),
        (&grouped, &[0, 1], false),
        (&grouped, &[0], true),
        (&grouped, &[2], false),
    ] {
        let state = manager.state(held.values().map(Arc::as_ref));
        assert_eq!(state.is_used_otherwise(mask(nodes)), expected, "{nodes:?}");
    }
}

/// Upstream follows such a hint, and uses the node alone and in the group.
#[test]
fn a_hint_for_one_node_of_a_group_is_widened_to_the_group() {
    let manager = managed(&[(1536, 1); 2]);
    let held = held(&[("b", "main", "0,1 memory 2Gi")]);
    let pod = one("a", "1Gi", "");
    let assigned = assign(&manager, &pod, &held, off(&[1]));
    assert_eq!(assigned.unwrap(), "0,1 memory 1Gi");
}

/// Upstream's TestStaticPolicyRemoveContainer, TestRemoveContainer and TestRemoveStaleState, where memory is taken from
/// a pod's or a container's entry.
#[test]
fn what_is_no_longer_held_is_free_again_and_groups_end_with_their_last_block() {
    let manager = managed(&[(9216, 5); 2]);
    let free = [
        "0 x0 hugepages-1Gi 5Gi+0 memory 9Gi+0",
        "1 x0 hugepages-1Gi 5Gi+0 memory 9Gi+0",
    ];
    let (single, small) = (
        "0 memory 1Gi + 0 hugepages-1Gi 1Gi",
        "0,1 memory 1Gi + 0,1 hugepages-1Gi 1Gi",
    );
    let large = "0,1 memory 12Gi + 0,1 hugepages-1Gi 1Gi";
    for (first, second, both, one) in [
        (
            single,
            single,
            ["0 x4 hugepages-1Gi 3Gi+2Gi memory 7Gi+2Gi", free[1]],
            ["0 x2 hugepages-1Gi 4Gi+1Gi memory 8Gi+1Gi", free[1]],
        ),
        (
            small,
            large,
            [
                "0,1 x4 hugepages-1Gi 3Gi+2Gi memory 0+9Gi",
                "0,1 x4 hugepages-1Gi 5Gi+0 memory 5Gi+4Gi",
            ],
            [
                "0,1 x2 hugepages-1Gi 4Gi+1Gi memory 8Gi+1Gi",
                "0,1 x2 hugepages-1Gi 5Gi+0 memory 9Gi+0",
            ],
        ),
    ] {
        let two = held(&[("a", "first", first), ("a", "second", second)]);
        assert_eq!(state(&manager, &two), both);
        assert_eq!(state(&manager, &held(&[("a", "first", first)])), one);
        assert_eq!(state(&manager, &HeldAssignments::new()), free);
    }
}

#[test]
fn a_container_is_bound_to_the_nodes_of_all_its_blocks() {
    let own = resources("0,1 memory 1Gi + 1,3 hugepages-1Gi 1Gi");
    assert_eq!(memory_nodes(&own), mask(&[0, 1, 3]));
    assert!(memory_nodes(&AssignedResources::default()).is_empty());
}

#[test]
fn allocatable_memory_is_told_node_by_node() {
    let blocks = managed(&[(1536, 2), (1024, 0)]).allocatable();
    let expected = "0 hugepages-1Gi 2Gi + 0 memory 1536Mi + 1 memory 1Gi";
    assert_eq!(show_blocks(&blocks), expected);
}
