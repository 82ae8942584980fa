//! Machines and the distances between their nodes.

use super::*;

/// Upstream's TestNUMAInfo: every machine with one to four nodes, whose distances matter only where closeness does.
#[test]
fn a_machine_has_the_nodes_that_it_names() {
    let rows: [&[u64]; 4] = [
        &[10, 11, 12, 12],
        &[11, 10, 12, 12],
        &[12, 12, 10, 11],
        &[12, 12, 11, 10],
    ];
    for nodes in 1..=4 {
        let known = machine(&rows[..nodes]);
        assert_eq!(known.nodes(), (0..).take(nodes).map(node).collect());
        assert_eq!(known.known_distances(), Ok(()));
        let unknown = machine(&vec![&[][..]; nodes]);
        assert_eq!(unknown.nodes(), known.nodes());
        assert_eq!(unknown.known_distances(), Err(DistancesUnknown(node(0))));
    }
}

/// Upstream's TestNUMAInfo, the nodes whose numbers do not begin at zero or are not next to each other.
#[test]
fn nodes_need_not_be_numbered_from_zero_nor_without_gaps() {
    let only = |kept: &[u8]| {
        let mut machine = four_nodes();
        machine.distances.retain(|id, _| kept.contains(&id.get()));
        machine
    };
    for kept in [&[1][..], &[0, 2]] {
        let machine = only(kept);
        assert_eq!(machine.nodes(), mask(kept));
        assert_eq!(machine.known_distances(), Ok(()));
    }
    assert_eq!(only(&[0, 2]).total_distance(mask(&[0, 2])), 44);
    let ninth = NumaTopology {
        distances: BTreeMap::from([(node(9), BTreeMap::new())]),
    };
    let error = ninth.known_distances().unwrap_err();
    assert_eq!(
        error.to_string(),
        "the distances of NUMA node 9 are unknown"
    );
}

/// Upstream's TestCalculateAvgDistanceFor. The sum takes the place of the average: only sets of one size are compared.
#[test]
fn the_distance_of_a_set_is_that_between_any_two_of_it() {
    for (machine, nodes, pairs, average) in [
        (machine(&[&[10]]), &[0][..], 1, 10.0),
        (two_nodes(), &[0], 1, 10.0),
        (two_nodes(), &[0, 1], 4, 10.5),
        (four_nodes(), &[0, 2], 4, 11.0),
        (four_nodes(), &[0, 2, 3], 9, 100.0 / 9.0),
        (NumaTopology::default(), &[], 1, 0.0),
    ] {
        let total = u32::try_from(machine.total_distance(mask(nodes))).unwrap();
        let found = f64::from(total) / f64::from(pairs);
        assert!((found - average).abs() < 1e-9, "{nodes:?}: {found}");
    }
}

#[test]
fn a_node_of_which_nothing_is_known_is_far_from_every_other() {
    let machine = machine(&[&[10], &[]]);
    assert_eq!(machine.total_distance(mask(&[0, 1])), 10 + 3 * 255);
}
