//! How the node comes into the cluster.

use k8s_openapi::api::core::v1::Taint;

use super::registration::{CONTROLLER_ATTACHES, initial, pause, reconcile};
use super::*;

fn first(policy: &NodeStatusPolicy) -> Node {
    initial(policy, &well(), moment(0)).node
}

fn taints(node: &Node) -> Vec<String> {
    let spec = node.spec.as_ref().unwrap();
    let taints = spec.taints.iter().flatten();
    taints
        .map(|taint| {
            format!(
                "{}={}:{}",
                taint.key,
                taint.value.clone().unwrap_or_default(),
                taint.effect
            )
        })
        .collect()
}

/// Upstream's TestRegisterWithApiServer, TestUpdateNewNodeStatus.
#[test]
fn the_first_object_says_all_that_is_known() {
    let node = first(&policy());
    assert_eq!(node.metadata.name.as_deref(), Some("edge"));
    assert_eq!(node.metadata.labels, Some(policy().labels));
    let annotations = node.metadata.annotations.as_ref().unwrap();
    assert_eq!(annotations[CONTROLLER_ATTACHES], "true");
    assert_eq!(found(&node, "Ready").status, "True");
    assert!(taints(&node).is_empty());
    assert_eq!(node.spec.as_ref().unwrap().unschedulable, None);
}

/// Upstream's TestRegisterWithApiServerWithTaint, and `initialNode`.
#[test]
fn taints_come_from_the_operator_from_a_closed_node_and_from_a_cloud() {
    let own = Taint {
        key: "dedicated".into(),
        value: Some("gpu".into()),
        effect: "NoExecute".into(),
        time_added: None,
    };
    let policy = NodeStatusPolicy {
        taints: vec![own],
        scheduling: Scheduling::Closed,
        cloud: CloudProvider::External,
        provider_id: "example://1".into(),
        attaching: AttachDetachMode::Node,
        ..policy()
    };
    let node = first(&policy);
    assert_eq!(
        taints(&node),
        [
            "dedicated=gpu:NoExecute",
            "node.kubernetes.io/unschedulable=:NoSchedule",
            "node.cloudprovider.kubernetes.io/uninitialized=true:NoSchedule",
        ]
    );
    let spec = node.spec.as_ref().unwrap();
    assert_eq!(spec.unschedulable, Some(true));
    assert_eq!(spec.provider_id.as_deref(), Some("example://1"));
    assert_eq!(node.metadata.annotations, None);
    let closed_already = NodeStatusPolicy {
        taints: vec![Taint {
            key: "node.kubernetes.io/unschedulable".into(),
            effect: "NoSchedule".into(),
            ..Taint::default()
        }],
        cloud: CloudProvider::None,
        ..policy
    };
    assert_eq!(taints(&first(&closed_already)).len(), 1);
}

/// Upstream's TestTryRegisterWithApiServer: the annotation's rows.
#[test]
fn an_object_from_before_follows_who_attaches() {
    let node_attaches = NodeStatusPolicy {
        attaching: AttachDetachMode::Node,
        ..policy()
    };
    let mut with = first(&policy());
    let mut without = with.clone();
    without.metadata.annotations = None;
    assert_eq!(reconcile(&policy(), &first(&policy()), &with), None);
    let better = reconcile(&policy(), &first(&policy()), &without).unwrap();
    assert_eq!(
        better.metadata.annotations.unwrap()[CONTROLLER_ATTACHES],
        "true"
    );
    with.metadata
        .annotations
        .as_mut()
        .unwrap()
        .insert("other".into(), "x".into());
    let better = reconcile(&node_attaches, &first(&node_attaches), &with).unwrap();
    assert_eq!(
        better.metadata.annotations,
        Some(string_map(&[("other", "x")]))
    );
}

/// Upstream's TestUpdateDefaultLabels.
#[test]
fn the_machines_labels_are_put_right_and_others_stay() {
    let mut existing = first(&policy());
    existing.metadata.labels = Some(string_map(&[
        ("kubernetes.io/hostname", "old"),
        ("kubernetes.io/os", "plan9"),
        ("mine", "1"),
        ("disk", "hdd"),
    ]));
    let better = reconcile(&policy(), &first(&policy()), &existing).unwrap();
    let labels = better.metadata.labels.unwrap();
    let shown = [
        "kubernetes.io/hostname",
        "kubernetes.io/os",
        "kubernetes.io/arch",
        "mine",
        "disk",
    ];
    let shown = shown.map(|key| labels[key].as_str());
    // Labels of the operator's own choosing are given at the first registration alone, as upstream.
    assert_eq!(shown, ["edge", "linux", "amd64", "1", "hdd"]);
    let zone = NodeStatusPolicy {
        labels: string_map(&[("topology.kubernetes.io/zone", "")]),
        ..policy()
    };
    existing.metadata.labels = Some(string_map(&[("topology.kubernetes.io/zone", "z1")]));
    let mut emptied = first(&zone);
    emptied.metadata.labels = Some(zone.labels.clone());
    let better = reconcile(&zone, &emptied, &existing).unwrap();
    assert_eq!(better.metadata.labels, Some(BTreeMap::new()));
}

fn with_capacity(pairs: &[(&str, &str)]) -> Node {
    let mut node = first(&policy());
    let status = node.status.as_mut().unwrap();
    status.capacity.as_mut().unwrap().extend(quantities(pairs));
    status
        .allocatable
        .as_mut()
        .unwrap()
        .extend(quantities(pairs));
    node
}

