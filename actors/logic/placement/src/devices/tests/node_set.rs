//! Only nodes that have devices are looked at, and that suits other providers.

use super::super::hints::{Offer, generate};
use super::*;
use crate::topology::{NumaTopology, PolicyOptions, ResourceHints, TopologyPolicy};

/// The machine's nodes, the devices, those available and reusable, how many are asked for, and the hints.
type Case<'a> = (
    &'a [i64],
    Listed<'a>,
    Offered<'a>,
    usize,
    Vec<(NumaMask, bool)>,
);
type Offered<'a> = (&'a [&'a str], &'a [&'a str]);

fn generated(
    machine: &[i64],
    devices: Listed<'_>,
    (available, reusable): Offered<'_>,
    asked: usize,
) -> Vec<(NumaMask, bool)> {
    let inventory = inventory(&[("gpu", devices)]);
    let offer = Offer {
        available: ids(available),
        reusable: ids(reusable),
    };
    let resource = inventory.resource("gpu").unwrap();
    let hints = generate(resource, mask(machine), &offer, asked);
    let hints = hints.into_iter();
    hints
        .map(|hint| (hint.nodes.unwrap(), hint.preferred))
        .collect()
}

/// Upstream's TestDeviceNUMANodes and TestGenerateDeviceTopologyHintsFiltersNUMANodes.
#[test]
fn only_nodes_of_the_machine_that_have_devices_are_looked_at() {
    let many: Vec<i64> = (0..34).collect();
    let one = |nodes: &[i64]| (mask(nodes), true);
    let cases: [Case<'_>; 10] = [
        (
            &[0, 3, 5, 7],
            &[("a", &[3]), ("b", &[5])],
            (&["a", "b"], &[]),
            1,
            vec![one(&[3]), one(&[5]), (mask(&[3, 5]), false)],
        ),
        (
            &[0, 4],
            &[("a", &[4]), ("b", &[])],
            (&["a", "b"], &[]),
            1,
            vec![one(&[4])],
        ),
        (
            &[0],
            &[("a", &[]), ("b", &[])],
            (&["a", "b"], &[]),
            1,
            vec![],
        ),
        (
            &[0, 1],
            &[("a", &[0]), ("b", &[63])],
            (&["a", "b"], &[]),
            1,
            vec![one(&[0])],
        ),
        (&[0, 1], &[("a", &[0])], (&["a"], &[]), 1, vec![one(&[0])]),
        (
            &many,
            &[("gpu0", &[0]), ("gpu1", &[1])],
            (&["gpu0", "gpu1"], &[]),
            1,
            vec![one(&[0]), one(&[1]), (mask(&[0, 1]), false)],
        ),
        (
            &[0, 1],
            &[("a", &[0]), ("b", &[1])],
            (&["a", "b"], &[]),
            1,
            vec![one(&[0]), one(&[1]), (mask(&[0, 1]), false)],
        ),
        (
            &[0, 1, 2, 3],
            &[("a", &[0])],
            (&[], &["a"]),
            1,
            vec![one(&[0])],
        ),
        (
            &[0, 1, 2, 3],
            &[("a", &[0]), ("b", &[1])],
            (&["b"], &["a"]),
            2,
            vec![one(&[0, 1])],
        ),
        (
            &[0, 1],
            &[("a", &[0]), ("b", &[1]), ("c", &[])],
            (&["b"], &["a", "c"]),
            1,
            vec![one(&[0]), (mask(&[0, 1]), false)],
        ),
    ];
    for (machine, devices, offer, asked, expected) in cases {
        assert_eq!(
            generated(machine, devices, offer, asked),
            expected,
            "{devices:?} on {machine:?}"
        );
    }
}

/// Upstream's TestFilteredDeviceHintsMergeWithOtherProviders.
#[test]
fn hints_for_fewer_nodes_merge_with_those_of_other_resources() {
    for (machine, node) in [([0, 1], 0), ([0, 1], 1), ([3, 7], 7)] {
        let rig = Rig::new(
            asks(pod("web"), "app", &[("gpu", "1")]),
            inventory(&[("gpu", &[("gpu0", &[node])])]),
        );
        let rig = rig.on(&machine);
        let hint = |nodes: &[i64], preferred| TopologyHint {
            nodes: Some(mask(nodes)),
            preferred,
        };
        let other = |name: &str| {
            let hints = vec![hint(&[node], true), hint(&machine, false)];
            BTreeMap::from([(name.to_owned(), ResourceHints::Possible(hints))])
        };
        let devices = rig.provider.hints(&rig.request(), rig.container("app"));
        let providers = [devices, other("cpu"), other("memory")];
        let distances = machine.map(|id| (NumaNodeId::new(id).unwrap(), BTreeMap::new()));
        let numa = NumaTopology {
            distances: distances.into(),
        };
        for policy in [TopologyPolicy::BestEffort, TopologyPolicy::Restricted] {
            let best = policy.merge(&providers, &numa, PolicyOptions::default());
            assert_eq!(best, hint(&[node], true), "{machine:?} {policy:?}");
        }
    }
}
