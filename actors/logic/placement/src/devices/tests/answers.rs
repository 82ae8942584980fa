//! What plugins answer, kept and put together.

use k8s_openapi::api::core::v1::{ContainerStatus, ResourceHealth, ResourceStatus};

use super::*;

fn by_node(nodes: &[(i64, &[&str])]) -> DevicesByNode {
    let owned = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect();
    DevicesByNode(
        nodes
            .iter()
            .map(|(node, ids)| (*node, owned(ids)))
            .collect(),
    )
}

fn cdi(names: &[&str]) -> AllocateAnswer {
    AllocateAnswer {
        cdi_devices: names.iter().map(|name| (*name).to_owned()).collect(),
        ..AllocateAnswer::default()
    }
}

fn node(container_path: &str, host_path: &str) -> DeviceNode {
    DeviceNode {
        container_path: container_path.to_owned(),
        host_path: host_path.to_owned(),
        permissions: "mrw".to_owned(),
    }
}

fn mount(container_path: &str, host_path: &str) -> DeviceMount {
    DeviceMount {
        container_path: container_path.to_owned(),
        host_path: host_path.to_owned(),
        read_only: true,
    }
}

fn allocations(answers: &[(&str, AllocateAnswer)]) -> DeviceAllocations {
    let mut allocations = DeviceAllocations::default();
    for (resource, answer) in answers {
        let new = DeviceAllocation {
            devices: by_node(&[(0, &["dev1"]), (1, &["dev1"])]),
            answer: answer.clone(),
        };
        allocations.insert(&"pod".into(), "container", resource, new);
    }
    allocations
}

fn merged(answers: &[(&str, AllocateAnswer)]) -> ContainerDevices {
    let allocations = allocations(answers);
    allocations
        .container_devices(&"pod".into(), "container")
        .unwrap()
}

/// Upstream's TestDeviceRunContainerOptions.
#[test]
fn a_container_gets_each_cdi_device_once() {
    let first = || cdi(&["vendor1.com/class1=device1", "vendor2.com/class2=device2"]);
    for (answers, names) in [
        (vec![(RESOURCE, AllocateAnswer::default())], cdi(&[])),
        (vec![(RESOURCE, first())], first()),
        (
            vec![
                (RESOURCE, first()),
                (OTHER_RESOURCE, cdi(&["vendor3.com/class3=device3"])),
            ],
            cdi(&[
                "vendor1.com/class1=device1",
                "vendor2.com/class2=device2",
                "vendor3.com/class3=device3",
            ]),
        ),
        (
            vec![
                (RESOURCE, first()),
                (
                    OTHER_RESOURCE,
                    cdi(&["vendor2.com/class2=device2", "vendor3.com/class3=device3"]),
                ),
            ],
            cdi(&[
                "vendor1.com/class1=device1",
                "vendor2.com/class2=device2",
                "vendor3.com/class3=device3",
            ]),
        ),
    ] {
        let expected = ContainerDevices {
            cdi_devices: names.cdi_devices,
            ..ContainerDevices::default()
        };
        assert_eq!(merged(&answers), expected);
    }
}

#[test]
fn of_answers_that_contradict_each_other_the_first_holds_and_the_contradiction_is_named() {
    let answer = |value: &str, host: &str| AllocateAnswer {
        envs: string_map(&[("KEY", value), ("SAME", "same")]),
        annotations: string_map(&[("note", value)]),
        nodes: vec![node("/dev/a", host), node("/dev/same", "/dev/same")],
        mounts: vec![mount("/lib/a", host), mount("/lib/same", "/lib/same")],
        cdi_devices: Vec::new(),
    };
    let (first, second) = (answer("1", "/host1"), answer("2", "/host2"));
    let all = merged(&[(RESOURCE, first.clone()), (OTHER_RESOURCE, second)]);
    assert_eq!((all.envs, all.annotations), (first.envs, first.annotations));
    assert_eq!((all.nodes, all.mounts), (first.nodes, first.mounts));
    assert_eq!(
        all.conflicts,
        [
            "environment variable \"KEY\" is \"1\", and \"2\" as well",
            "annotation \"note\" is \"1\", and \"2\" as well",
            "device \"/dev/a\" is \"/host1\", and \"/host2\" as well",
            "mount \"/lib/a\" is \"/host1\", and \"/host2\" as well",
        ]
    );
}

