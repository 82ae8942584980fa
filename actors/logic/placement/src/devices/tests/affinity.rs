//! Devices near the hint's nodes are given first, and plugins have a say.

use super::super::choice::{AffinityGroups, by_affinity};
use super::*;

/// Upstream's TestFilterByAffinity.
#[test]
fn devices_are_grouped_by_whether_they_lie_at_the_nodes() {
    let devices: Listed<'_> = &[
        ("dev1", &[1]),
        ("dev2", &[1, 2]),
        ("dev3", &[2]),
        ("dev4", &[2]),
        ("dev5", &[]),
    ];
    let there = inventory(&[("res1", devices)]);
    let resource = there.resource("res1").unwrap();
    let group = |available: &[&str], affinity| by_affinity(resource, &ids(available), affinity);
    let groups = |aligned: &[&str], unaligned: &[&str], unplaced: &[&str]| AffinityGroups {
        aligned: ids(aligned),
        unaligned: ids(unaligned),
        unplaced: ids(unplaced),
    };
    let at_two = Some(mask(&[2]));
    for (available, affinity, expected) in [
        (
            &["dev1", "dev2"][..],
            at_two,
            groups(&["dev2"], &["dev1"], &[]),
        ),
        (
            &["dev1", "dev2", "dev3", "dev4"],
            at_two,
            groups(&["dev2", "dev3", "dev4"], &["dev1"], &[]),
        ),
        (
            &["dev1", "dev3", "dev5"],
            at_two,
            groups(&["dev3"], &["dev1"], &["dev5"]),
        ),
        (&["dev1", "dev3"], None, groups(&[], &[], &["dev1", "dev3"])),
    ] {
        assert_eq!(group(available, affinity), expected, "{available:?}");
    }
}

/// How many devices lie at each node.
type Alignment<'a> = &'a [(u8, usize)];

/// How many of the devices lie first of all at each node.
fn alignment(inventory: &DeviceInventory, given: &BTreeSet<String>) -> Vec<(u8, usize)> {
    let mut counts = BTreeMap::new();
    for id in given {
        let device = inventory.resource(RESOURCE).unwrap().devices()[id];
        if let Some(node) = device.nodes.nodes().next() {
            *counts.entry(node.get()).or_default() += 1;
        }
    }
    counts.into_iter().collect()
}

/// Upstream's TestTopologyAlignedAllocation without preferences of a plugin.
#[test]
fn devices_at_the_hints_nodes_are_given_first() {
    let eight: Listed<'_> = &[
        ("Dev1", &[0]),
        ("Dev2", &[1]),
        ("Dev3", &[2]),
        ("Dev4", &[3]),
        ("Dev5", &[0]),
        ("Dev6", &[1]),
        ("Dev7", &[2]),
        ("Dev8", &[3]),
    ];
    let six: Listed<'_> = &[
        ("Dev1", &[0]),
        ("Dev2", &[1]),
        ("Dev3", &[0]),
        ("Dev4", &[1]),
        ("Dev5", &[0]),
        ("Dev6", &[1]),
    ];
    let cases: [(&str, Listed<'_>, &[i64], Alignment<'_>); 9] = [
        ("1", &[("Dev1", &[]), ("Dev2", &[])], &[0, 1], &[]),
        ("1", &[("Dev1", &[]), ("Dev2", &[1])], &[1], &[(1, 1)]),
        ("1", &six[..2], &[0], &[(0, 1)]),
        ("1", &six[..2], &[1], &[(1, 1)]),
        ("2", &six[..4], &[0], &[(0, 2)]),
        ("2", &six[..4], &[1], &[(1, 2)]),
        ("4", six, &[0], &[(0, 3), (1, 1)]),
        ("4", six, &[1], &[(0, 1), (1, 3)]),
        ("4", eight, &[1, 3], &[(1, 2), (3, 2)]),
    ];
    for (count, devices, hint, expected) in cases {
        let asked = asks(pod("web"), "app", &[(RESOURCE, count)]);
        let rig = Rig::new(asked, inventory(&[(RESOURCE, devices)]));
        let given = rig.ids("app", RESOURCE, Some(mask(hint)));
        assert_eq!(given.len().to_string(), count);
        assert_eq!(
            alignment(&rig.inventory, &given),
            expected,
            "{count} of {devices:?}"
        );
    }
}

/// The question that a plugin has to answer before the container gets its devices.
fn question(rig: &Rig, nodes: Option<NumaMask>) -> PreferenceQuestion {
    match rig.assign("app", nodes) {
        Err(AssignmentError::Undecided(mut questions)) if questions.len() == 1 => {
            questions.remove(0)
        }
        other => panic!("{other:?}"),
    }
}

