//! What the node has, and what it is.

use super::*;

fn listed(list: Option<&std::collections::BTreeMap<String, Quantity>>) -> Vec<String> {
    let list = list.into_iter().flatten();
    list.map(|(name, amount)| format!("{name}={}", amount.0))
        .collect()
}

/// Upstream's TestMachineInfo and TestUpdateNewNodeStatusTooLargeReservation: the amounts are
/// `logic_resources::node`'s.
#[test]
fn capacity_and_allocatable_are_the_nodes_and_what_others_advertise_stays() {
    let before = Node {
        status: Some(NodeStatus {
            capacity: Some(quantities(&[
                ("cpu", "2000m"),
                ("example.com/dongle", "4"),
                ("example.com/nonsense", "-1"),
                ("pods", "5"),
            ])),
            allocatable: Some(quantities(&[("example.com/gone", "1"), ("cpu", "1")])),
            ..NodeStatus::default()
        }),
        ..Node::default()
    };
    let outcome = set_at(&well(), 0, &before);
    let status = status(&outcome.node);
    let capacity = [
        // It says the same in other words, and is left as it is written.
        "cpu=2000m",
        "ephemeral-storage=5k",
        "example.com/dongle=4",
        "example.com/nonsense=-1",
        "memory=10Gi",
        "pods=110",
    ];
    assert_eq!(listed(status.capacity.as_ref()), capacity);
    let allocatable = [
        "cpu=1800m",
        "ephemeral-storage=4k",
        "example.com/dongle=4",
        "example.com/nonsense=0",
        "memory=9Gi",
        "pods=110",
    ];
    assert_eq!(listed(status.allocatable.as_ref()), allocatable);
}

/// Upstream's TestVersionInfo and TestMachineInfo (NodeInfo).
#[test]
fn the_node_names_its_machine_its_system_and_its_runtime() {
    let mut facts = well();
    facts.host.swap = 2048;
    let runtime = RuntimeStatus {
        handlers: vec![
            // They are told in the order of their names.
            RuntimeHandler {
                name: "sandboxed".into(),
                user_namespaces: Support::Yes,
                ..RuntimeHandler::default()
            },
            RuntimeHandler::default(),
        ],
        supplemental_groups_policy: Some(Support::Yes),
        ..runtime()
    };
    facts.learn(NodeFact::Runtime(Box::new(runtime)), start());
    let outcome = set_at(&facts, 0, &Node::default());
    let status = status(&outcome.node);
    let info = status.node_info.as_ref().unwrap();
    let words = [
        &info.machine_id,
        &info.system_uuid,
        &info.boot_id,
        &info.kernel_version,
        &info.os_image,
        &info.container_runtime_version,
        &info.kubelet_version,
        &info.kube_proxy_version,
        &info.operating_system,
        &info.architecture,
    ];
    let expected = [
        "machine",
        "system",
        "boot-1",
        "6.1.0",
        "Example 1",
        "containerd://1.6.20",
        "v1.36.0",
        "",
        "linux",
        "amd64",
    ];
    assert_eq!(words, expected);
    assert_eq!(info.swap.as_ref().unwrap().capacity, Some(2048));
    let port = status
        .daemon_endpoints
        .as_ref()
        .unwrap()
        .kubelet_endpoint
        .as_ref();
    assert_eq!(port.unwrap().port, 10250);
    let handlers: Vec<String> = status
        .runtime_handlers
        .iter()
        .flatten()
        .map(|handler| {
            let features = handler.features.as_ref().unwrap();
            format!("{:?} {:?}", handler.name, features.user_namespaces)
        })
        .collect();
    assert_eq!(
        handlers,
        ["Some(\"\") Some(false)", "Some(\"sandboxed\") Some(true)"]
    );
    let features = status.features.as_ref().unwrap();
    assert_eq!(features.supplemental_groups_policy, Some(true));
    // A runtime that is not ready keeps what it could.
    let ill = RuntimeStatus {
        ready: Some(condition("RuntimeReady", Support::No)),
        supplemental_groups_policy: None,
        ..super::runtime()
    };
    facts.learn(NodeFact::Runtime(Box::new(ill)), start());
    let kept = set_at(&facts, 1, &outcome.node).node.status.unwrap();
    assert_eq!(kept.runtime_handlers.unwrap().len(), 2);
}

