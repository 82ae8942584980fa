//! What is counted of containers and pods that are to have CPUs.

use super::*;
use crate::devices::{DeviceInventory, DevicePreferences};
use crate::topology::testing::counted;
use crate::topology::{NumaTopology, TopologyManager, TopologySettings};

const FULL: &[&str] = &["full-pcpus-only"];

/// What is counted, without a topology policy, of a pod beside what is held.
fn counts(node: Node, parts: &str, held: &HeldAssignments) -> String {
    let mut topology = TopologyManager::default();
    topology.add_hint_provider(Box::new(node.manager()));
    asked(&topology, parts, held)
}

fn asked(topology: &TopologyManager, parts: &str, held: &HeldAssignments) -> String {
    let pod = pod_of("new", parts);
    let (devices, answers) = (&DeviceInventory::EMPTY, &DevicePreferences::NONE);
    counted(
        &topology
            .admit_with_devices(&pod, held, devices, answers)
            .counts,
    )
}

fn gated(options: &'static [&'static str], machine: CpuMachine) -> Node {
    Node {
        options,
        pod_level: PodLevelManagers::On,
        ..Node::new(machine)
    }
}

/// Upstream's Allocate.
#[test]
fn a_container_counts_by_whether_it_gets_its_cpus_and_where_they_lie() {
    for (options, parts, expected) in [
        (&[][..], "app", "1 admission"),
        (&[], "app 500m", "1 admission"),
        (&[], "app 1/2", "1 admission"),
        // Nobody manages it without the gate.
        (FULL, "pod 2, app 1", "1 admission"),
        (
            &[],
            "app 2",
            "1 admission, 1 cpu request, 1 container uncore_cache alignment",
        ),
        (
            FULL,
            "app 2",
            "1 admission, 1 cpu request, 1 container physical_cpu alignment, 1 container uncore_cache alignment",
        ),
        (
            FULL,
            "init 2, sidecar 2, app 4",
            "1 admission, 3 cpu requests, 3 container physical_cpu alignments, 3 container uncore_cache alignments",
        ),
        // A single thread, and more than there are.
        (
            FULL,
            "app 1",
            "1 admission, 1 cpu request, 1 cpu error, 1 container physical_cpu failure",
        ),
        (
            FULL,
            "app 14",
            "1 admission, 1 cpu request, 1 cpu error, 1 container physical_cpu failure",
        ),
        (&[], "app 14", "1 admission, 1 cpu request, 1 cpu error"),
        // The pod is refused for its second container; the third is not asked for.
        (
            FULL,
            "app 2, app 3, app 2",
            "1 admission, 2 cpu requests, 1 cpu error, 1 container physical_cpu alignment, 1 container uncore_cache \
             alignment, 1 container physical_cpu failure",
        ),
    ] {
        let node = Node {
            options,
            ..Node::new(two_sockets())
        };
        let found = counts(node, parts, &HeldAssignments::new());
        assert_eq!(found, expected, "{options:?} {parts}");
    }
}

/// Upstream registers these metrics under the feature gate `PodLevelResourceManagers`.
#[test]
fn allocations_are_counted_under_their_gate() {
    for (options, parts, expected) in [
        (
            &[][..],
            "init 2, app 1, app 500m",
            "1 admission, 2 cpu requests, 2 container uncore_cache alignments, 2 cpu node allocations, 2 cpu \
             node_exclusive assignments",
        ),
        (
            FULL,
            "app 1",
            "1 admission, 1 cpu request, 1 cpu error, 1 container physical_cpu failure, 1 cpu node allocation error",
        ),
        // Container by container, a pod with pod-level resources as well.
        (
            &[],
            "pod 4, app 2, app",
            "1 admission, 1 cpu request, 1 container uncore_cache alignment, 1 cpu node allocation, 1 cpu \
             node_exclusive assignment",
        ),
    ] {
        let found = counts(
            gated(options, two_sockets()),
            parts,
            &HeldAssignments::new(),
        );
        assert_eq!(found, expected, "{parts}");
    }
}

