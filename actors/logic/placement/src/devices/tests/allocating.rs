//! Which devices a container gets, and why it gets none.

use std::time::Instant;

use proptest::prelude::*;

use super::*;

const THIRD_RESOURCE: &str = "domain2.com/resource3";

/// Upstream's TestPodContainerDeviceAllocation, as far as devices are chosen.
#[test]
fn a_container_gets_as_many_free_devices_as_it_asks_for() {
    let there = || {
        inventory(&[
            (RESOURCE, &[("dev1", &[0]), ("dev2", &[0])]),
            (OTHER_RESOURCE, &[("dev3", &[]), ("dev4", &[])]),
        ])
    };
    let first = asks(
        pod("a"),
        "app",
        &[(RESOURCE, "2"), ("cpu", "2"), (OTHER_RESOURCE, "1")],
    );
    let assigned = Rig::new(first, there()).assign("app", None).unwrap();
    assert_eq!(assigned.devices[RESOURCE], ids(&["dev1", "dev2"]));
    assert_eq!(assigned.devices[OTHER_RESOURCE], ids(&["dev3"]));
    assert_eq!((assigned.devices.len(), assigned.cpus.len()), (2, 0));
    let taken = held(&[
        ("a-uid", "app", RESOURCE, &["dev1", "dev2"]),
        ("a-uid", "app", OTHER_RESOURCE, &["dev3"]),
    ]);
    let too_many = asks(pod("b"), "app", &[(RESOURCE, "1")]);
    let rig = Rig::new(too_many, there()).holding(taken.clone());
    assert_eq!(
        rig.refusal("app"),
        "requested number of devices unavailable for domain1.com/resource1. Requested: 1, Available: 0"
    );
    let rest = asks(pod("c"), "app", &[(OTHER_RESOURCE, "1")]);
    let rig = Rig::new(rest, there()).holding(taken);
    assert_eq!(rig.ids("app", OTHER_RESOURCE, None), ids(&["dev4"]));
    let nothing = asks(pod("d"), "app", &[(RESOURCE, "0"), ("unknown.com/x", "3")]);
    let assigned = Rig::new(nothing, there()).assign("app", None).unwrap();
    assert_eq!(assigned, AssignedResources::default());
}

/// Upstream's TestPodContainerDeviceToAllocate, and what it refuses further.
#[test]
fn devices_that_cannot_be_used_are_refused_in_upstreams_words() {
    let holding = held(&[
        ("pod1-uid", "app", RESOURCE, &["dev1", "dev2"]),
        ("pod2-uid", "app", OTHER_RESOURCE, &["dev5"]),
        ("pod3-uid", "app", THIRD_RESOURCE, &["dev5"]),
    ]);
    let there = inventory(&[
        (RESOURCE, &[]),
        (THIRD_RESOURCE, &[("dev7", &[]), ("dev8", &[])]),
    ]);
    for (name, resource, count, why) in [
        (
            "pod1",
            RESOURCE,
            "2",
            "no healthy devices present; cannot allocate unhealthy devices domain1.com/resource1",
        ),
        (
            "pod2",
            OTHER_RESOURCE,
            "1",
            "cannot allocate unregistered device domain2.com/resource2",
        ),
        (
            "pod3",
            THIRD_RESOURCE,
            "1",
            "previously allocated devices are no longer healthy; cannot allocate unhealthy devices domain2.com/resource3",
        ),
        (
            "pod3",
            THIRD_RESOURCE,
            "2",
            "pod \"pod3-uid\" container \"app\" changed request for resource \"domain2.com/resource3\" from 1 to 2",
        ),
        (
            "new",
            THIRD_RESOURCE,
            "3",
            "requested number of devices unavailable for domain2.com/resource3. Requested: 3, Available: 2",
        ),
    ] {
        let rig = Rig::new(asks(pod(name), "app", &[(resource, count)]), there.clone());
        assert_eq!(rig.holding(holding.clone()).refusal("app"), why);
    }
}

/// Upstream's TestDevicesToAllocateConflictWithUpdateAllocatedDevices: a pod that goes meanwhile changes nothing here,
/// since what is held is one value for the whole request.
#[test]
fn a_device_is_given_by_preference_while_another_pod_holds_none() {
    let rig = Rig::new(
        asks(pod("web"), "app", &[(RESOURCE, "1")]),
        asking(&[("deviceID", &[])]),
    );
    let mut rig = rig.holding(held(&[("other", "app", RESOURCE, &[])]));
    let Err(AssignmentError::Undecided(questions)) = rig.assign("app", None) else {
        panic!("the plugin is to be asked");
    };
    let question = questions.into_iter().next().unwrap();
    rig.preferences.insert(question, Ok(ids(&["deviceID"])));
    assert_eq!(rig.ids("app", RESOURCE, None), ids(&["deviceID"]));
}

#[test]
fn a_container_keeps_its_devices_as_long_as_they_can_be_used() {
    let devices: Listed<'_> = &[("dev1", &[]), ("dev2", &[]), ("dev3", &[])];
    let asked = asks(pod("web"), "app", &[(RESOURCE, "1")]);
    let rig = Rig::new(asked, asking(devices));
    let mut rig = rig.holding(held(&[("web-uid", "app", RESOURCE, &["dev2"])]));
    assert_eq!(
        rig.ids("app", RESOURCE, None),
        ids(&["dev2"]),
        "without a question"
    );
    rig.inventory.disconnected(RESOURCE, now());
    assert_eq!(
        rig.refusal("app"),
        "no healthy devices present; cannot allocate unhealthy devices domain1.com/resource1"
    );
}

#[allow(clippy::disallowed_methods, reason = "any moment will do")]
fn now() -> Instant {
    Instant::now()
}

proptest! {
    #[test]
    fn nothing_is_given_that_cannot_be_used_or_that_another_has(
        devices in prop::collection::btree_map("[a-z]{1,3}", (any::<bool>(), prop::collection::vec(0..3i64, 0..3)), 1..20),
        taken in prop::collection::vec(any::<prop::sample::Index>(), 0..10),
        count in 1..10usize,
        node in prop::option::of(0..3i64),
    ) {
        let all: Vec<&String> = devices.keys().collect();
        let taken: Vec<&str> = taken.iter().map(|index| index.get(&all).as_str()).collect();
        let listed = devices.iter().map(|(id, (healthy, nodes))| {
            device(id, if *healthy { "Healthy" } else { "Unhealthy" }, nodes)
        });
        let mut there = DeviceInventory::default();
        add(&mut there, RESOURCE, listed.collect());
        let asked = asks(pod("web"), "app", &[(RESOURCE, &count.to_string())]);
        let rig = Rig::new(asked, there).holding(held(&[("other", "app", RESOURCE, &taken)]));
        let free = |id: &String| devices[id].0 && !taken.contains(&id.as_str());
        let nodes = node.map(|node| mask(&[node]));
        match rig.assign("app", nodes) {
            Ok(assigned) => {
                let given = &assigned.devices[RESOURCE];
                prop_assert_eq!(given.len(), count);
                prop_assert!(given.iter().all(free));
                let near = |id: &&String| node.is_some_and(|node| devices[*id].1.contains(&node));
                let near_given = given.iter().filter(near).count();
                let near_free = devices.keys().filter(|id| free(id)).filter(near).count();
                prop_assert_eq!(near_given, near_free.min(count));
            }
            Err(_) => prop_assert!(devices.keys().filter(|id| free(id)).count() < count),
        }
    }
}
