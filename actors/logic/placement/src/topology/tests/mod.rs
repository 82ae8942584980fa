//! Where resources come from, by upstream's cases.

mod machines;
mod manager;
mod merging;
mod numa_mask;
mod policies;
mod policy_options;
mod scopes;

use std::collections::BTreeMap;

use super::*;

fn node(id: u8) -> NumaNodeId {
    NumaNodeId::new(id.into()).unwrap()
}

fn mask(nodes: &[u8]) -> NumaMask {
    nodes.iter().copied().map(node).collect()
}

/// A preferred hint.
fn on(nodes: &[u8]) -> TopologyHint {
    TopologyHint {
        nodes: Some(mask(nodes)),
        preferred: true,
    }
}

/// A hint that is not preferred.
fn off(nodes: &[u8]) -> TopologyHint {
    TopologyHint {
        preferred: false,
        ..on(nodes)
    }
}

/// A provider's hints: resources by name.
fn provider(resources: &[(&str, &[TopologyHint])]) -> ProviderHints {
    let hints = |hints: &[TopologyHint]| ResourceHints::Possible(hints.to_vec());
    let resources = resources.iter();
    resources
        .map(|(name, list)| ((*name).to_owned(), hints(list)))
        .collect()
}

/// A provider that has no preference about its one resource.
fn indifferent() -> ProviderHints {
    BTreeMap::from([("resource".to_owned(), ResourceHints::NoPreference)])
}

/// A machine by the rows of its distances.
fn machine(rows: &[&[u64]]) -> NumaTopology {
    let row = |row: &[u64]| (0..).map(node).zip(row.iter().copied()).collect();
    NumaTopology {
        distances: (0..).map(node).zip(rows.iter().copied().map(row)).collect(),
    }
}

fn two_nodes() -> NumaTopology {
    machine(&[&[10, 11], &[11, 10]])
}

fn four_nodes() -> NumaTopology {
    machine(&[
        &[10, 11, 12, 12],
        &[11, 10, 12, 12],
        &[12, 12, 10, 11],
        &[12, 12, 11, 10],
    ])
}

fn eight_nodes() -> NumaTopology {
    machine(&[
        &[10, 11, 12, 12, 30, 30, 30, 30],
        &[11, 10, 12, 12, 30, 30, 30, 30],
        &[12, 12, 10, 11, 30, 30, 30, 30],
        &[12, 12, 11, 10, 30, 30, 30, 30],
        &[30, 30, 30, 30, 10, 11, 12, 12],
        &[30, 30, 30, 30, 11, 10, 12, 12],
        &[30, 30, 30, 30, 12, 12, 10, 11],
        &[30, 30, 30, 30, 12, 12, 13, 10],
    ])
}