/// Upstream's TestStaticPolicyAllocatePod by its counters: allocations, and assignments that are exclusive and shared.
#[test]
fn a_pod_as_a_whole_counts_each_of_its_containers() {
    let node = || Node {
        reserved: (1, "0"),
        ..gated(&[], two_sockets())
    };
    for (parts, allocations, exclusive, shared) in [
        ("pod 2, app 1", 1, 1, 0),
        ("pod 1, app", 1, 0, 1),
        ("pod 3, app 1, app 1, app", 3, 2, 1),
        ("pod 2, init 1, init 1, app 1, app 1", 4, 4, 0),
        ("pod 3, init, sidecar 1, init, app 1, app", 5, 2, 3),
        ("pod 3, init, sidecar, init, app 1, app", 5, 1, 4),
        ("pod 2/1, app 1", 0, 0, 0),
    ] {
        let some = |sum: u32, what: &str| match sum {
            0 => String::new(),
            1 => format!(", 1 {what}"),
            sum => format!(", {sum} {what}s"),
        };
        let requests = some(exclusive, "cpu request");
        let cache = some(allocations.min(1), "container uncore_cache alignment");
        let allocations = some(allocations, "cpu pod allocation");
        let shared = some(shared, "cpu pod_shared assignment");
        let exclusive = some(exclusive, "cpu pod_exclusive assignment");
        let expected = format!("1 admission{requests}{cache}{allocations}{shared}{exclusive}");
        let topology = placed(node().manager(), "best-effort", "pod");
        let found = asked(&topology, parts, &HeldAssignments::new());
        assert_eq!(found, expected, "{parts}");
        // It holds them already.
        let admitted = topology.admit(&pod_of("new", parts), &HeldAssignments::new());
        let held = with(
            HeldAssignments::new(),
            &pod_of("new", parts),
            &admitted.unwrap(),
        );
        assert_eq!(
            asked(&topology, parts, &held),
            format!("1 admission{requests}")
        );
    }
}

/// Upstream's TestStaticPolicyAllocatePod: SMT alignment of a whole pod is not counted.
#[test]
fn a_pod_that_gets_nothing_as_a_whole_is_one_error() {
    for (options, parts) in [
        (&[][..], "pod 2, app 1, app 1, app"),
        (FULL, "pod 3, app 1"),
        (&[], "pod 14, app 1"),
    ] {
        let topology = placed(
            gated(options, two_sockets()).manager(),
            "best-effort",
            "pod",
        );
        assert_eq!(
            asked(&topology, parts, &HeldAssignments::new()),
            "1 admission, 1 refusal, 1 cpu error, 1 cpu pod allocation error",
            "{parts}"
        );
    }
}

/// A manager with a policy, which asks the CPU manager.
fn placed(manager: CpuManager, policy: &str, scope: &str) -> TopologyManager {
    let nodes = [0, 1].map(|node| NumaNodeId::new(node).unwrap());
    let row = |from: NumaNodeId| {
        let distance = |to: NumaNodeId| (to, if from == to { 10 } else { 21 });
        (from, nodes.map(distance).into())
    };
    let numa = NumaTopology {
        distances: nodes.map(row).into(),
    };
    let settings = TopologySettings {
        policy,
        scope,
        options: &BTreeMap::new(),
        pod_level: PodLevelManagers::On,
    };
    let mut topology = TopologyManager::new(&settings, numa).unwrap();
    topology.add_hint_provider(Box::new(manager));
    topology
}

#[test]
fn a_container_that_holds_its_cpus_is_asked_for_again_and_not_allocated_them() {
    let held = held(&[("new", "app-0", "1,7"), ("other", "app-0", "2,8")]);
    for (options, parts, expected) in [
        (&[][..], "app 2", "1 admission, 1 cpu request"),
        (
            FULL,
            "app 2",
            "1 admission, 1 cpu request, 1 container physical_cpu alignment",
        ),
        // The other one is new.
        (
            FULL,
            "app 2, app 2",
            "1 admission, 2 cpu requests, 2 container physical_cpu alignments, 1 container uncore_cache alignment, 1 cpu \
             node allocation, 1 cpu node_exclusive assignment",
        ),
    ] {
        let found = counts(gated(options, two_sockets()), parts, &held);
        assert_eq!(found, expected, "{options:?} {parts}");
    }
}

/// Upstream's updateMetricsOnAllocate and TestNewAlignment, whether the option is on or not.
#[test]
fn cpus_count_as_aligned_if_one_cache_has_them_all() {
    const PREFER: &[&str] = &["prefer-align-cpus-by-uncorecache"];
    for options in [&[][..], PREFER] {
        for (count, is_aligned) in [(1, true), (4, true), (8, true), (9, false), (16, false)] {
            let node = Node {
                options,
                ..Node::new(four_caches())
            };
            let cache = match is_aligned {
                true => ", 1 container uncore_cache alignment",
                false => "",
            };
            let found = counts(node, &format!("app {count}"), &HeldAssignments::new());
            let expected = format!("1 admission, 1 cpu request{cache}");
            assert_eq!(found, expected, "{options:?} {count}");
        }
    }
}