/// Upstream's TestGetContainerDevices.
#[test]
fn a_device_that_is_close_to_several_nodes_stands_at_each() {
    let allocations = allocations(&[(RESOURCE, AllocateAnswer::default())]);
    let (resource, allocation) = allocations
        .of_container(&"pod".into(), "container")
        .next()
        .unwrap();
    assert_eq!(resource, RESOURCE);
    assert_eq!(
        allocation.devices.nodes(),
        BTreeMap::from([("dev1", mask(&[0, 1]))])
    );
    assert_eq!(allocation.devices.ids(), ids(&["dev1"]));
    let there = inventory(&[(RESOURCE, &[("a", &[0, 1]), ("b", &[1]), ("c", &[])])]);
    let devices = DevicesByNode::of(&ids(&["a", "b", "c", "gone"]), RESOURCE, &there);
    assert_eq!(
        devices,
        by_node(&[(-1, &["c", "gone"]), (0, &["a"]), (1, &["a", "b"])])
    );
    assert_eq!(devices.nodes()["c"], NumaMask::EMPTY);
}

/// Upstream's TestGetPodAndContainerForDevice.
#[test]
fn the_pods_that_hold_a_device_are_known_until_they_are_forgotten() {
    let mut allocations = allocations(&[(RESOURCE, AllocateAnswer::default())]);
    let pod = "pod".into();
    for (resource, id, holders) in [
        (RESOURCE, "dev1", vec![&pod]),
        (RESOURCE, "dev2", vec![]),
        (OTHER_RESOURCE, "dev1", vec![]),
    ] {
        let found = allocations.holders(resource, &ids(&[id]));
        assert_eq!(found.iter().collect::<Vec<_>>(), holders, "{resource} {id}");
    }
    assert_eq!(
        allocations.held(),
        held(&[("pod", "container", RESOURCE, &["dev1"])])
    );
    assert!(allocations.get(&pod, "container", RESOURCE).is_some());
    assert!(allocations.forget(&pod) && !allocations.forget(&pod));
    assert!(allocations.get(&pod, "container", RESOURCE).is_none());
    assert_eq!(allocations.container_devices(&pod, "container"), None);
    assert_eq!(allocations.of_container(&pod, "container").count(), 0);
    assert_eq!(allocations.holders(RESOURCE, &ids(&["dev1"])).len(), 0);
}

fn health(id: &str, health: &str) -> ResourceHealth {
    ResourceHealth {
        resource_id: id.to_owned(),
        health: Some(health.to_owned()),
        ..ResourceHealth::default()
    }
}

fn status(name: &str, resources: Vec<ResourceHealth>) -> ResourceStatus {
    ResourceStatus {
        name: name.to_owned(),
        resources: Some(resources),
    }
}

/// Upstream's TestUpdateAllocatedResourcesStatus.
#[test]
fn a_status_has_the_health_of_each_device_as_it_was_told_last() {
    let mut there = DeviceInventory::default();
    let listed = vec![
        device("dev1", "Healthy", &[]),
        device("dev2", "Unhealthy", &[]),
    ];
    add(&mut there, RESOURCE, listed);
    let held = held(&[
        ("pod", "app", RESOURCE, &["dev1", "dev2"]),
        ("pod", "app", OTHER_RESOURCE, &["never-told"]),
    ]);
    let stranger = status("claim:gpu", vec![health("x", "Unknown")]);
    let mut statuses = [
        ContainerStatus {
            name: "app".to_owned(),
            allocated_resources_status: Some(vec![
                stranger.clone(),
                status(RESOURCE, vec![health("dev1", "Unhealthy")]),
            ]),
            ..ContainerStatus::default()
        },
        ContainerStatus {
            name: "none".to_owned(),
            ..ContainerStatus::default()
        },
    ];
    update_health(&mut statuses, &held[&"pod".into()], &there);
    assert_eq!(
        statuses[0].allocated_resources_status,
        Some(vec![
            stranger,
            status(
                RESOURCE,
                vec![health("dev1", "Healthy"), health("dev2", "Unhealthy")]
            ),
            status(OTHER_RESOURCE, vec![health("never-told", "Healthy")]),
        ])
    );
    assert_eq!(statuses[1].allocated_resources_status, None);
}
