//! What is sent of the node's object.

use k8s_openapi::api::core::v1::NodeAddress;
use serde_json::json;

use super::*;

/// Upstream's TestUpdateExistingNodeStatus, TestNodeStatusHasChanged.
#[test]
fn a_beat_alone_is_no_change_and_anything_else_is() {
    let first = set_at(&well(), 0, &Node::default()).node;
    let beat = set_at(&well(), 10, &first).node;
    assert!(!changed(&first, &beat));
    assert!(patch(&first, &beat).is_some());
    assert!(!changed(&first, &first) && patch(&first, &first).is_none());
    let mut facts = well();
    facts.learn(NodeFact::Pressures([Pressure::Disk].into()), start());
    assert!(changed(&first, &set_at(&facts, 10, &first).node));
    let mut labelled = beat;
    labelled
        .metadata
        .labels
        .as_mut()
        .unwrap()
        .insert("a".into(), "b".into());
    assert!(changed(&first, &labelled));
    labelled = first.clone();
    labelled.metadata.resource_version = Some("7".into());
    labelled.status.as_mut().unwrap().volumes_attached = Some(Vec::new());
    assert!(!changed(&first, &labelled));
}

/// Upstream's TestPatchNodeStatus of component-helpers.
#[test]
fn the_patch_names_what_differs_and_merges_conditions_by_type() {
    let first = set_at(&well(), 0, &Node::default()).node;
    let mut facts = well();
    facts.learn(NodeFact::Pressures([Pressure::Disk].into()), start());
    let after = set_at(&facts, 10, &first).node;
    let beat = |name: &str| json!({"type": name, "lastHeartbeatTime": "2023-11-14T22:13:30Z"});
    let expected = json!({"status": {
        "$setElementOrder/conditions": [
            {"type": "MemoryPressure"}, {"type": "DiskPressure"}, {"type": "PIDPressure"}, {"type": "Ready"},
        ],
        "conditions": [
            beat("MemoryPressure"),
            {
                "type": "DiskPressure",
                "status": "True",
                "reason": "KubeletHasDiskPressure",
                "message": "kubelet has disk pressure",
                "lastHeartbeatTime": "2023-11-14T22:13:30Z",
                "lastTransitionTime": "2023-11-14T22:13:30Z",
            },
            beat("PIDPressure"),
            beat("Ready"),
        ],
    }});
    assert_eq!(patch(&first, &after), Some(expected));
}

/// Upstream's TestPatchNodeStatus: "addresses".
#[test]
fn addresses_are_replaced_as_a_whole_and_first_ones_just_sent() {
    let address = |ip: &str| NodeAddress {
        type_: "InternalIP".into(),
        address: ip.into(),
    };
    let with = |ips: &[&str]| Node {
        status: Some(NodeStatus {
            addresses: Some(ips.iter().map(|ip| address(ip)).collect()),
            ..NodeStatus::default()
        }),
        ..Node::default()
    };
    let sent = json!({"type": "InternalIP", "address": "10.0.0.1"});
    assert_eq!(
        patch(&Node::default(), &with(&["10.0.0.1"])),
        Some(json!({"status": {"addresses": [sent]}}))
    );
    assert_eq!(
        patch(&with(&["10.0.0.2"]), &with(&["10.0.0.1"])),
        Some(json!({"status": {"addresses": [sent, {"$patch": "replace"}]}}))
    );
    assert_eq!(
        patch(&with(&["10.0.0.2"]), &with(&[])),
        Some(json!({"status": {"addresses": null}}))
    );
}

#[test]
fn what_is_gone_is_sent_as_nothing() {
    let mut before = Node::default();
    before.metadata.annotations = Some(string_map(&[("a", "1"), ("b", "2")]));
    before.metadata.labels = Some(string_map(&[("l", "1")]));
    let mut after = before.clone();
    after.metadata.annotations.as_mut().unwrap().remove("a");
    after.metadata.labels = None;
    assert_eq!(
        patch(&before, &after),
        Some(json!({"metadata": {"annotations": {"a": null}, "labels": null}}))
    );
    // The specification is not the agent's to write.
    after = before.clone();
    after.spec = Some(k8s_openapi::api::core::v1::NodeSpec {
        unschedulable: Some(true),
        ..Default::default()
    });
    assert_eq!(patch(&before, &after), None);
}

