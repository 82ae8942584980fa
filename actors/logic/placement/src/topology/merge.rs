//! Hints of many resources merged into the best one that suits all.
//!
//! Upstream (`HintMerger` of topologymanager/policy.go, v1.36) looks at every combination of one hint a resource and
//! keeps the best: with 8 NUMA nodes and three resources that may be 16 million. What a combination comes to is nothing
//! but a set of nodes and whether it is preferred, so that equal ones are joined after each resource and there are
//! never more than two for each set of nodes that is not preferred or is. The best is the same one.

use std::collections::BTreeSet;

use super::hint::TopologyHint;
use super::numa_mask::NumaMask;
use super::numa_topology::NumaTopology;
use super::policy_options::NumaOrder;

/// Merges hints.
#[derive(Debug)]
pub(super) struct HintMerger<'a> {
    numa: &'a NumaTopology,
    order: NumaOrder,
    /// How many nodes the best hint has that is not preferred: as many as the resource needs that needs the most.
    best_unpreferred_count: u32,
}

/// One hint of each resource so far, all joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Combination {
    /// The nodes that are in all of them.
    nodes: NumaMask,
    /// The nodes that each of them names, where they are preferred so far; none as long as none names any.
    agreed: Option<NumaMask>,
    preferred: bool,
}

impl<'a> HintMerger<'a> {
    pub(super) fn new(
        numa: &'a NumaTopology,
        order: NumaOrder,
        resources: &[Vec<TopologyHint>],
    ) -> Self {
        Self {
            numa,
            order,
            best_unpreferred_count: largest_least_count(resources),
        }
    }

    /// The best combination of one hint a resource; all nodes and not preferred where none has a node.
    pub(super) fn merge(&self, resources: &[Vec<TopologyHint>]) -> TopologyHint {
        let all = self.numa.nodes();
        let mut merged = BTreeSet::from([Combination::of_none(all)]);
        for hints in resources {
            // One by one: 65,000 are soon found among some hundred different ones, and take long to sort.
            let mut joined = BTreeSet::new();
            for one in &merged {
                joined.extend(hints.iter().map(|hint| one.with(*hint)));
            }
            merged = joined;
        }
        let hints = merged.iter().map(|one| (one.nodes, one.preferred));
        let (nodes, preferred) = self.best(hints).unwrap_or((all, false));
        TopologyHint {
            nodes: Some(nodes),
            preferred,
        }
    }

    /// The best set of nodes that has any; each comes with whether it is preferred.
    pub(super) fn best(
        &self,
        hints: impl Iterator<Item = (NumaMask, bool)>,
    ) -> Option<(NumaMask, bool)> {
        hints
            .filter(|(nodes, _)| !nodes.is_empty())
            .min_by_key(|(nodes, preferred)| self.rank(*nodes, *preferred))
    }

    /// The less, the better. Preferred is better than not. Of preferred ones fewer nodes are better; of the others
    /// those that have as many as the best one, then those that have fewer, the more the better, then the rest.
    fn rank(&self, nodes: NumaMask, preferred: bool) -> impl Ord + use<> {
        let (count, best) = (nodes.len(), self.best_unpreferred_count);
        let (class, beside) = match count {
            _ if preferred => (0, count),
            _ if count == best => (1, 0),
            _ if count < best => (2, best - count),
            _ => (3, count - best),
        };
        let distance = match self.order {
            NumaOrder::Lowest => 0,
            NumaOrder::Closest => self.numa.total_distance(nodes),
        };
        (class, beside, distance, nodes)
    }
}

impl Combination {
    fn of_none(all: NumaMask) -> Self {
        Self {
            nodes: all,
            agreed: None,
            preferred: true,
        }
    }

    /// Preferred stays only what names the same nodes as all before.
    fn with(self, hint: TopologyHint) -> Self {
        let nodes = hint.nodes.map_or(self.nodes, |nodes| self.nodes & nodes);
        let agreed = self.agreed.or(hint.nodes);
        let agrees = hint.nodes.is_none_or(|nodes| agreed == Some(nodes));
        let preferred = self.preferred && hint.preferred && agrees;
        Self {
            nodes,
            agreed: agreed.filter(|_| preferred),
            preferred,
        }
    }
}

/// The most nodes that a resource needs at least; zero where none names any.
pub(super) fn largest_least_count(resources: &[Vec<TopologyHint>]) -> u32 {
    let least = |hints: &Vec<TopologyHint>| {
        let named = hints.iter().filter_map(|hint| hint.nodes);
        named.map(NumaMask::len).min()
    };
    resources.iter().filter_map(least).max().unwrap_or(0)
}
