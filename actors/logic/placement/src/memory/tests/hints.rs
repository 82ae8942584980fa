//! Where the memory of a container or a pod could come from.

use super::*;

const BOTH: [&str; 2] = ["hugepages-1Gi", "memory"];

fn hints(manager: &MemoryManager, pod: &Pod, held: &HeldAssignments) -> ProviderHints {
    let none = Assignment::default();
    let container = &pod.spec.as_ref().unwrap().containers[0];
    manager.hints(&request(pod, held, &none), container)
}

fn pod_hints(manager: &MemoryManager, pod: &Pod, held: &HeldAssignments) -> ProviderHints {
    let none = Assignment::default();
    manager.pod_hints(&request(pod, held, &none))
}

fn guaranteed_as_a_whole(pod: Pod) -> Pod {
    let amounts = [("cpu", "1"), ("memory", "1Gi")];
    pod_level(pod, &amounts, &amounts)
}

fn burstable_as_a_whole(pod: Pod) -> Pod {
    let requests = [("cpu", "500m"), ("memory", "1Gi")];
    pod_level(pod, &requests, &[("cpu", "1"), ("memory", "1Gi")])
}

/// Upstream's TestStaticPolicyGetTopologyHints and TestGetTopologyHints, of containers that hold something.
#[test]
fn a_container_stays_where_it_is_while_it_asks_for_what_it_has() {
    let manager = managed(&[(9216, 5); 2]);
    let pod = one("a", "1Gi", "1Gi");
    for (blocks, expected) in [
        (
            "0 memory 1Gi + 0 hugepages-1Gi 1Gi",
            for_all(&BOTH, &[on(&[0])]),
        ),
        ("0 memory 1Gi", ProviderHints::new()),
        ("0 memory 1Gi + 0 hugepages-2Mi 1Gi", ProviderHints::new()),
        ("0 memory 512Mi + 0 hugepages-1Gi 1Gi", ProviderHints::new()),
    ] {
        let held = held(&[("a", "main", blocks)]);
        assert_eq!(hints(&manager, &pod, &held), expected, "{blocks}");
        assert_eq!(pod_hints(&manager, &pod, &held), expected, "{blocks}");
    }
    let blocks = "0 memory 1Gi + 0 hugepages-1Gi 1Gi";
    let held = held(&[("a", "first", blocks), ("a", "second", blocks)]);
    let expected = for_all(&BOTH, &[on(&[0]), on(&[1]), off(&[0, 1])]);
    let other = one("b", "1Gi", "1Gi");
    let all = hints(&manager, &other, &HeldAssignments::new());
    assert_eq!(all, expected);
    // Two containers have memory on node 0 alone, so that it is in no group.
    let left = for_all(&BOTH, &[on(&[0]), on(&[1])]);
    assert_eq!(hints(&manager, &other, &held), left);
}

/// Upstream's TestStaticPolicyGetTopologyHints, of containers that hold nothing yet.
#[test]
fn a_container_may_come_to_nodes_that_are_free_for_it() {
    let manager = managed(&[(1536, 1); 4]);
    let group = held(&[("a", "main", "0,1 memory 2Gi + 0,1 hugepages-1Gi 2Gi")]);
    let pod = one("b", "1Gi", "1Gi");
    let expected = for_all(&BOTH, &[on(&[2]), on(&[3]), off(&[2, 3])]);
    assert_eq!(hints(&manager, &pod, &group), expected);
    assert_eq!(
        hints(&manager, &burstable("b"), &group),
        ProviderHints::new()
    );
    // One node would do on an empty machine.
    let mut machine = machine(&[(1536, 0); 2]);
    for memory in machine.values_mut() {
        memory.bytes += 20 * MI;
        memory.huge_pages = BTreeMap::from([(2 * MI, 10)]);
    }
    let manager = managed_with(&machine, PodLevelManagers::Off);
    let group = held(&[("a", "main", "0,1 memory 2Gi + 0,1 hugepages-2Mi 24Mi")]);
    let mut pod = one("b", "1Gi", "");
    let amounts = [("cpu", "1"), ("memory", "1Gi"), ("hugepages-2Mi", "16Mi")];
    let own = Some(requirements(&amounts, &amounts));
    pod.spec.as_mut().unwrap().containers[0].resources = own;
    let expected = for_all(&["hugepages-2Mi", "memory"], &[off(&[0, 1])]);
    assert_eq!(hints(&manager, &pod, &group), expected);
}

/// Upstream's TestStaticPolicyGetTopologyHints and TestStaticPolicyGetPodTopologyHints, by quality of service and
/// pod-level resources.
#[test]
fn pods_with_resources_of_their_own_get_hints_under_their_gate_alone() {
    let machine = machine(&[(2048, 1); 2]);
    let none = HeldAssignments::new();
    let nothing = ProviderHints::new();
    let places = [on(&[0]), on(&[1]), off(&[0, 1])];
    let off_gate = managed_with(&machine, PodLevelManagers::Off);
    let on_gate = managed_with(&machine, PodLevelManagers::On);
    let plain = one("a", "1Gi", "1Gi");
    let whole = guaranteed_as_a_whole(plain.clone());
    let over_burstable = guaranteed_as_a_whole(burstable("a"));
    let never = [
        burstable("a"),
        burstable_as_a_whole(plain.clone()),
        burstable_as_a_whole(burstable("a")),
    ];
    for pod in &never {
        for manager in [&off_gate, &on_gate] {
            assert_eq!(hints(manager, pod, &none), nothing);
            assert_eq!(pod_hints(manager, pod, &none), nothing);
        }
    }
    for pod in [&whole, &over_burstable] {
        assert_eq!(hints(&off_gate, pod, &none), nothing);
        assert_eq!(pod_hints(&off_gate, pod, &none), nothing);
        assert_eq!(
            pod_hints(&on_gate, pod, &none),
            for_all(&["memory"], &places)
        );
    }
    assert_eq!(hints(&on_gate, &whole, &none), for_all(&BOTH, &places));
    assert_eq!(pod_hints(&off_gate, &plain, &none), for_all(&BOTH, &places));
    assert_eq!(pod_hints(&on_gate, &plain, &none), for_all(&BOTH, &places));
}

#[test]
fn a_pod_whose_containers_would_share_nothing_has_no_place() {
    let manager = managed_with(&machine(&[(2048, 1)]), PodLevelManagers::On);
    let pod = with(
        "a",
        vec![],
        vec![asking("main", "1Gi", ""), spec_container("b")],
    );
    let pod = guaranteed_as_a_whole(pod);
    let expected = for_all(&["memory"], &[]);
    assert_eq!(pod_hints(&manager, &pod, &HeldAssignments::new()), expected);
}
