//! Devices of init containers are used again, those of sidecars are not.

use super::*;
use crate::topology::ResourceHints;

/// Assigns to all containers in their order.
fn all(pod: Pod, inventory: DeviceInventory) -> BTreeMap<String, BTreeSet<String>> {
    let mut rig = Rig::new(pod, inventory);
    let containers = rig.pod.all_containers();
    let names: Vec<String> = containers
        .map(|(_, container)| container.name.clone())
        .collect();
    for name in names {
        let assigned = rig.assign(&name, None).unwrap();
        rig.assigned.assign(&name, assigned);
    }
    let containers = rig.assigned.containers.into_iter();
    containers
        .map(|(name, mut own)| (name, own.devices.remove(RESOURCE).unwrap()))
        .collect()
}

/// Upstream's TestInitContainerDeviceAllocation.
#[test]
fn devices_of_init_containers_go_to_containers_that_start_later() {
    let web = init_asks(pod("web"), "init1", &[(RESOURCE, "1")]);
    let web = init_asks(web, "init2", &[(RESOURCE, "2")]);
    let both = [(RESOURCE, "1"), (OTHER_RESOURCE, "1")];
    let web = asks(asks(web, "app1", &both), "app2", &both);
    let given = all(
        web,
        inventory(&[
            (RESOURCE, &[("dev1", &[]), ("dev2", &[])]),
            (OTHER_RESOURCE, &[("dev3", &[0]), ("dev4", &[0])]),
        ]),
    );
    assert_eq!(given["init1"].len(), 1);
    assert_eq!(given["init2"], ids(&["dev1", "dev2"]));
    assert_eq!((given["app1"].len(), given["app2"].len()), (1, 1));
    assert!(given["app1"].is_disjoint(&given["app2"]));
}

/// Upstream's TestRestartableInitContainerDeviceAllocation.
#[test]
fn sidecars_keep_their_devices_to_themselves() {
    let web = init_asks(pod("web"), "init", &[(RESOURCE, "3")]);
    let web = sidecar_asks(web, "sidecar1", &[(RESOURCE, "1")]);
    let web = sidecar_asks(web, "sidecar2", &[(RESOURCE, "2")]);
    let web = asks(web, "app1", &[(RESOURCE, "1")]);
    let web = asks(web, "app2", &[(RESOURCE, "2")]);
    let six: Vec<(&str, &[i64])> = ["dev1", "dev2", "dev3", "dev4", "dev5", "dev6"]
        .map(|id| (id, &[][..]))
        .into();
    let given = all(web, inventory(&[(RESOURCE, &six)]));
    let counts = ["init", "sidecar1", "sidecar2", "app1", "app2"].map(|name| given[name].len());
    assert_eq!(counts, [3, 1, 2, 1, 2]);
    assert!(given["sidecar1"].is_subset(&given["init"]));
    assert!(given["sidecar2"].is_subset(&given["init"]));
    let lasting = ["sidecar1", "sidecar2", "app1", "app2"];
    let together: BTreeSet<&String> = lasting.iter().flat_map(|name| &given[*name]).collect();
    assert_eq!(together.len(), 6, "no two have one device");
}

#[test]
fn a_device_that_can_no_longer_be_used_is_not_used_again() {
    let web = asks(pod("web"), "app", &[(RESOURCE, "1")]).init("setup");
    let mut there = DeviceInventory::default();
    let listed = vec![
        device("dev1", "Unhealthy", &[0]),
        device("dev2", "Healthy", &[1]),
    ];
    add(&mut there, RESOURCE, listed);
    let mut rig = Rig::new(web, there);
    let gone = AssignedResources {
        devices: [(RESOURCE.to_owned(), ids(&["dev1"]))].into(),
        ..AssignedResources::default()
    };
    rig.assigned.assign("setup", gone);
    assert_eq!(rig.ids("app", RESOURCE, None), ids(&["dev2"]));
    let hints = rig.provider.hints(&rig.request(), rig.container("app"));
    let hint = |nodes: &[i64], preferred| TopologyHint {
        nodes: Some(mask(nodes)),
        preferred,
    };
    let expected = ResourceHints::Possible(vec![hint(&[1], true), hint(&[0, 1], false)]);
    assert_eq!(hints[RESOURCE], expected);
}
