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
    facts.learn(Fact::Pressures([Pressure::Disk].into()), start());
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
    facts.learn(Fact::Pressures([Pressure::Disk].into()), start());
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
    before.metadata.annotations = Some(words(&[("a", "1"), ("b", "2")]));
    before.metadata.labels = Some(words(&[("l", "1")]));
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
