//! The policies: how much it matters that resources lie together.
//!
//! Mirrors upstream's topologymanager/policy_*.go at v1.36.

use super::hint::{ProviderHints, TopologyHint, by_resource};
use super::merge::HintMerger;
use super::numa_topology::NumaTopology;
use super::policy_options::{NumaOrder, PolicyOptions};

/// `topologyManagerPolicy`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TopologyPolicy {
    /// Nobody is asked.
    #[default]
    None,
    /// Resources lie together where they can, and the pod is admitted all the same where they cannot.
    BestEffort,
    /// A pod is admitted only with a preferred hint.
    Restricted,
    /// A pod is admitted only if all of it can come from one NUMA node.
    SingleNumaNode,
}

impl TopologyPolicy {
    const ALL: [Self; 4] = [
        Self::None,
        Self::BestEffort,
        Self::Restricted,
        Self::SingleNumaNode,
    ];

    /// The policy of this name in the configuration.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|policy| policy.as_str() == name)
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::BestEffort => "best-effort",
            Self::Restricted => "restricted",
            Self::SingleNumaNode => "single-numa-node",
        }
    }

    /// Whether what gets this hint may run.
    pub fn admits(self, hint: TopologyHint) -> bool {
        match self {
            Self::None | Self::BestEffort => true,
            Self::Restricted | Self::SingleNumaNode => hint.preferred,
        }
    }

    /// Whether what it admits lies within one NUMA node, or is refused: what may run elsewhere is not counted as aligned
    /// (upstream's IsAlignmentGuaranteed).
    pub fn guarantees_alignment(self) -> bool {
        match self {
            Self::SingleNumaNode => true,
            Self::None | Self::BestEffort | Self::Restricted => false,
        }
    }

    /// The one hint that the providers' hints come to.
    pub fn merge(
        self,
        providers: &[ProviderHints],
        numa: &NumaTopology,
        options: PolicyOptions,
    ) -> TopologyHint {
        let hints = by_resource(providers);
        match self {
            Self::None => TopologyHint::NOWHERE,
            Self::BestEffort | Self::Restricted => {
                HintMerger::new(numa, options.order, &hints).merge(&hints)
            }
            Self::SingleNumaNode => {
                let hints = single_node_hints(hints);
                // Sets of one node are never farther from each other than others.
                let merger = HintMerger::new(numa, NumaOrder::Lowest, &hints);
                let best = merger.merge(&hints);
                let nodes = best.nodes.filter(|nodes| *nodes != numa.nodes());
                TopologyHint { nodes, ..best }
            }
        }
    }
}

/// The preferred hints for one node or for any place.
pub(super) fn single_node_hints(mut resources: Vec<Vec<TopologyHint>>) -> Vec<Vec<TopologyHint>> {
    let is_single = |hint: &TopologyHint| hint.nodes.is_none_or(|nodes| nodes.len() == 1);
    for hints in &mut resources {
        hints.retain(|hint| hint.preferred && is_single(hint));
    }
    resources
}