/// Upstream's initializeMetrics.
#[test]
fn series_of_the_static_policy_are_there_from_the_start() {
    let manager = Node::new(two_sockets()).manager();
    assert_eq!(
        counted(&manager.first_counts()),
        "1 container physical_cpu alignment, 1 container uncore_cache alignment, 1 container physical_cpu failure"
    );
    let settings = CpuSettings {
        policy: "none",
        ..defaults()
    };
    let none = CpuManager::new(&settings, two_sockets()).unwrap();
    assert_eq!(none.first_counts(), []);
    let mut topology = TopologyManager::default();
    topology.add_hint_provider(Box::new(none));
    let found = asked(&topology, "app 2", &HeldAssignments::new());
    assert_eq!(found, "1 admission");
}

/// Upstream's scope_container.go and scope_pod.go: only `single-numa-node` guarantees that resources lie together.
#[test]
fn one_numa_node_is_counted_where_the_policy_guarantees_it() {
    const CONTAINER: (&str, &str) = ("single-numa-node", "container");
    const POD: (&str, &str) = ("single-numa-node", "pod");
    let cases = [
        (
            CONTAINER,
            "app 2",
            ", 1 cpu request, 1 container numa_node alignment, CACHE",
        ),
        (
            POD,
            "app 2",
            ", 1 cpu request, CACHE, 1 pod numa_node alignment",
        ),
        (
            ("restricted", "container"),
            "app 2",
            ", 1 cpu request, CACHE",
        ),
        (("restricted", "pod"), "app 2", ", 1 cpu request, CACHE"),
        // Those that ask for nothing as well.
        (CONTAINER, "app", ", 1 container numa_node alignment"),
        (POD, "app, app", ", 1 pod numa_node alignment"),
        // More than one node has, and more than all have.
        (
            CONTAINER,
            "app 7",
            ", 1 refusal, 1 container numa_node failure",
        ),
        (POD, "app 7", ", 1 refusal, 1 pod numa_node failure"),
        (("restricted", "container"), "app 14", ", 1 refusal"),
        (("restricted", "pod"), "app 14", ", 1 refusal"),
        (
            ("best-effort", "pod"),
            "app 14",
            ", 1 refusal, 1 cpu request, 1 cpu error",
        ),
        // Each fits one node, together they do not.
        (
            CONTAINER,
            "app 4, app 4",
            ", 2 cpu requests, 2 container numa_node alignments, 2 container uncore_cache alignments",
        ),
        (POD, "app 4, app 4", ", 1 refusal, 1 pod numa_node failure"),
        // Refused at the second container.
        (
            CONTAINER,
            "app 2, app 7",
            ", 1 refusal, 1 cpu request, 1 container numa_node alignment, CACHE, 1 container numa_node failure",
        ),
    ];
    for ((policy, scope), parts, expected) in cases {
        let topology = placed(Node::new(two_sockets()).manager(), policy, scope);
        let expected = expected.replace("CACHE", "1 container uncore_cache alignment");
        let found = asked(&topology, parts, &HeldAssignments::new());
        assert_eq!(
            found,
            format!("1 admission{expected}"),
            "{policy} {scope} {parts}"
        );
    }
}

#[test]
fn a_running_pod_counts_as_one_that_is_admitted_again_and_keeps_what_it_holds() {
    let running = |topology: &TopologyManager, parts: &str, held: &HeldAssignments| {
        let pod = pod_of("new", parts);
        counted(&topology.running_counts(&pod, held, &DeviceInventory::EMPTY))
    };
    let held = held(&[("new", "app-0", "0,6")]);
    let full = || Node {
        options: FULL,
        ..Node::new(two_sockets())
    };
    let single = placed(full().manager(), "single-numa-node", "container");
    let aligned = "1 admission, 1 cpu request, 1 container physical_cpu alignment, 1 container numa_node alignment";
    assert_eq!(running(&single, "app 2", &held), aligned);
    let pod = placed(full().manager(), "single-numa-node", "pod");
    let aligned =
        "1 admission, 1 cpu request, 1 container physical_cpu alignment, 1 pod numa_node alignment";
    assert_eq!(running(&pod, "app 2", &held), aligned);
    // It has CPUs of two nodes since another policy was in force: it is not refused, and not aligned.
    let apart = super::held(&[("new", "app-0", "0,1,6,7")]);
    assert_eq!(
        running(&single, "app 4", &apart),
        "1 admission, 1 cpu request, 1 container physical_cpu alignment"
    );
    // It runs since a time when CPUs were not assigned.
    let none = placed(full().manager(), "best-effort", "container");
    assert_eq!(
        running(&none, "app 2", &HeldAssignments::new()),
        "1 admission, 1 cpu request"
    );
    let whole = placed(gated(&[], two_sockets()).manager(), "best-effort", "pod");
    let nothing = HeldAssignments::new();
    assert_eq!(
        running(&whole, "pod 3, app 1, app", &nothing),
        "1 admission, 1 cpu request"
    );
}
