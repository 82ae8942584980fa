//! What is counted of containers and pods that are to have memory.

use super::pod_level::{list, whole};
use super::*;
use crate::topology::testing::counted;
use crate::topology::{NumaTopology, TopologySettings};

/// What is counted, without a topology policy, of a pod beside what is held.
fn counts(manager: MemoryManager, pod: &Pod, held: &HeldAssignments) -> String {
    let mut topology = TopologyManager::default();
    topology.add_hint_provider(Box::new(manager));
    asked(&topology, pod, held)
}

fn asked(topology: &TopologyManager, pod: &Pod, held: &HeldAssignments) -> String {
    let (devices, answers) = (&DeviceInventory::EMPTY, &DevicePreferences::NONE);
    counted(
        &topology
            .admit_with_devices(pod, held, devices, answers)
            .counts,
    )
}

/// Upstream's Allocate.
#[test]
fn a_container_counts_by_whether_it_gets_its_memory() {
    let apps = |amounts: &[&str]| {
        let app = |(place, amount): (usize, &&str)| asking(&format!("app-{place}"), amount, "");
        with("a", vec![], amounts.iter().enumerate().map(app).collect())
    };
    let huge = one("a", "512Mi", "1Gi");
    for (pod, expected, of_allocations) in [
        (burstable("a"), "1 admission", ""),
        (
            apps(&["512Mi"]),
            "1 admission, 1 memory request",
            ", 1 memory node allocation, 1 memory node_exclusive assignment",
        ),
        // Each resource is an allocation.
        (
            huge,
            "1 admission, 1 memory request",
            ", 2 memory node allocations, 1 memory node_exclusive assignment",
        ),
        (
            apps(&["1000Gi"]),
            "1 admission, 1 memory request, 1 memory error",
            ", 1 memory node allocation error",
        ),
        // The pod is refused for its second container; the third is not asked for.
        (
            apps(&["512Mi", "1000Gi", "512Mi"]),
            "1 admission, 2 memory requests, 1 memory error",
            ", 1 memory node allocation, 1 memory node allocation error, 1 memory node_exclusive assignment",
        ),
    ] {
        let none = HeldAssignments::new();
        let found = counts(managed(&[(1536, 1); 2]), &pod, &none);
        assert_eq!(found, expected);
        let gated = managed_with(&machine(&[(1536, 1); 2]), PodLevelManagers::On);
        let found = counts(gated, &pod, &none);
        assert_eq!(found, format!("{expected}{of_allocations}"));
    }
}

/// Init containers that have ended, and whose memory others have taken over, are asked for again as well.
#[test]
fn a_container_that_holds_its_memory_is_asked_for_again_and_not_allocated_it() {
    let init = vec![asking("init", "1Gi", "")];
    let pod = with(
        "a",
        init,
        vec![asking("main", "1Gi", ""), asking("new", "1Gi", "")],
    );
    let held = held(&[("a", "main", "0 memory 1Gi")]);
    let manager = managed_with(&machine(&[(1536, 1); 2]), PodLevelManagers::On);
    assert_eq!(
        counts(manager, &pod, &held),
        "1 admission, 3 memory requests, 1 memory node allocation, 1 memory node_exclusive assignment"
    );
}

/// Managers that ask for the pod as a whole.
fn whole_pods() -> TopologyManager {
    let nodes = [node(0), node(1)];
    let row = |from: NumaNodeId| {
        let distance = |to: NumaNodeId| (to, if from == to { 10 } else { 21 });
        (from, nodes.map(distance).into())
    };
    let settings = TopologySettings {
        policy: "best-effort",
        scope: "pod",
        options: &BTreeMap::new(),
        pod_level: PodLevelManagers::On,
    };
    let numa = NumaTopology {
        distances: nodes.map(row).into(),
    };
    let mut topology = TopologyManager::new(&settings, numa).unwrap();
    let manager = managed_with(&machine(&[(1536, 0); 2]), PodLevelManagers::On);
    topology.add_hint_provider(Box::new(manager));
    topology
}

/// Upstream's TestStaticPolicyAllocatePod by its counters: allocations, and assignments that are exclusive and shared. The
/// pod, its init containers and the apps with memory of their own are requests.
#[test]
fn a_pod_as_a_whole_counts_each_of_its_containers() {
    let sidecar = "i1; sidecar i2 1Gi; i3";
    for (memory, init, apps, requests, allocations, exclusive, shared) in [
        ("1Gi", "", "c1 512Mi", 2, 1, 1, 0),
        ("2Gi", "", "c1 1Gi", 2, 1, 1, 0),
        ("2Gi", "", "c1; c2", 1, 2, 0, 2),
        ("2Gi", "", "c1 1Gi; c2; c3", 2, 3, 1, 2),
        ("2Gi", "i1 2Gi", "c1 1Gi; c2", 3, 3, 2, 1),
        ("3Gi", sidecar, "c1 1Gi; c2", 5, 5, 2, 3),
        ("3Gi", "i1; sidecar i2; i3", "c1 1Gi; c2", 5, 5, 1, 4),
        ("2Gi", "i1", "c1 1Gi; c2", 3, 3, 1, 2),
    ] {
        let some = |sum: u32, what: &str| match sum {
            0 => String::new(),
            1 => format!(", 1 {what}"),
            sum => format!(", {sum} {what}s"),
        };
        let pod = whole((memory, memory), &list(init), &list(apps));
        let requests = some(requests, "memory request");
        let found = asked(&whole_pods(), &pod, &HeldAssignments::new());
        let expected = format!(
            "1 admission{requests}{}{}{}",
            some(allocations, "memory pod allocation"),
            some(shared, "memory pod_shared assignment"),
            some(exclusive, "memory pod_exclusive assignment")
        );
        assert_eq!(found, expected, "{init} | {apps}");
        // It holds it already; asked for or running, that is the same.
        let none = HeldAssignments::new();
        let admitted = whole_pods().admit(&pod, &none).unwrap();
        let held = HeldAssignments::from([("a".into(), Arc::new(admitted))]);
        let expected = format!("1 admission{requests}");
        assert_eq!(asked(&whole_pods(), &pod, &held), expected);
        let running = whole_pods().running_counts(&pod, &held, &DeviceInventory::EMPTY);
        assert_eq!(counted(&running), expected);
        let running = whole_pods().running_counts(&pod, &none, &DeviceInventory::EMPTY);
        assert_eq!(counted(&running), expected);
    }
}

/// Upstream's TestStaticPolicyAllocatePod, those that get nothing.
#[test]
fn a_pod_that_gets_nothing_as_a_whole_is_one_error() {
    let none = HeldAssignments::new();
    let empty = whole(("2Gi", "2Gi"), &[], &["c1 1Gi", "c2 1Gi", "c3"]);
    let large = whole(("2000Gi", "2000Gi"), &[], &["c1 1Gi"]);
    for pod in [empty, large] {
        assert_eq!(
            asked(&whole_pods(), &pod, &none),
            "1 admission, 1 refusal, 1 memory request, 1 memory error, 1 memory pod allocation error"
        );
    }
    let burstable = whole(("1Gi", "2Gi"), &[], &["c1 1Gi", "c2", "c3"]);
    assert_eq!(asked(&whole_pods(), &burstable, &none), "1 admission");
}
