//! What a hint provider says about the place of resources.
//!
//! Mirrors upstream's `TopologyHint` of topologymanager/topology_manager.go at v1.36.

use std::collections::BTreeMap;

use super::numa_mask::NumaMask;

/// NUMA nodes that resources could come from together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct TopologyHint {
    /// None where they may come from anywhere.
    pub nodes: Option<NumaMask>,
    /// Whether no fewer nodes would do on this machine.
    pub preferred: bool,
}

/// Where one resource could come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResourceHints {
    /// Any place is as good as another.
    NoPreference,
    /// These; there is no place for it at all where there are none.
    Possible(Vec<TopologyHint>),
}

impl ResourceHints {
    /// Whether there is no place for it at all.
    pub(super) fn is_nowhere(&self) -> bool {
        matches!(self, Self::Possible(places) if places.is_empty())
    }
}

/// A provider's hints by resource name; it has no preference where there are none.
pub type ProviderHints = BTreeMap<String, ResourceHints>;

impl TopologyHint {
    pub(super) const ANYWHERE: Self = Self {
        nodes: None,
        preferred: true,
    };
    pub(super) const NOWHERE: Self = Self {
        nodes: None,
        preferred: false,
    };

    fn described(&self) -> String {
        let place = self.nodes.map(|nodes| nodes.to_string());
        let place = place.unwrap_or_else(|| "anywhere".to_owned());
        match self.preferred {
            true => format!("{place} preferred"),
            false => place,
        }
    }
}

/// The hints in words, for the operator: `cpu: 01 preferred, 11; memory: anywhere`.
pub(super) fn described(providers: &[ProviderHints]) -> String {
    let resources = providers.iter().flatten();
    let words = resources.map(|(resource, hints)| {
        let places: Vec<String> = match hints {
            ResourceHints::NoPreference => vec!["anywhere".to_owned()],
            ResourceHints::Possible(none) if none.is_empty() => vec!["nowhere".to_owned()],
            ResourceHints::Possible(hints) => hints.iter().map(TopologyHint::described).collect(),
        };
        format!("{resource}: {}", places.join(", "))
    });
    words.collect::<Vec<_>>().join("; ")
}

/// The hints of each resource of all providers, each at least one: no preference is a preferred hint for anywhere, and
/// no place one that is not preferred.
pub(super) fn by_resource(providers: &[ProviderHints]) -> Vec<Vec<TopologyHint>> {
    let mut resources = Vec::new();
    for hints in providers {
        if hints.is_empty() {
            resources.push(vec![TopologyHint::ANYWHERE]);
        }
        resources.extend(hints.values().map(|hints| match hints {
            ResourceHints::NoPreference => vec![TopologyHint::ANYWHERE],
            ResourceHints::Possible(none) if none.is_empty() => vec![TopologyHint::NOWHERE],
            ResourceHints::Possible(hints) => hints.clone(),
        }));
    }
    resources
}
