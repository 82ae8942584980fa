//! Sets of NUMA nodes.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

/// Upstream's TestNewEmptyiBitMask, TestNewBitMask, TestAdd, TestGetBits, TestCount and TestIsEmpty.
#[test]
fn a_set_has_the_nodes_that_are_put_into_it() {
    for (nodes, shown) in [
        (&[][..], "00"),
        (&[0], "01"),
        (&[1], "10"),
        (&[0, 1], "11"),
        (&[2], "0100"),
        (&[0, 63], &format!("1{}1", "0".repeat(62))),
    ] {
        let set = mask(nodes);
        assert_eq!(set.to_string(), shown);
        let (count, numbers): (usize, Vec<u8>) = (
            set.len().try_into().unwrap(),
            set.nodes().map(NumaNodeId::get).collect(),
        );
        assert_eq!((count, &*numbers), (nodes.len(), nodes), "{shown}");
        assert_eq!(set.is_empty(), nodes.is_empty(), "{shown}");
        let mut grown = NumaMask::EMPTY;
        nodes.iter().for_each(|id| grown.insert(node(*id)));
        assert_eq!(grown, set);
    }
}

/// Upstream's cases of bits outside of the range in TestAdd, TestRemove, TestIsSet and TestAnySet.
#[test]
fn a_node_that_no_set_can_hold_is_none() {
    for id in [-1, 64, 65, i64::MAX, i64::MIN] {
        assert_eq!(NumaNodeId::new(id), Err(NumaNodeOutOfRange(id)));
    }
    assert_eq!(
        NumaNodeOutOfRange(64).to_string(),
        "NUMA node 64 is not in the range 0-63"
    );
}

/// Upstream's TestRemove.
#[test]
fn what_is_removed_is_gone_and_nothing_else() {
    for (nodes, removed, left) in [
        (&[0][..], &[0][..], &[][..]),
        (&[0, 1], &[1], &[0]),
        (&[0, 1], &[0, 1], &[]),
        (&[0], &[5], &[0]),
    ] {
        let mut set = mask(nodes);
        removed.iter().for_each(|id| set.remove(node(*id)));
        assert_eq!(set, mask(left), "{nodes:?} without {removed:?}");
    }
}

/// Upstream's TestAnd and TestOr.
#[test]
fn sets_are_intersected_and_united() {
    let all = |sets: &[&[u8]], join: fn(NumaMask, NumaMask) -> NumaMask| {
        let joined = sets.iter().map(|nodes| mask(nodes)).reduce(join);
        joined.unwrap().to_string()
    };
    for (sets, shown) in [
        (&[&[0, 1][..], &[0, 1]][..], "11"),
        (&[&[0, 1], &[1]], "10"),
        (&[&[0], &[0, 1]], "01"),
        (&[&[0, 1], &[0, 1], &[1]], "10"),
        (&[&[0], &[0], &[1], &[0, 1]], "00"),
        (&[&[0, 1, 2, 3], &[1, 2, 3], &[2, 3], &[3]], "1000"),
    ] {
        assert_eq!(all(sets, |a, b| a & b), shown, "{sets:?}");
    }
    for (sets, shown) in [
        (&[&[0][..], &[]][..], "01"),
        (&[&[1], &[1]], "10"),
        (&[&[0], &[1]], "11"),
        (&[&[0, 1], &[0, 1]], "11"),
        (&[&[0], &[1], &[0, 1]], "11"),
        (&[&[3], &[2], &[1], &[0]], "1111"),
    ] {
        assert_eq!(all(sets, |a, b| a | b), shown, "{sets:?}");
    }
}

/// Upstream's TestClear and TestFill: the empty and the full set, whatever was there before.
#[test]
fn the_empty_set_has_no_node_and_the_full_one_all() {
    assert_eq!(NumaMask::default(), NumaMask::EMPTY);
    assert_eq!(NumaMask::EMPTY.to_string(), "00");
    assert_eq!(NumaMask::FULL.to_string(), "1".repeat(64));
    for nodes in [&[][..], &[0], &[1], &[0, 1]] {
        assert_eq!(mask(nodes) & NumaMask::EMPTY, NumaMask::EMPTY);
        assert_eq!(mask(nodes) | NumaMask::FULL, NumaMask::FULL);
    }
}

/// Upstream's TestIsSet and TestAnySet.
#[test]
fn a_set_tells_which_nodes_it_has() {
    for (nodes, asked, has) in [(&[][..], 0, false), (&[0], 0, true), (&[0, 1], 1, true)] {
        assert_eq!(mask(nodes).contains(node(asked)), has, "{asked} {nodes:?}");
    }
    for (nodes, asked, any) in [
        (&[][..], &[0, 1][..], false),
        (&[0], &[0, 1], true),
        (&[0, 1], &[0, 1], true),
        (&[1, 2], &[0, 3], false),
    ] {
        assert_eq!(
            mask(nodes).intersects(mask(asked)),
            any,
            "{asked:?} {nodes:?}"
        );
    }
}

/// Upstream's TestIsEqual, TestIsLessThan, TestIsGreaterThan and TestIsNarrowerThan.
#[test]
fn sets_are_in_one_order_by_their_nodes_and_in_another_by_how_many() {
    use std::cmp::Ordering::{Equal, Greater, Less};
    for (one, other, order) in [
        (&[][..], &[][..], Equal),
        (&[], &[0], Less),
        (&[0], &[0], Equal),
        (&[0], &[1], Less),
        (&[1], &[0], Greater),
        (&[0, 1], &[0, 1], Equal),
        (&[0, 1], &[2], Less),
    ] {
        assert_eq!(mask(one).cmp(&mask(other)), order, "{one:?} {other:?}");
    }
    for (one, other, narrower) in [
        (&[0][..], &[0, 1][..], true),
        (&[0, 1], &[0], false),
        (&[0], &[1], true),
        (&[1], &[0], false),
        (&[2], &[0, 1], true),
        (&[1], &[1], false),
    ] {
        assert_eq!(
            mask(one).is_narrower_than(mask(other)),
            narrower,
            "{one:?} {other:?}"
        );
    }
}

/// Upstream's TestIterateBitMasks.
#[test]
fn every_subset_comes_once_smaller_ones_first() {
    for nodes in [0, 1, 2, 4, 8, 16] {
        let all: NumaMask = (0..nodes).map(node).collect();
        let subsets: Vec<NumaMask> = all.subsets().collect();
        assert_eq!(subsets.len(), (1 << nodes) - 1);
        let different: BTreeSet<NumaMask> = subsets.iter().copied().collect();
        assert_eq!(different.len(), subsets.len());
        assert!(subsets.is_sorted_by_key(|set| set.len()));
    }
    let shown: Vec<String> = mask(&[0, 2, 3])
        .subsets()
        .map(|set| set.to_string())
        .collect();
    let expected = ["01", "0100", "1000", "0101", "1001", "1100", "1101"];
    assert_eq!(shown, expected);
}

proptest! {
    #[test]
    fn of_two_sets_one_is_narrower_or_they_are_equal(one: u64, other: u64) {
        let set = |bits: u64| (0..64).filter(|id| bits >> id & 1 == 1).map(node).collect::<NumaMask>();
        let (one, other) = (set(one), set(other));
        let narrower = [one.is_narrower_than(other), other.is_narrower_than(one)];
        prop_assert_eq!(narrower.iter().filter(|is| **is).count(), usize::from(one != other));
    }
}
