//! From which nodes devices could come.

use super::*;
use crate::topology::{ProviderHints, ResourceHints};

/// Hints as a table shows them: nodes, and whether they are preferred; none is no preference.
type Shown = Vec<(String, Option<Vec<(NumaMask, bool)>>)>;

/// The same as a case has them.
type Expected<'a> = &'a [(&'a str, Option<&'a [(&'a [i64], bool)]>)];

struct Case<'a> {
    what: &'a str,
    pod: Pod,
    devices: &'a [(&'a str, Listed<'a>)],
    held: &'a [(&'a str, &'a str, &'a str, &'a [&'a str])],
    expected: Expected<'a>,
}

const EITHER: &[(&[i64], bool)] = &[(&[0], true), (&[1], true), (&[0, 1], false)];
const ACROSS: &[(&[i64], bool)] = &[(&[0, 1], false)];
const NOWHERE: &[(&[i64], bool)] = &[];
const IN_TURN: Listed<'_> = &[
    ("Dev1", &[0]),
    ("Dev2", &[1]),
    ("Dev3", &[0]),
    ("Dev4", &[1]),
];
const IN_PAIRS: Listed<'_> = &[
    ("Dev1", &[0]),
    ("Dev2", &[0]),
    ("Dev3", &[1]),
    ("Dev4", &[1]),
];

fn shown(hints: &ProviderHints) -> Shown {
    let show = |hints: &ResourceHints| match hints {
        ResourceHints::NoPreference => None,
        ResourceHints::Possible(hints) => {
            let hints = hints.iter();
            Some(
                hints
                    .map(|hint| (hint.nodes.unwrap(), hint.preferred))
                    .collect(),
            )
        }
    };
    let hints = hints.iter();
    hints
        .map(|(name, hints)| (name.clone(), show(hints)))
        .collect()
}

fn expect(expected: Expected<'_>) -> Shown {
    let hints = |hints: &[(&[i64], bool)]| hints.iter().map(|(n, p)| (mask(n), *p)).collect();
    let expected = expected.iter();
    expected
        .map(|(name, list)| ((*name).to_owned(), list.map(hints)))
        .collect()
}

fn one_container(amounts: &[(&str, &str)]) -> Pod {
    asks(pod("fake"), "app", amounts)
}

/// A container that asks for so many devices of one resource.
fn case(
    what: &'static str,
    count: &'static str,
    devices: &'static [(&'static str, Listed<'static>)],
    held: &'static [(
        &'static str,
        &'static str,
        &'static str,
        &'static [&'static str],
    )],
    expected: Expected<'static>,
) -> Case<'static> {
    Case {
        what,
        pod: one_container(&[("testdevice", count)]),
        devices,
        held,
        expected,
    }
}

/// Upstream's cases for a container, which are the same for a pod of one: nothing is held yet.
fn free_cases() -> Vec<Case<'static>> {
    vec![
        case(
            "no alignment",
            "1",
            &[("testdevice", &[("Dev1", &[]), ("Dev2", &[])])],
            &[],
            &[("testdevice", None)],
        ),
        case(
            "only one with alignment",
            "1",
            &[("testdevice", &[("Dev1", &[]), ("Dev2", &[1])])],
            &[],
            &[("testdevice", Some(&[(&[1], true)]))],
        ),
        case(
            "one device a node",
            "1",
            &[("testdevice", &[("Dev1", &[0]), ("Dev2", &[1])])],
            &[],
            &[("testdevice", Some(EITHER))],
        ),
        case(
            "two of one device a node",
            "2",
            &[("testdevice", &[("Dev1", &[0]), ("Dev2", &[1])])],
            &[],
            &[("testdevice", Some(&[(&[0, 1], true)]))],
        ),
        case(
            "two of two devices a node",
            "2",
            &[("testdevice", IN_TURN)],
            &[],
            &[("testdevice", Some(EITHER))],
        ),
        case(
            "two that would fit on one node, forced across",
            "2",
            &[("testdevice", IN_TURN)],
            &[("fake-uid", "other", "testdevice", &["Dev1", "Dev2"])],
            &[("testdevice", Some(ACROSS))],
        ),
        Case {
            what: "two resources",
            pod: one_container(&[("testdevice1", "2"), ("testdevice2", "1")]),
            devices: &[("testdevice1", IN_TURN), ("testdevice2", &[("Dev1", &[0])])],
            held: &[],
            expected: &[
                ("testdevice1", Some(EITHER)),
                ("testdevice2", Some(&[(&[0], true)])),
            ],
        },
    ]
}

/// Its cases where there are too few, or the container holds some.
fn held_cases() -> Vec<Case<'static>> {
    vec![
        case(
            "more than there are",
            "6",
            &[("testdevice", IN_PAIRS)],
            &[],
            &[("testdevice", Some(NOWHERE))],
        ),
        case(
            "all held already",
            "2",
            &[("testdevice", &[("Dev1", &[0]), ("Dev2", &[0])])],
            &[("fake-uid", "app", "testdevice", &["Dev1", "Dev2"])],
            &[("testdevice", Some(&[(&[0], true)]))],
        ),
        case(
            "fewer held than asked for",
            "4",
            &[("testdevice", IN_PAIRS)],
            &[("fake-uid", "app", "testdevice", &["Dev1", "Dev2"])],
            &[("testdevice", Some(NOWHERE))],
        ),
        case(
            "more held than asked for",
            "2",
            &[("testdevice", IN_PAIRS)],
            &[(
                "fake-uid",
                "app",
                "testdevice",
                &["Dev1", "Dev2", "Dev3", "Dev4"],
            )],
            &[("testdevice", Some(NOWHERE))],
        ),
    ]
}