/// Upstream's TestUpdateNodeAddresses.
#[test]
fn whatever_the_addresses_were_they_become_what_they_are_to_be() {
    let at = |list: &[&str]| {
        let address = |ip: &&str| NodeAddress {
            type_: if *ip == "edge" {
                "Hostname"
            } else {
                "InternalIP"
            }
            .into(),
            address: (*ip).into(),
        };
        Node {
            status: Some(NodeStatus {
                addresses: Some(list.iter().map(address).collect()),
                ..NodeStatus::default()
            }),
            ..Node::default()
        }
    };
    let (a, b, c, d) = ("127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.4");
    let rows: [(&[&str], &[&str]); 9] = [
        (&[], &[a, "edge"]),
        (&[a, "edge"], &[]),
        (&[a, b, c, "edge"], &[a, b, c, "edge"]),
        (&[a, "edge"], &[a, b, "edge"]),
        (&[a, b, "edge"], &[a, "edge"]),
        (&[a, b, "edge"], &[c, d, "edge"]),
        (&[a, b, "edge"], &[b, a, "edge"]),
        (&[], &[]),
        (&["edge"], &["edge"]),
    ];
    for (before, after) in rows {
        let patch = patch(&at(before), &at(after));
        let sent = patch.as_ref().map(|patch| &patch["status"]["addresses"]);
        let Some(sent) = sent else {
            assert_eq!(before, after);
            continue;
        };
        let list = sent.as_array().into_iter().flatten();
        let list: Vec<&str> = list.filter_map(|one| one["address"].as_str()).collect();
        assert_eq!(list, after, "{before:?}");
        // Merging by type would keep one of two alone.
        let replaced = sent.as_array().and_then(|list| list.last());
        let replaces = replaced.is_some_and(|last| last["$patch"] == "replace");
        assert_eq!(replaces, !before.is_empty() && !after.is_empty());
    }
}

/// Upstream's TestNodeStatusHasChanged.
#[test]
fn another_order_or_heartbeat_is_no_change_and_anything_else_of_a_condition_is() {
    use k8s_openapi::api::core::v1::NodeCondition;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    let is = |kind: &str, state: &str, beat: i64, since: i64| NodeCondition {
        type_: kind.into(),
        status: state.into(),
        last_heartbeat_time: Some(Time(at(beat))),
        last_transition_time: Some(Time(at(since))),
        ..NodeCondition::default()
    };
    let node = |conditions: Vec<NodeCondition>, phase: Option<&str>| Node {
        status: Some(NodeStatus {
            conditions: Some(conditions),
            phase: phase.map(Into::into),
            ..NodeStatus::default()
        }),
        ..Node::default()
    };
    let pressure = || is("MemoryPressure", "False", 0, 0);
    let ready = || is("Ready", "True", 0, 0);
    let before = node(vec![ready(), pressure()], None);
    let rows = [
        (node(vec![ready(), pressure()], None), false),
        (
            node(vec![is("Ready", "True", 60, 0), pressure()], None),
            false,
        ),
        (
            node(vec![pressure(), is("Ready", "True", 60, 0)], None),
            false,
        ),
        (
            node(vec![is("Ready", "False", 0, 0), pressure()], None),
            true,
        ),
        (
            node(vec![is("Ready", "True", 60, 60), pressure()], None),
            true,
        ),
        (node(vec![ready()], None), true),
        (node(vec![ready(), pressure()], Some("Running")), true),
    ];
    for (after, expected) in rows {
        assert_eq!(changed(&before, &after), expected, "{:?}", after.status);
    }
    let empty = node(Vec::new(), None);
    assert!(!changed(&empty, &empty) && !changed(&Node::default(), &empty));
    assert!(changed(&Node::default(), &before));
}

/// The API server drops the empty list of an image that lost its name to a newer one.
#[test]
fn what_the_server_does_not_keep_is_no_change() {
    let mut facts = well();
    let nameless = NodeImage {
        id: "sha256:1".into(),
        names: Vec::new(),
        bytes: 1,
    };
    facts.learn(NodeFact::Images(vec![nameless]), start());
    let sent = set_at(&facts, 0, &Node::default()).node;
    let mut kept = sent.clone();
    let images = kept.status.as_mut().unwrap().images.as_mut().unwrap();
    images[0].names = None;
    let next = set_at(&facts, 10, &kept).node;
    assert!(!changed(&kept, &next));
    let beat = patch(&kept, &next).unwrap();
    assert_eq!(beat["status"].get("images"), None);
}
