//! What plugins list, how it counts for the node, and what is refused.

use std::time::{Duration, Instant};

use logic_api::pod::requests::{self, ResourceAmounts};

use super::*;

const GRACE: Duration = Duration::from_secs(5 * 60);
const SECOND: Duration = Duration::from_secs(1);

/// Of some moment: what matters is only what lies between two.
fn moment() -> Instant {
    static START: std::sync::LazyLock<Instant> = std::sync::LazyLock::new(start);
    *START
}

#[allow(
    clippy::disallowed_methods,
    reason = "a table needs some moment to count from"
)]
fn start() -> Instant {
    Instant::now()
}

/// Three devices, of which the given ones cannot be used.
fn three(unhealthy: &[&str]) -> Vec<ListedDevice> {
    let health = |id: &str| match unhealthy.contains(&id) {
        true => "Unhealthy",
        false => "Healthy",
    };
    let devices = ["Device1", "Device2", "Device3"];
    devices.map(|id| device(id, health(id), &[])).into()
}

/// Capacity and allocatable of a resource.
fn counts(inventory: &DeviceInventory, resource: &str) -> Option<(usize, usize)> {
    let node = inventory.node_devices(&BTreeSet::new());
    let capacity = node.capacity.get(resource)?;
    Some((*capacity, node.allocatable[resource]))
}

/// Upstream's TestUpdateCapacityAllocatable and TestEndpointSyncOnDisconnect.
#[test]
fn capacity_counts_every_device_and_allocatable_those_that_can_be_used() {
    let mut there = DeviceInventory::default();
    add(&mut there, RESOURCE, three(&["Device3"]));
    assert_eq!(counts(&there, RESOURCE), Some((3, 2)));
    let without_the_third = three(&[])[..2].to_vec();
    there.listed(RESOURCE, without_the_third).unwrap();
    assert_eq!(counts(&there, RESOURCE), Some((2, 2)));
    there
        .listed(RESOURCE, three(&["Device2", "Device3"]))
        .unwrap();
    assert_eq!(counts(&there, RESOURCE), Some((3, 1)));
    let without_the_first = three(&["Device2", "Device3"])[1..].to_vec();
    there.listed(RESOURCE, without_the_first).unwrap();
    assert_eq!(counts(&there, RESOURCE), Some((2, 0)));
    add(&mut there, OTHER_RESOURCE, three(&["Device2", "Device3"]));
    assert_eq!(counts(&there, OTHER_RESOURCE), Some((3, 1)));
    assert_eq!(there.node_devices(&BTreeSet::new()).capacity.len(), 2);

    there.disconnected(RESOURCE, moment());
    assert_eq!(there.expire(moment() + GRACE), ids(&[]));
    assert_eq!(there.next_expiry(), Some(moment() + GRACE));
    let removed = there.expire(moment() + GRACE + SECOND);
    assert_eq!(removed, ids(&[RESOURCE]));
    assert_eq!(
        (counts(&there, RESOURCE), there.next_expiry()),
        (None, None)
    );
    let told = there.node_devices(&removed);
    assert_eq!(told.removed, removed);
    assert_eq!(told.capacity.keys().collect::<Vec<_>>(), [OTHER_RESOURCE]);

    there.disconnected(OTHER_RESOURCE, moment());
    assert_eq!(counts(&there, OTHER_RESOURCE), Some((3, 0)));
    assert_eq!(there.options(OTHER_RESOURCE), None);
    add(&mut there, RESOURCE, three(&[]));
    assert_eq!(there.node_devices(&removed).removed, ids(&[]), "it is back");
}

