//! The machine's NUMA nodes and how far they are from each other.
//!
//! Mirrors upstream's topologymanager/numa_info.go at v1.36.

use std::collections::BTreeMap;

use thiserror::Error;

use super::numa_mask::{NumaMask, NumaNodeId};

/// The distance of nodes that nothing is known about: ACPI's word for "cannot be reached".
const UNREACHABLE: u64 = 255;

/// The NUMA nodes of the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NumaTopology {
    /// Each node's distance to the others and itself, as the firmware has it: 10 is local. Empty where the kernel does
    /// not tell.
    pub distances: BTreeMap<NumaNodeId, BTreeMap<NumaNodeId, u64>>,
}

/// The kernel tells no distances of this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the distances of NUMA node {} are unknown", .0.get())]
pub struct DistancesUnknown(pub NumaNodeId);

impl NumaTopology {
    /// All nodes.
    pub fn nodes(&self) -> NumaMask {
        self.distances.keys().copied().collect()
    }

    /// # Errors
    ///
    /// Names the first node whose distances are unknown.
    pub fn known_distances(&self) -> Result<(), DistancesUnknown> {
        let mut rows = self.distances.iter();
        let unknown = rows.find(|(_, row)| row.is_empty());
        unknown.map_or(Ok(()), |(node, _)| Err(DistancesUnknown(*node)))
    }

    /// The sum of the distances between any two of the nodes, each to itself as well. Of sets of one size the one whose
    /// sum is less has the shorter average distance.
    pub fn total_distance(&self, nodes: NumaMask) -> u64 {
        let from = |node| {
            let row = self.distances.get(&node);
            let to = move |other| row.and_then(|row| row.get(&other)).copied();
            nodes
                .nodes()
                .map(move |other| to(other).unwrap_or(UNREACHABLE))
        };
        let all = nodes.nodes().flat_map(from);
        all.fold(0, u64::saturating_add)
    }
}
