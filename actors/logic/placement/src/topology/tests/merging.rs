//! Hints of many resources become one.

use proptest::prelude::*;

use super::*;
use crate::topology::merge::{HintMerger, largest_least_count};
use crate::topology::policy_options::NumaOrder;

/// Upstream's TestMaxOfMinAffinityCounts.
#[test]
fn the_best_unpreferred_hint_has_as_many_nodes_as_the_neediest_resource_needs() {
    for (resources, expected) in [
        (&[][..], 0),
        (&[&[on(&[])][..]], 0),
        (&[&[on(&[0])]], 1),
        (&[&[on(&[0, 1])]], 2),
        (&[&[on(&[0, 1]), on(&[0, 1, 2])]], 2),
        (&[&[on(&[0, 1]), on(&[0, 1, 2])], &[on(&[0, 1, 2])]], 3),
        (
            &[
                &[on(&[0, 1]), on(&[0, 1, 2])],
                &[on(&[0, 1, 2]), on(&[0, 1, 2, 3])],
            ],
            3,
        ),
        (&[&[TopologyHint::ANYWHERE, off(&[0, 1])]], 2),
    ] {
        let resources: Vec<_> = resources.iter().map(|hints| hints.to_vec()).collect();
        assert_eq!(largest_least_count(&resources), expected, "{resources:?}");
    }
}

/// A merger for which the best hint that is not preferred has so many nodes.
fn merger(numa: &NumaTopology, order: NumaOrder, best: u8) -> HintMerger<'_> {
    let neediest: Vec<u8> = (0..best).collect();
    HintMerger::new(numa, order, &[vec![on(&neediest)]])
}

fn pair(hint: TopologyHint) -> (NumaMask, bool) {
    (hint.nodes.unwrap(), hint.preferred)
}

/// Asserts that the first of the two hints is the better one, whichever comes first.
fn assert_better(merger: &HintMerger<'_>, better: TopologyHint, other: TopologyHint) {
    for pairs in [[better, other], [other, better]] {
        let best = merger.best(pairs.into_iter().map(pair));
        assert_eq!(best, Some(pair(better)), "{better:?} beside {other:?}");
    }
}

/// Upstream's TestCompareHintsNarrowest.
#[test]
fn of_two_hints_one_is_better() {
    let numa = NumaTopology::default();
    // No hint without nodes is ever taken.
    let merging = merger(&numa, NumaOrder::Lowest, 1);
    for empty in [&[off(&[])][..], &[on(&[])], &[on(&[]), off(&[])]] {
        assert_eq!(merging.best(empty.iter().copied().map(pair)), None);
    }
    for first in [on(&[0]), off(&[0])] {
        let best = merging.best([first].into_iter().map(pair));
        assert_eq!(best, Some(pair(first)));
    }
    for (count, better, other) in [
        // A preferred one is better than any other, and of two the narrower one.
        (1, on(&[0]), off(&[0])),
        (1, on(&[0]), on(&[0, 1])),
        (2, on(&[0, 1, 2]), off(&[0, 1])),
        // Above the count the narrower one.
        (1, off(&[0, 1]), off(&[1, 2])),
        (1, off(&[0, 1]), off(&[0, 1, 2])),
        // At the count none but another one that has it.
        (2, off(&[0, 1]), off(&[0])),
        (2, off(&[0, 1]), off(&[1, 2])),
        (2, off(&[1, 2]), off(&[0, 1, 2])),
        // Below it one that is not above it, and that comes closer.
        (2, off(&[0]), off(&[0, 1, 2])),
        (3, off(&[0, 1]), off(&[0])),
        (3, off(&[1, 2]), off(&[0])),
        (4, off(&[1, 2, 3]), off(&[0, 1])),
        (4, off(&[0, 1, 2]), off(&[1, 2, 3])),
    ] {
        assert_better(&merger(&numa, NumaOrder::Lowest, count), better, other);
    }
    // Equal ones stay equal.
    for (count, same) in [
        (1, on(&[0])),
        (1, off(&[0, 1])),
        (2, off(&[0, 1])),
        (4, off(&[0, 1, 2])),
    ] {
        assert_better(&merger(&numa, NumaOrder::Lowest, count), same, same);
    }
}