/// The rest of TestUpdateCapacityAllocatable: the agent restarts.
#[test]
fn a_resource_from_before_a_restart_is_there_without_devices_until_its_grace_ends() {
    let mut there = DeviceInventory::default();
    there.restored(RESOURCE, moment());
    assert_eq!(counts(&there, RESOURCE), Some((0, 0)));
    assert!(there.resource(RESOURCE).is_some());
    let mut back = there.clone();
    add(&mut back, RESOURCE, three(&[]));
    back.restored(RESOURCE, moment());
    assert_eq!(counts(&back, RESOURCE), Some((3, 3)));
    assert_eq!(back.next_expiry(), None);
    assert_eq!(there.expire(moment() + GRACE + SECOND), ids(&[RESOURCE]));
}

/// Upstream's TestDevicePluginReRegistration and TestDevicePluginReRegistrationProbeMode.
#[test]
fn a_plugin_that_registers_again_replaces_its_devices_once_it_lists_them() {
    let mut there = inventory(&[(RESOURCE, &[("Dev1", &[]), ("Dev2", &[])])]);
    assert_eq!(counts(&there, RESOURCE), Some((2, 2)));
    there.registered(RESOURCE, PluginOptions::default());
    assert_eq!(counts(&there, RESOURCE), Some((2, 2)));
    there
        .listed(RESOURCE, healthy(&[("Dev1", &[]), ("Dev2", &[])]))
        .unwrap();
    assert_eq!(counts(&there, RESOURCE), Some((2, 2)));
    add(&mut there, RESOURCE, healthy(&[("Dev3", &[])]));
    assert_eq!(counts(&there, RESOURCE), Some((1, 1)));
    there.disconnected(RESOURCE, moment());
    there.registered(RESOURCE, PluginOptions::default());
    assert_eq!(counts(&there, RESOURCE), Some((1, 0)), "it had gone");
}

#[test]
fn a_plugin_counts_once_it_has_registered_and_listed_or_gone_without_a_list() {
    let mut there = DeviceInventory::default();
    assert_eq!(there.listed(RESOURCE, three(&[])), Ok(ids(&[])));
    assert_eq!(there, DeviceInventory::EMPTY);
    there.registered(RESOURCE, PluginOptions::default());
    assert_eq!(counts(&there, RESOURCE), None);
    assert!(there.resource(RESOURCE).is_none());
    assert_eq!(there.options(RESOURCE), Some(PluginOptions::default()));
    there.disconnected(RESOURCE, moment());
    assert_eq!(counts(&there, RESOURCE), Some((0, 0)), "none can be used");
    assert_eq!(
        there.listed(RESOURCE, three(&[])),
        Ok(ids(&["Device1", "Device2", "Device3"]))
    );
    assert_eq!(counts(&there, RESOURCE), Some((3, 0)), "it is gone again");
}

/// Upstream's TestGetAllocatableDevicesMultipleResources, TestGetAllocatableDevicesHealthTransition and
/// TestResourceDeviceInstanceFilter.
#[test]
fn the_devices_that_can_be_used_are_those_that_are_listed_as_healthy() {
    let usable = |inventory: &DeviceInventory, resource: &str| {
        let known = inventory.resource(resource).unwrap();
        let usable: Vec<String> = known.healthy().map(|(id, _)| id.to_owned()).collect();
        assert!(usable.iter().all(|id| known.is_healthy(id)));
        assert!(!known.is_healthy("Device4"));
        usable
    };
    let mut there = DeviceInventory::default();
    add(&mut there, RESOURCE, three(&["Device3"]));
    add(&mut there, OTHER_RESOURCE, healthy(&[("R2Device1", &[])]));
    assert_eq!(usable(&there, RESOURCE), ["Device1", "Device2"]);
    assert_eq!(usable(&there, OTHER_RESOURCE), ["R2Device1"]);
    assert_eq!(there.resources().count(), 2);
    there.listed(RESOURCE, three(&[])).unwrap();
    assert_eq!(usable(&there, RESOURCE), ["Device1", "Device2", "Device3"]);
    there.disconnected(RESOURCE, moment());
    assert_eq!(usable(&there, RESOURCE), Vec::<String>::new());
    let known = there.resource(RESOURCE).unwrap();
    assert_eq!(known.presence(), PluginPresence::Gone { since: moment() });
}

