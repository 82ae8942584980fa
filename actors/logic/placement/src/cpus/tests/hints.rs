//! From where CPUs could come, by upstream's cases of topology_hints_test.go.

use super::*;
use crate::topology::{NumaTopology, TopologyManager, TopologySettings};

/// Upstream's returnMachineInfo.
fn two_nodes() -> CpuMachine {
    by_rule(12, |cpu| [cpu % 6, cpu % 6 / 3, cpu % 6 / 3, 1])
}

fn off(nodes: &[u8]) -> TopologyHint {
    TopologyHint {
        preferred: false,
        ..on(nodes)
    }
}

/// The hints for CPUs; none where the manager has no preference.
fn hints(
    manager: &CpuManager,
    pod: &Pod,
    held: &HeldAssignments,
) -> [Option<Vec<TopologyHint>>; 2] {
    let request = AssignmentRequest {
        devices: &crate::devices::DeviceInventory::EMPTY,
        preferences: &crate::devices::DevicePreferences::NONE,
        pod,
        held,
        assigned: &Assignment::default(),
    };
    let of_container = manager.hints(&request, &pod.app_containers()[0]);
    [of_container, manager.pod_hints(&request)].map(|mut hints| {
        let hints = hints.remove("cpu")?;
        let ResourceHints::Possible(hints) = hints else {
            panic!("hints without preference: {hints:?}");
        };
        Some(hints)
    })
}

/// Upstream's TestGetTopologyHints, TestGetPodTopologyHints and TestTopologyHintsPodLevelResources.
#[test]
fn hints_are_all_nodes_with_enough_cpus_and_the_fewest_are_preferred() {
    let (both, first) = (Some(vec![on(&[0]), off(&[0, 1])]), "0-3");
    let none = || Some(Vec::new());
    for (gate, parts, free, container, whole) in [
        (
            "off",
            "app 2",
            "2-11",
            Some(vec![on(&[0]), on(&[1]), off(&[0, 1])]),
            None,
        ),
        (
            "off",
            "app 5",
            "2-11",
            Some(vec![on(&[1]), off(&[0, 1])]),
            None,
        ),
        ("off", "app 7", "2-11", Some(vec![on(&[0, 1])]), None),
        ("off", "app 11", "2-11", none(), None),
        ("off", "app 2", "0,3", Some(vec![off(&[0, 1])]), None),
        ("off", "app 5", first, none(), None),
        ("off", "pod 3, app 2", first, None, None),
        ("on", "pod 3, app 2", first, both.clone(), None),
        ("on", "pod 2/4, app 1/2", first, None, None),
        ("on", "pod 3, app 1/2", first, None, Some(both.clone())),
        (
            "on",
            "pod 3, app 2",
            first,
            both.clone(),
            Some(both.clone()),
        ),
        ("on", "pod 2, app 2, app", first, both.clone(), Some(none())),
    ] {
        let pod_level = match gate {
            "on" => PodLevelManagers::On,
            _ => PodLevelManagers::Off,
        };
        let manager = Node {
            pod_level,
            ..Node::new(two_nodes())
        }
        .manager();
        let pod = pod_of("new", parts);
        let held = all_but(&manager, &set(free));
        let found = hints(&manager, &pod, &held);
        let whole = whole.unwrap_or_else(|| container.clone());
        assert_eq!(found, [container, whole], "{parts} of {free}");
    }
}

/// Upstream's TestGetTopologyHints and TestGetPodTopologyHints: what the pod holds already.
#[test]
fn what_a_pod_holds_gives_the_same_hints_again() {
    for (parts, own, expected) in [
        ("app 2", "0,6", vec![on(&[0]), off(&[0, 1])]),
        ("app 2", "3,9", vec![on(&[1]), off(&[0, 1])]),
        ("app 11", "0-10", vec![on(&[0, 1])]),
        // It asks for another number now: there is no place for that, and the container keeps what it has.
        ("app 2", "0,3,6,9", vec![]),
        ("app 11", "0,3,6,9", vec![]),
    ] {
        let manager = Node::new(two_nodes()).manager();
        let pod = pod_of("kept", parts);
        let held = held(&[("kept", "app-0", own)]);
        let found = hints(&manager, &pod, &held);
        assert_eq!(found, [Some(expected.clone()), Some(expected)], "{parts}");
        let assigned = admit(&manager, &pod, &held, anywhere()).unwrap();
        assert_eq!(shown(&assigned)["app-0"], own);
    }
}

