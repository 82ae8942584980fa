//! A set of NUMA nodes in one word.
//!
//! Mirrors upstream's topologymanager/bitmask at v1.36.

use std::fmt;
use std::ops::{BitAnd, BitOr};

use thiserror::Error;

/// As many nodes as a mask has bits.
const NODES: u8 = 64;

/// The number that the kernel gives a NUMA node: 0 to 63.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NumaNodeId(u8);

/// A NUMA node that no mask can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("NUMA node {0} is not in the range 0-63")]
pub struct NumaNodeOutOfRange(pub i64);

impl NumaNodeId {
    /// # Errors
    ///
    /// The number is negative, or above 63.
    pub fn new(id: i64) -> Result<Self, NumaNodeOutOfRange> {
        let node = u8::try_from(id).ok().filter(|node| *node < NODES);
        node.map(Self).ok_or(NumaNodeOutOfRange(id))
    }

    pub fn get(self) -> u8 {
        self.0
    }
}

/// A set of NUMA nodes. Of two sets the one that is less has fewer of the higher nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NumaMask(u64);

impl NumaMask {
    pub const EMPTY: Self = Self(0);
    /// Every node that there could be.
    pub const FULL: Self = Self(u64::MAX);

    pub fn insert(&mut self, node: NumaNodeId) {
        self.0 |= 1 << node.0;
    }

    pub fn remove(&mut self, node: NumaNodeId) {
        self.0 &= !(1 << node.0);
    }

    pub fn contains(self, node: NumaNodeId) -> bool {
        self.0 & (1 << node.0) != 0
    }

    /// Whether a node is in both.
    pub fn intersects(self, other: Self) -> bool {
        !(self & other).is_empty()
    }

    pub fn is_empty(self) -> bool {
        self == Self::EMPTY
    }

    /// How many nodes are in it.
    pub fn len(self) -> u32 {
        self.0.count_ones()
    }

    /// The nodes in ascending order.
    pub fn nodes(self) -> impl Iterator<Item = NumaNodeId> {
        (0..NODES)
            .map(NumaNodeId)
            .filter(move |node| self.contains(*node))
    }

    /// Whether it has fewer nodes than the other, or as many and lower ones.
    pub fn is_narrower_than(self, other: Self) -> bool {
        (self.len(), self) < (other.len(), other)
    }

    /// Every set of at least one of the nodes: the smaller ones first, those of one size in the order of their nodes.
    /// There are 2^n - 1 of n nodes.
    pub fn subsets(self) -> impl Iterator<Item = NumaMask> {
        let nodes: Vec<NumaNodeId> = self.nodes().collect();
        (1..=nodes.len()).flat_map(move |size| of_size(&nodes, size))
    }
}

/// The sets of so many of the nodes.
fn of_size(nodes: &[NumaNodeId], size: usize) -> Vec<NumaMask> {
    if size == 0 {
        return vec![NumaMask::EMPTY];
    }
    let mut sets = Vec::new();
    for (index, first) in nodes.iter().enumerate() {
        for mut set in of_size(&nodes[index + 1..], size - 1) {
            set.insert(*first);
            sets.push(set);
        }
    }
    sets
}

impl FromIterator<NumaNodeId> for NumaMask {
    fn from_iter<I: IntoIterator<Item = NumaNodeId>>(nodes: I) -> Self {
        let mut mask = Self::EMPTY;
        nodes.into_iter().for_each(|node| mask.insert(node));
        mask
    }
}

impl BitAnd for NumaMask {
    type Output = Self;

    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl BitOr for NumaMask {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl fmt::Display for NumaMask {
    /// As bits, the lowest node last: `0101`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = (u64::BITS - self.0.leading_zeros()).max(1);
        let width = usize::try_from(bits.next_multiple_of(2)).unwrap_or_default();
        write!(f, "{:0width$b}", self.0)
    }
}