#[test]
fn a_system_without_a_name_is_linux() {
    let rows = [
        ("", "Linux"),
        ("NAME=x\n", "Linux"),
        ("PRETTY_NAME=\n", "Linux"),
        ("PRETTY_NAME='Example 1'\r\n", "Example 1"),
        ("PRETTY_NAME=Plain\n", "Plain"),
    ];
    for (text, name) in rows {
        assert_eq!(os_image(text), name);
    }
}

/// Upstream's TestMachineInfo, by its event `NodeRebooted`.
#[test]
fn another_boot_is_told_once_and_the_first_is_none() {
    let first = set_at(&well(), 0, &Node::default());
    assert!(!reasons(&first).contains(&"Rebooted"));
    let mut facts = well();
    facts.host.boot_id = "boot-2".into();
    let outcome = set_at(&facts, 1, &first.node);
    let told = outcome
        .told
        .iter()
        .find(|told| told.reason == "Rebooted")
        .unwrap();
    assert_eq!(told.weight, EventLevel::Warning);
    assert_eq!(told.message, "Node edge has been rebooted, boot id: boot-2");
    let again = set_at(&facts, 2, &outcome.node);
    assert!(!reasons(&again).contains(&"Rebooted"));
}

/// Upstream's TestImages, TestGenerateImageTags and TestByImageSizeLess.
#[test]
fn images_are_listed_by_size_each_with_a_few_names_and_not_too_many() {
    let image = |name: &str, bytes| NodeImage {
        id: name.to_owned(),
        names: (0..7).map(|n| format!("{name}:{n}")).collect(),
        bytes,
    };
    let mut facts = well();
    let none = set_at(&facts, 0, &Node::default());
    assert_eq!(status(&none.node).images, None);
    let images = vec![image("small", 1), image("large", 9), image("middle", 5)];
    assert_eq!(
        facts.learn(NodeFact::Images(images), start()),
        ReportUrgency::Later
    );
    let shown = |facts: &NodeStatusFacts, most| {
        let policy = NodeStatusPolicy {
            max_images: most,
            ..policy()
        };
        let outcome = set(&policy, facts, moment(0), &Node::default());
        let images = outcome.node.status.unwrap().images.unwrap();
        images
            .into_iter()
            .map(|image| {
                let names = image.names.unwrap();
                format!(
                    "{} {} {:?}",
                    names[0],
                    names.len(),
                    image.size_bytes.unwrap()
                )
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(
        shown(&facts, None),
        ["large:0 5 9", "middle:0 5 5", "small:0 5 1"]
    );
    assert_eq!(shown(&facts, Some(2)), ["large:0 5 9", "middle:0 5 5"]);
    assert!(shown(&facts, Some(0)).is_empty());
    let alike = ["1", "4", "3"].map(|id| image(id, 3)).to_vec();
    facts.learn(NodeFact::Images(alike), start());
    assert_eq!(shown(&facts, None), ["4:0 5 3", "3:0 5 3", "1:0 5 3"]);
}

/// Upstream's TestVolumesInUse.
#[test]
fn volumes_in_use_are_told_and_before_all_is_known_none_is_dropped() {
    let ids = |names: &[&str]| names.iter().map(|name| VolumeId((*name).into())).collect();
    let mut facts = well();
    let mut node = Node::default();
    let mut shown = |facts: &NodeStatusFacts| {
        let outcome = set_at(facts, 0, &node);
        node = outcome.node;
        status(&node).volumes_in_use.clone().unwrap_or_default()
    };
    assert!(shown(&facts).is_empty());
    assert_eq!(
        facts.learn(
            NodeFact::VolumesInUse(VolumesInUse::AtLeast(ids(&["b"]))),
            start()
        ),
        ReportUrgency::Now
    );
    assert_eq!(shown(&facts), ["b"]);
    facts.learn(
        NodeFact::VolumesInUse(VolumesInUse::AtLeast(ids(&["a"]))),
        start(),
    );
    assert_eq!(shown(&facts), ["a", "b"]);
    facts.learn(
        NodeFact::VolumesInUse(VolumesInUse::Exactly(ids(&["a"]))),
        start(),
    );
    assert_eq!(shown(&facts), ["a"]);
    facts.learn(
        NodeFact::VolumesInUse(VolumesInUse::Exactly(ids(&[]))),
        start(),
    );
    assert!(shown(&facts).is_empty());
}