/// Upstream's TestReconcileExtendedResource, TestUpdateDefaultResources.
#[test]
fn extended_resources_are_nought_on_a_node_made_anew() {
    let existing = with_capacity(&[("example.com/dongle", "4"), ("requests.example.com/x", "1")]);
    assert_eq!(reconcile(&policy(), &first(&policy()), &existing), None);
    let reset = NodeStatusPolicy {
        extended_resources: ExtendedResourcePolicy::Reset,
        ..policy()
    };
    let better = reconcile(&reset, &first(&reset), &existing).unwrap();
    let status = better.status.unwrap();
    for list in [status.capacity.unwrap(), status.allocatable.unwrap()] {
        assert_eq!(list["example.com/dongle"], quantity("0"));
        assert_eq!(list["requests.example.com/x"], quantity("1"));
        assert_ne!(list["cpu"], quantity("0"));
    }
    let mut empty = first(&policy());
    empty.status = None;
    let better = reconcile(&policy(), &first(&policy()), &empty).unwrap();
    assert_eq!(
        better.status.unwrap().capacity.unwrap()["cpu"],
        quantity("2")
    );
}

/// Upstream's TestReconcileHugePageResource.
#[test]
fn sizes_of_huge_pages_that_the_machine_has_no_more_go_and_new_ones_come() {
    let mut facts = well();
    for list in [
        &mut facts.resources.capacity,
        &mut facts.resources.allocatable,
    ] {
        list.extend(amounts(&[("hugepages-2Mi", "100Mi")]));
    }
    let initial = initial(&policy(), &facts, moment(0)).node;
    let existing = with_capacity(&[("hugepages-1Gi", "2Gi"), ("hugepages-2Mi", "50Mi")]);
    let better = reconcile(&policy(), &initial, &existing).unwrap();
    let status = better.status.unwrap();
    for list in [status.capacity.unwrap(), status.allocatable.unwrap()] {
        assert_eq!(list.get("hugepages-1Gi"), None);
        assert_eq!(list["hugepages-2Mi"], quantity("100Mi"));
    }
}

/// Upstream's TestRegisterWithApiServer waits 100 ms and doubles up to 7 s; here the first attempt does not wait.
#[test]
fn attempts_to_register_wait_longer_and_longer() {
    let pauses: Vec<u64> = (0..9)
        .map(|n| u64::try_from(pause(n).as_millis()).unwrap())
        .collect();
    assert_eq!(pauses, [0, 200, 400, 800, 1600, 3200, 6400, 7000, 7000]);
    assert_eq!(pause(u32::MAX), Duration::from_secs(7));
}

type QuantityPairs = &'static [(&'static str, &'static str)];

/// A node with these amounts as capacity and as allocatable; none where it says nothing.
fn holding(capacity: Option<QuantityPairs>, allocatable: Option<QuantityPairs>) -> Node {
    Node {
        status: Some(NodeStatus {
            capacity: capacity.map(quantities),
            allocatable: allocatable.map(quantities),
            ..NodeStatus::default()
        }),
        ..Node::default()
    }
}

fn held(node: Option<Node>) -> Option<[BTreeMap<String, Quantity>; 2]> {
    let status = node?.status?;
    let both = [status.capacity, status.allocatable];
    Some(both.map(Option::unwrap_or_default))
}

/// Upstream's TestUpdateDefaultResources.
#[test]
fn what_an_object_from_before_does_not_say_is_as_the_machine_has_it() {
    const OLD: QuantityPairs = &[("cpu", "2"), ("memory", "10G")];
    const NEW: QuantityPairs = &[("cpu", "4"), ("memory", "20G")];
    let (old, new, none) = (Some(OLD), Some(NEW), None);
    let rows = [
        ((old, old), (new, new), None),
        ((old, old), (none, none), None),
        ((none, none), (new, new), Some([NEW, NEW])),
        ((none, old), (new, new), Some([NEW, OLD])),
        ((old, none), (new, new), Some([OLD, NEW])),
        ((none, none), (none, none), None),
    ];
    for (existing, initial, expected) in rows {
        let (existing, initial) = (
            holding(existing.0, existing.1),
            holding(initial.0, initial.1),
        );
        let expected = expected.map(|both| both.map(quantities));
        assert_eq!(held(reconcile(&policy(), &initial, &existing)), expected);
    }
}

/// Upstream's TestReconcileHugePageResource.
#[test]
fn each_size_of_huge_pages_is_as_the_machine_has_it_and_other_resources_stay() {
    const TWO: QuantityPairs = &[("cpu", "2"), ("hugepages-2Mi", "100Mi")];
    const MORE: QuantityPairs = &[("cpu", "2"), ("hugepages-2Mi", "200Mi")];
    const BOTH: QuantityPairs = &[
        ("cpu", "2"),
        ("hugepages-1Gi", "4Gi"),
        ("hugepages-2Mi", "100Mi"),
    ];
    const OTHER_CPU: QuantityPairs = &[("cpu", "8"), ("hugepages-2Mi", "100Mi")];
    let all = |list| holding(Some(list), Some(list));
    let rows = [
        (all(BOTH), all(BOTH), None),
        (all(BOTH), all(TWO), Some([BOTH, BOTH])),
        (all(MORE), all(TWO), Some([MORE, MORE])),
        (all(TWO), all(BOTH), Some([TWO, TWO])),
        (all(BOTH), holding(None, None), Some([BOTH, BOTH])),
        (all(OTHER_CPU), all(TWO), None),
    ];
    for (initial, existing, expected) in rows {
        let expected = expected.map(|both| both.map(quantities));
        assert_eq!(held(reconcile(&policy(), &initial, &existing)), expected);
    }
}