/// Upstream's further cases for a pod.
fn pod_cases() -> Vec<Case<'static>> {
    let devices: &[(&str, Listed<'_>)] = &[("testdevice1", IN_PAIRS), ("testdevice2", IN_PAIRS)];
    let one_each = || {
        let pod = asks(
            pod("fake"),
            "a",
            &[("testdevice1", "1"), ("testdevice2", "1")],
        );
        let pod = asks(pod, "b", &[("testdevice1", "1"), ("testdevice2", "1")]);
        asks(pod, "c", &[("notRegistered", "1")])
    };
    let with_init = || {
        let pod = init_asks(
            one_each(),
            "x",
            &[("testdevice1", "1"), ("testdevice2", "1")],
        );
        init_asks(pod, "y", &[("testdevice1", "1"), ("testdevice2", "2")])
    };
    let app_only = || {
        let pod = asks(pod("fake"), "a", &[("testdevice1", "2")]);
        asks(
            asks(pod, "b", &[("testdevice2", "2")]),
            "c",
            &[("notRegistered", "2")],
        )
    };
    let either: Expected<'_> = &[("testdevice1", Some(EITHER)), ("testdevice2", Some(EITHER))];
    vec![
        Case {
            what: "app containers only",
            pod: app_only(),
            devices,
            held: &[],
            expected: either,
        },
        Case {
            what: "init containers too",
            pod: with_init(),
            devices,
            held: &[],
            expected: either,
        },
        Case {
            what: "what would fit on one node, forced across",
            pod: one_each(),
            devices,
            held: &[
                ("other", "app", "testdevice1", &["Dev1", "Dev3"]),
                ("other", "app", "testdevice2", &["Dev1", "Dev3"]),
            ],
            expected: &[("testdevice1", Some(ACROSS)), ("testdevice2", Some(ACROSS))],
        },
    ]
}

/// Upstream's TestGetTopologyHints.
#[test]
fn a_containers_hints_are_the_nodes_with_enough_free_devices() {
    for case in free_cases().into_iter().chain(held_cases()) {
        let rig = Rig::new(case.pod, inventory(case.devices)).holding(held(case.held));
        let hints = rig.provider.hints(&rig.request(), rig.container("app"));
        assert_eq!(shown(&hints), expect(case.expected), "{}", case.what);
    }
}

/// Upstream's TestGetPodTopologyHints. A pod's other container counts with it.
#[test]
fn a_pods_hints_are_the_nodes_with_enough_free_devices_for_all_containers() {
    let common = free_cases().into_iter().chain(held_cases());
    let common = common.filter(|case| case.held.iter().all(|held| held.1 == "app"));
    for case in common.chain(pod_cases()) {
        let rig = Rig::new(case.pod, inventory(case.devices)).holding(held(case.held));
        let hints = rig.provider.pod_hints(&rig.request());
        assert_eq!(shown(&hints), expect(case.expected), "{}", case.what);
    }
    let across = &[("fake-uid", "other", "testdevice", &["Dev1", "Dev2"][..])];
    let pod = one_container(&[("testdevice", "2")]);
    let rig = Rig::new(pod, inventory(&[("testdevice", IN_TURN)])).holding(held(across));
    let kept: Expected<'_> = &[("testdevice", Some(ACROSS))];
    assert_eq!(shown(&rig.provider.pod_hints(&rig.request())), expect(kept));
}

/// Upstream's TestGetPodDeviceRequest.
#[test]
fn a_pod_asks_for_the_most_that_its_containers_need_at_once() {
    let system = |count: &'static str| vec![("cpu", "2"), ("memory", "1G"), ("gpu", count)];
    let both = |gpu: &'static str, nic: &'static str| [system(gpu), vec![("nic", nic)]].concat();
    let inits = |amounts: &[Vec<(&str, &str)>], mut pod: Pod| {
        for (index, amounts) in amounts.iter().enumerate() {
            pod = init_asks(pod, &format!("init-{index}"), amounts);
        }
        pod
    };
    let apps = |amounts: &[Vec<(&str, &str)>], mut pod: Pod| {
        for (index, amounts) in amounts.iter().enumerate() {
            pod = asks(pod, &format!("app-{index}"), amounts);
        }
        pod
    };
    for (inits_ask, apps_ask, expected) in [
        (vec![], vec![], vec![]),
        (vec![system("2")], vec![], vec![("gpu", 2)]),
        (vec![system("2"), system("4")], vec![], vec![("gpu", 4)]),
        (vec![], vec![system("2")], vec![("gpu", 2)]),
        (
            vec![both("2", "2"), both("2", "2")],
            vec![both("1", "1"), both("1", "1")],
            vec![("gpu", 2), ("nic", 2)],
        ),
        (
            vec![both("2", "1"), both("3", "2")],
            vec![both("1", "1"), system("1")],
            vec![("gpu", 3), ("nic", 2)],
        ),
        (
            vec![both("2", "1"), both("2", "1")],
            vec![both("3", "2"), both("3", "2")],
            vec![("gpu", 6), ("nic", 4)],
        ),
    ] {
        let asked = inits(&inits_ask, apps(&apps_ask, pod("web")));
        let rig = Rig::new(asked, inventory(&[("gpu", &[]), ("nic", &[])]));
        let counts = super::super::demand::of_pod(&rig.request());
        let counts: Vec<_> = counts.iter().map(|(n, c)| (n.as_str(), *c)).collect();
        assert_eq!(counts, expected, "{inits_ask:?} {apps_ask:?}");
    }
}