/// The rest of TestTopologyAlignedAllocation: a plugin prefers some.
#[test]
fn what_a_plugin_prefers_is_given_unless_it_may_not_be() {
    let names: Vec<String> = (0..200).map(|id| format!("Dev{id}")).collect();
    let devices = |split: usize, first: &'static [i64], count: usize| -> Vec<(&str, &[i64])> {
        let node = |index: usize| if index < split { first } else { &[1] };
        let names = names[..count].iter().enumerate();
        names
            .map(|(index, id)| (id.as_str(), node(index)))
            .collect()
    };
    let halves = devices(100, &[0], 200);
    let one_node = devices(0, &[0], 100);
    let three_first = devices(3, &[0], 100);
    let cases: [(Listed<'_>, i64, [&str; 5], usize, Alignment<'_>); 5] = [
        (
            &halves,
            0,
            ["Dev0", "Dev19", "Dev83", "Dev42", "Dev77"],
            5,
            &[(0, 5)],
        ),
        (
            &halves,
            0,
            ["Dev0", "Dev19", "Dev83", "Dev150", "Dev186"],
            3,
            &[(0, 5)],
        ),
        (
            &one_node,
            1,
            ["Dev0", "Dev19", "Dev83", "bogus0", "bogus1"],
            3,
            &[(1, 5)],
        ),
        (
            &three_first,
            0,
            ["Dev0", "Dev1", "Dev2", "Dev42", "Dev83"],
            5,
            &[(0, 3), (1, 2)],
        ),
        (
            &three_first,
            0,
            ["Dev0", "Dev1", "Dev2", "Dev42", "bogus0"],
            4,
            &[(0, 3), (1, 2)],
        ),
    ];
    for (devices, node, preferred, taken, expected) in cases {
        let asked = asks(pod("web"), "app", &[(RESOURCE, "5")]);
        let mut rig = Rig::new(asked, asking(devices));
        let nodes = Some(mask(&[node]));
        let question = question(&rig, nodes);
        rig.preferences.insert(question, Ok(ids(&preferred)));
        let given = rig.ids("app", RESOURCE, nodes);
        assert_eq!(given.len(), 5);
        assert!(
            preferred[..taken].iter().all(|id| given.contains(*id)),
            "{given:?}"
        );
        assert_eq!(alignment(&rig.inventory, &given), expected);
    }
}

#[test]
fn a_plugin_is_not_asked_where_there_is_nothing_to_choose() {
    let asked = asks(pod("web"), "app", &[(RESOURCE, "1")]);
    let devices: Listed<'_> = &[("Dev1", &[1]), ("Dev2", &[0])];
    let rig = Rig::new(asked, asking(devices));
    assert_eq!(
        rig.ids("app", RESOURCE, Some(mask(&[0]))),
        ids(&["Dev2"]),
        "one is aligned, and one is needed"
    );
}

#[test]
fn a_plugin_that_fails_to_answer_fails_the_container() {
    let asked = asks(pod("web"), "app", &[(RESOURCE, "1")]);
    let mut rig = Rig::new(asked, asking(&[("Dev1", &[]), ("Dev2", &[])]));
    let question = question(&rig, None);
    rig.preferences.insert(question, Err("it hangs".to_owned()));
    assert_eq!(
        rig.refusal("app"),
        "device plugin GetPreferredAllocation rpc failed with err: it hangs"
    );
}

/// Upstream's TestGetPreferredAllocationParameters. An init container has had the devices that can be used again.
#[test]
fn a_plugin_is_asked_about_what_is_free_and_what_the_container_gets_anyway() {
    let node = |id: usize, split: usize| if id < split { &[0][..] } else { &[1] };
    const NAMES: [&str; 8] = [
        "Dev0", "Dev1", "Dev2", "Dev3", "Dev4", "Dev5", "Dev6", "Dev7",
    ];
    let devices = |count: usize, split: usize| -> Vec<(&str, &[i64])> {
        let names = NAMES[..count].iter().enumerate();
        names.map(|(id, name)| (*name, node(id, split))).collect()
    };
    type Case<'a> = (
        &'a str,
        usize,
        usize,
        &'a [&'a str],
        &'a [&'a str],
        &'a [&'a str],
        &'a [&'a str],
    );
    let cases: [Case<'_>; 5] = [
        ("1", 4, 4, &[], &[], &NAMES[..4], &[]),
        ("4", 8, 8, &[], &["Dev0", "Dev5"], &NAMES, &["Dev0", "Dev5"]),
        (
            "4",
            8,
            8,
            &["Dev4", "Dev1"],
            &["Dev0", "Dev5"],
            &["Dev0", "Dev2", "Dev3", "Dev5", "Dev6", "Dev7"],
            &["Dev0", "Dev5"],
        ),
        (
            "6",
            8,
            4,
            &[],
            &["Dev1", "Dev6"],
            &NAMES,
            &["Dev0", "Dev1", "Dev2", "Dev3", "Dev6"],
        ),
        (
            "6",
            8,
            4,
            &["Dev0", "Dev7"],
            &["Dev1", "Dev6"],
            &NAMES[1..7],
            &["Dev1", "Dev2", "Dev3", "Dev6"],
        ),
    ];
    for (count, all, split, in_use, reusable, available, must_include) in cases {
        let asked = asks(pod("web"), "app", &[(RESOURCE, count)]).init("setup");
        let mut rig = Rig::new(asked, asking(&devices(all, split)));
        rig.held = held(&[("other", "app", RESOURCE, in_use)]);
        let setup = AssignedResources {
            devices: [(RESOURCE.to_owned(), ids(reusable))].into(),
            ..AssignedResources::default()
        };
        rig.assigned.assign("setup", setup);
        let expected = PreferenceQuestion {
            resource: RESOURCE.to_owned(),
            available: ids(available),
            must_include: ids(must_include),
            size: count.parse().unwrap(),
        };
        assert_eq!(
            question(&rig, Some(mask(&[0]))),
            expected,
            "{count} beside {in_use:?}"
        );
    }
}