/// Upstream's TestGetPodTopologyHintsWithPolicyOptions.
#[test]
fn nodes_of_as_few_sockets_as_can_be_are_preferred_if_sockets_are_aligned() {
    let of_one = |beside: TopologyHint| {
        let rest = [
            &[0, 2][..],
            &[0, 3],
            &[0, 1, 2],
            &[0, 1, 3],
            &[0, 2, 3],
            &[0, 1, 2, 3],
        ];
        let rest = rest.iter().map(|nodes| off(nodes));
        [on(&[0]), beside]
            .into_iter()
            .chain(rest)
            .collect::<Vec<_>>()
    };
    for (options, parts, free, expected) in [
        (&[][..], "app 2", "2-3,11", of_one(off(&[0, 1]))),
        (&["align-by-socket"], "app 2", "2-3,11", of_one(on(&[0, 1]))),
        (
            &["align-by-socket"],
            "app 41",
            "0-28,40-57",
            vec![on(&[0, 1, 2]), on(&[0, 1, 2, 3])],
        ),
    ] {
        let manager = Node {
            options,
            ..Node::new(two_nodes_a_socket())
        }
        .manager();
        let held = all_but(&manager, &set(free));
        let [_, found] = hints(&manager, &pod_of("new", parts), &held);
        assert_eq!(found, Some(expected), "{parts} with {options:?}");
    }
}

#[test]
fn a_container_may_use_again_what_an_init_container_had() {
    let manager = Node::new(two_nodes()).manager();
    let pod = pod_of("new", "init 6, app 4");
    let first = &held(&[("x", "init-0", "3-5,9-11")])[&"x-uid".into()];
    let request = AssignmentRequest {
        devices: &crate::devices::DeviceInventory::EMPTY,
        preferences: &crate::devices::DevicePreferences::NONE,
        pod: &pod,
        held: &held(&[("other", "app-0", "0")]),
        assigned: first,
    };
    let hints = manager.hints(&request, &pod.app_containers()[0]);
    // All of them or none: the first node alone has not got what is used again.
    let expected = ResourceHints::Possible(vec![on(&[1]), off(&[0, 1])]);
    assert_eq!(hints["cpu"], expected);
}

/// The manager as the topology manager's provider.
#[test]
fn a_pod_comes_from_one_node_or_is_refused_if_the_policy_has_it_so() {
    for (policy, count, free, expected) in [
        ("single-numa-node", 4, "1-2,4-5,7-8,10-11", Ok("1-2,7-8")),
        ("single-numa-node", 4, "2-11", Ok("2,6-8")),
        ("single-numa-node", 6, "1-11", Ok("3-5,9-11")),
        ("single-numa-node", 6, "1-10", Err("TopologyAffinityError")),
        ("restricted", 6, "1-10", Err("TopologyAffinityError")),
        ("restricted", 8, "1-10", Ok("1-4,7-10")),
        ("best-effort", 6, "1-10", Ok("1-3,7-9")),
        ("best-effort", 11, "1-10", Err("UnexpectedAdmissionError")),
    ] {
        for scope in ["container", "pod"] {
            let settings = TopologySettings {
                policy,
                scope,
                options: &BTreeMap::new(),
                pod_level: PodLevelManagers::Off,
            };
            let row = |from: u8| (node(from), (0..2).map(|to| (node(to), 10)).collect());
            let distances = (0..2).map(row).collect();
            let mut topology = TopologyManager::new(&settings, NumaTopology { distances }).unwrap();
            let manager = Node::new(two_nodes()).manager();
            let held = all_but(&manager, &set(free));
            topology.add_hint_provider(Box::new(manager));
            let admitted = topology.admit(&pod_of("new", &format!("app {count}")), &held);
            let own = admitted.map(|assigned| shown(&assigned)["app-0"].clone());
            let own = own.map_err(|error| error.reason());
            assert_eq!(
                own,
                expected.map(str::to_owned),
                "{count} of {free} by {policy}, {scope}"
            );
        }
    }
}

fn node(id: u8) -> NumaNodeId {
    NumaNodeId::new(id.into()).unwrap()
}
