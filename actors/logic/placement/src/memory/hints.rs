//! From which NUMA nodes memory could come, and from which it does come.
//!
//! Mirrors `calculateHints`, `getDefaultHint`, `extendTopologyManagerHint` and `isAffinityViolatingNUMAAllocations` of
//! upstream's memorymanager/policy_static.go at v1.36. Unlike there, a hint for one node that is used in a group is not
//! followed, which would mix the two, but widened to the group.

use thiserror::Error;

use super::amount::MemoryAmounts;
use super::numa_state::MachineState;
use super::reuse::ReusableMemory;
use crate::topology::{AssignmentError, NumaMask, TopologyHint};

/// Why memory can come from no nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(super) enum NodesError {
    #[error(
        "[memorymanager] failed to get the default NUMA affinity, no NUMA nodes with enough memory is available"
    )]
    NoDefault,
    #[error("[memorymanager] failed to find the default preferred hint")]
    NoPreferredDefault,
    #[error("[memorymanager] failed to find NUMA nodes to extend the current topology hint")]
    NoExtended,
    #[error("[memorymanager] failed to find the extended preferred hint")]
    NoPreferredExtended,
    #[error("[memorymanager] preferred hint violates NUMA node allocation")]
    UsedOtherwise,
}

impl From<NodesError> for AssignmentError {
    fn from(error: NodesError) -> Self {
        Self::Unexpected(error.to_string())
    }
}

/// A request for memory, and what there is.
#[derive(Debug)]
pub(super) struct MemorySearch<'a> {
    pub(super) state: &'a MachineState,
    pub(super) reusable: &'a ReusableMemory,
    pub(super) asked: &'a MemoryAmounts,
}

impl MemorySearch<'_> {
    /// The sets of nodes that all that is asked for could come from together, the smaller ones first. Preferred are those
    /// with as few nodes as would do on an empty machine.
    pub(super) fn hints(&self) -> Vec<TopologyHint> {
        if self.asked.is_empty() {
            return Vec::new();
        }
        let all = self.state.mask();
        let suits = |nodes: &NumaMask| {
            self.each(|resource, bytes| self.state.allocatable(*nodes, resource) >= bytes)
        };
        let suitable: Vec<NumaMask> = all.subsets().filter(suits).collect();
        let fewest = suitable.first().map_or(all.len(), |nodes| nodes.len());
        let free = suitable.into_iter().filter(|nodes| {
            !self.state.is_used_otherwise(*nodes) && self.has_enough(*nodes, self.reusable)
        });
        let hint = |nodes: NumaMask| TopologyHint {
            nodes: Some(nodes),
            preferred: nodes.len() == fewest,
        };
        free.map(hint).collect()
    }

    /// The nodes that the memory comes from, by a hint that may be narrower than it takes.
    pub(super) fn nodes(&self, hint: TopologyHint) -> Result<NumaMask, NodesError> {
        let (mut nodes, preferred) = match hint.nodes {
            Some(nodes) => (nodes, hint.preferred),
            None => {
                let (nodes, preferred) = best(self.hints()).ok_or(NodesError::NoDefault)?;
                if hint.preferred && !preferred {
                    return Err(NodesError::NoPreferredDefault);
                }
                (nodes, preferred)
            }
        };
        let in_group = nodes.len() == 1 && self.state.is_used_otherwise(nodes);
        if in_group || !self.has_enough(nodes, &ReusableMemory::default()) {
            let hints = self.hints().into_iter();
            let wider = hints.filter(|hint| hint.nodes.is_some_and(|own| own & nodes == nodes));
            let (extended, is_preferred) = best(wider).ok_or(NodesError::NoExtended)?;
            if preferred && !is_preferred {
                return Err(NodesError::NoPreferredExtended);
            }
            nodes = extended;
        }
        match self.state.is_used_otherwise(nodes) {
            true => Err(NodesError::UsedOtherwise),
            false => Ok(nodes),
        }
    }

    fn has_enough(&self, nodes: NumaMask, reusable: &ReusableMemory) -> bool {
        self.each(|resource, bytes| {
            let free = self.state.free(nodes, resource);
            free.saturating_add(reusable.get(nodes, resource)) >= bytes
        })
    }

    fn each(&self, holds: impl Fn(&str, u64) -> bool) -> bool {
        let mut asked = self.asked.iter();
        asked.all(|(resource, bytes)| holds(resource, *bytes))
    }
}

/// The narrowest of hints that were found together, which is preferred if any is: its nodes, and whether it is preferred.
fn best(hints: impl IntoIterator<Item = TopologyHint>) -> Option<(NumaMask, bool)> {
    let nodes = |hint: TopologyHint| Some((hint.nodes?, hint.preferred));
    let hints = hints.into_iter().filter_map(nodes);
    hints.min_by_key(|(nodes, _)| (nodes.len(), *nodes))
}