/// Upstream's TestFeatureGateResourceHealthStatus: which pods hear of it is `holders`.
#[test]
fn a_list_tells_whose_health_has_changed_and_who_is_new() {
    let mut there = DeviceInventory::default();
    there.registered(RESOURCE, PluginOptions::default());
    for (listed, changed) in [
        (three(&[]), ids(&["Device1", "Device2", "Device3"])),
        (three(&[]), ids(&[])),
        (three(&["Device2"]), ids(&["Device2"])),
        (vec![device("Device1", "Healthy", &[])], ids(&[])),
        (three(&["Device2"]), ids(&["Device2", "Device3"])),
        (three(&[]), ids(&["Device2"])),
    ] {
        assert_eq!(there.listed(RESOURCE, listed), Ok(changed));
    }
}

#[test]
fn a_list_that_is_none_is_refused_by_name_and_changes_nothing() {
    let mut there = inventory(&[(RESOURCE, &[("Dev1", &[])])]);
    let before = there.clone();
    let long = "x".repeat(1025);
    for (listed, why) in [
        (
            healthy(&[("a", &[]), ("", &[])]),
            "domain1.com/resource1 lists a device without an id",
        ),
        (
            healthy(&[("a", &[]), ("b", &[]), ("a", &[1])]),
            "domain1.com/resource1 lists device \"a\" twice",
        ),
        (
            healthy(&[("a\nb", &[])]),
            "domain1.com/resource1 lists device \"a\\nb\", whose id has control characters",
        ),
        (
            healthy(&[(&long, &[])]),
            "domain1.com/resource1 lists a device whose id has 1025 bytes, more than 1024",
        ),
        (
            (0..=100_000)
                .map(|id| device(&id.to_string(), "Healthy", &[]))
                .collect(),
            "domain1.com/resource1 lists 100001 devices, more than 100000",
        ),
    ] {
        let refused = there.listed(RESOURCE, listed).unwrap_err();
        assert_eq!(refused.to_string(), why);
        assert!(refused.transient());
        assert_eq!(there, before);
    }
}

#[test]
fn ten_thousand_devices_are_fine_and_nodes_that_no_machine_has_are_passed_over() {
    let devices = (0..10_000).map(|id| device(&format!("dev-{id}"), "Healthy", &[-1, 0, 64, 1]));
    let mut there = DeviceInventory::default();
    add(&mut there, RESOURCE, devices.collect());
    assert_eq!(counts(&there, RESOURCE), Some((10_000, 10_000)));
    let known = there.resource(RESOURCE).unwrap();
    assert!(
        known
            .devices()
            .values()
            .all(|device| device.nodes == mask(&[0, 1]))
    );
}

/// Upstream's TestUpdatePluginResources.
#[test]
fn a_pod_that_holds_devices_fits_though_its_plugin_has_failed() {
    let amounts = |list: &[(&str, &str)]| requests::read(Some(&quantities(list)));
    let value = |amounts: &ResourceAmounts, name: &str| amounts.get(name).map(|it| it.value());
    let held = held(&[
        ("a", "app", RESOURCE, &["dev1"]),
        ("b", "app", OTHER_RESOURCE, &["dev2"]),
    ]);
    for (pod, expected) in [("a", Some(1)), ("stranger", None)] {
        let mut allocatable = amounts(&[(OTHER_RESOURCE, "2")]);
        cover_held(&mut allocatable, &held, &pod.into());
        assert_eq!(value(&allocatable, RESOURCE), expected, "{pod}");
        assert_eq!(value(&allocatable, OTHER_RESOURCE), Some(2), "{pod}");
    }
    let mut too_few = amounts(&[(RESOURCE, "0"), (OTHER_RESOURCE, "0")]);
    cover_held(&mut too_few, &held, &"b".into());
    let numbers: Vec<i64> = too_few.values().map(|amount| amount.value()).collect();
    assert_eq!(numbers, [1, 1]);
}