/// Upstream's TestClosest.
#[test]
fn of_as_many_nodes_the_closer_ones_are_better_then_the_lower_ones() {
    let (alike, four) = (machine(&[&[10; 4][..]; 4]), four_nodes());
    for (numa, better, other) in [
        (&NumaTopology::default(), on(&[0]), on(&[0, 2])),
        (&alike, on(&[0, 1]), on(&[0, 2])),
        (&alike, on(&[0, 2]), on(&[0, 3])),
        (&four, on(&[0, 1]), on(&[0, 3])),
        (&four, on(&[2, 3]), on(&[0, 3])),
    ] {
        assert_better(&merger(numa, NumaOrder::Closest, 1), better, other);
    }
    // Without the option only the numbers count.
    let lowest = merger(&four, NumaOrder::Lowest, 1);
    assert_better(&lowest, on(&[0, 3]), on(&[2, 3]));
}

/// Every combination of one hint a resource, one by one.
fn every_combination(resources: &[Vec<TopologyHint>], all: NumaMask) -> Vec<(NumaMask, bool)> {
    let mut combinations = vec![Vec::new()];
    for hints in resources {
        let with = |one: &Vec<TopologyHint>| {
            let one = one.clone();
            hints.iter().map(move |hint| [&one[..], &[*hint]].concat())
        };
        combinations = combinations.iter().flat_map(with).collect();
    }
    let join = |one: &Vec<TopologyHint>| {
        let named: Vec<NumaMask> = one.iter().filter_map(|hint| hint.nodes).collect();
        let agree = named.iter().all(|nodes| *nodes == named[0]);
        let nodes = named.iter().fold(all, |nodes, more| nodes & *more);
        (nodes, agree && one.iter().all(|hint| hint.preferred))
    };
    combinations.iter().map(join).collect()
}

fn hints() -> impl Strategy<Value = Vec<TopologyHint>> {
    let nodes = proptest::option::weighted(0.9, 1_u8..16);
    let set = |bits: u8| (0..4).filter(|id| bits >> id & 1 == 1).collect::<Vec<u8>>();
    let hint = (nodes, any::<bool>()).prop_map(move |(nodes, preferred)| TopologyHint {
        nodes: nodes.map(|bits| mask(&set(bits))),
        preferred,
    });
    proptest::collection::vec(hint, 0..6)
}

proptest! {
    #[test]
    fn equal_combinations_are_joined_and_the_best_stays_the_best(
        resources in proptest::collection::vec(hints(), 0..4),
        closest: bool,
    ) {
        let numa = four_nodes();
        let order = if closest { NumaOrder::Closest } else { NumaOrder::Lowest };
        let merger = HintMerger::new(&numa, order, &resources);
        let every = every_combination(&resources, numa.nodes());
        let (nodes, preferred) = merger.best(every.into_iter()).unwrap_or((numa.nodes(), false));
        let expected = TopologyHint { nodes: Some(nodes), preferred };
        prop_assert_eq!(merger.merge(&resources), expected);
    }

    #[test]
    fn the_order_of_resources_and_hints_decides_nothing(
        mut resources in proptest::collection::vec(hints(), 0..4),
    ) {
        let numa = four_nodes();
        let merge = |resources: &[Vec<TopologyHint>]| {
            HintMerger::new(&numa, NumaOrder::Closest, resources).merge(resources)
        };
        let before = merge(&resources);
        resources.reverse();
        resources.iter_mut().for_each(|hints| hints.reverse());
        prop_assert_eq!(merge(&resources), before);
    }
}

/// Four resources that could each come from any nodes of eight: upstream looks at four billion combinations.
#[test]
fn a_large_machine_is_merged_at_once() {
    let numa = eight_nodes();
    let hint = |nodes| TopologyHint {
        nodes: Some(nodes),
        preferred: false,
    };
    let hints: Vec<TopologyHint> = numa.nodes().subsets().map(hint).collect();
    let resources = vec![hints; 4];
    let merged = HintMerger::new(&numa, NumaOrder::Closest, &resources).merge(&resources);
    assert_eq!(merged, off(&[0]));
}
