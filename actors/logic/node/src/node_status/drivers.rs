//! The node's object as its CSI drivers change it: their node ids, and labels from their topology.
//!
//! Upstream: pkg/volume/csi/nodeinfomanager (1.36). The entries of a driver that has not registered yet are kept.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;
use logic_volumes::csi_node::NODE_IDS;

use super::NodeStatusFacts;

pub(super) fn set(facts: &NodeStatusFacts, node: &mut Node) {
    let labels = &facts.drivers.labels;
    if !labels.is_empty() {
        let held = node.metadata.labels.get_or_insert_default();
        held.extend(labels.clone());
    }
    let text = node.metadata.annotations.as_ref();
    let text = text.and_then(|all| all.get(NODE_IDS));
    let ids = ids(facts, text.map(String::as_str).unwrap_or_default());
    if ids.is_empty() {
        if let Some(annotations) = &mut node.metadata.annotations {
            annotations.remove(NODE_IDS);
        }
    } else if let Ok(text) = serde_json::to_string(&ids) {
        let annotations = node.metadata.annotations.get_or_insert_default();
        annotations.insert(NODE_IDS.to_owned(), text);
    }
}

/// An annotation that can't be parsed is written anew.
fn ids(facts: &NodeStatusFacts, text: &str) -> BTreeMap<String, String> {
    let mut ids: BTreeMap<String, String> = serde_json::from_str(text).unwrap_or_default();
    ids.retain(|name, _| !facts.left.contains(name));
    let there = facts.drivers.there.values();
    ids.extend(there.map(|driver| (driver.name.clone(), driver.node_id.clone())));
    ids
}
