//! Whether a node matches a node selector.
//!
//! Mirrors upstream's component-helpers `nodeaffinity` at v1.36: terms are alternatives, the requirements of a term
//! must all match, an empty term matches nothing, and an invalid one is ignored.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{NodeSelector, NodeSelectorRequirement, NodeSelectorTerm};

type Labels = BTreeMap<String, String>;

/// Whether one of the terms is the node's.
pub fn selects(required: &NodeSelector, node_name: &str, labels: &Labels) -> bool {
    let mut terms = required.node_selector_terms.iter();
    terms.any(|term| term_matches(term, node_name, labels))
}

fn term_matches(term: &NodeSelectorTerm, node_name: &str, labels: &Labels) -> bool {
    let by_label = term.match_expressions.as_deref().unwrap_or_default();
    let by_field = term.match_fields.as_deref().unwrap_or_default();
    if by_label.is_empty() && by_field.is_empty() {
        return false;
    }
    let results = by_label.iter().map(|r| label_matches(r, labels));
    let fields = by_field.iter().map(|r| field_matches(r, node_name));
    // One unreadable requirement makes the term unreadable.
    results.chain(fields).all(|result| result == Some(true))
}

/// None where the requirement cannot be read.
fn label_matches(requirement: &NodeSelectorRequirement, labels: &Labels) -> Option<bool> {
    let values = requirement.values.as_deref().unwrap_or_default();
    let found = labels.get(&requirement.key);
    let listed = || found.is_some_and(|value| values.contains(value));
    match requirement.operator.as_str() {
        "In" => (!values.is_empty()).then(listed),
        "NotIn" => (!values.is_empty()).then(|| !listed()),
        "Exists" => values.is_empty().then_some(found.is_some()),
        "DoesNotExist" => values.is_empty().then_some(found.is_none()),
        operator @ ("Gt" | "Lt") => {
            let [bound] = values else {
                return None;
            };
            let bound = integer(bound)?;
            let compare = |value| match operator {
                "Gt" => value > bound,
                _ => value < bound,
            };
            let number = found.and_then(|value| integer(value));
            Some(number.is_some_and(compare))
        }
        _ => None,
    }
}

fn integer(text: &str) -> Option<i64> {
    text.parse().ok()
}

/// Only `metadata.name` is there to be asked for; any other field is empty.
fn field_matches(requirement: &NodeSelectorRequirement, node_name: &str) -> Option<bool> {
    let [wanted] = requirement.values.as_deref().unwrap_or_default() else {
        return None;
    };
    let found = match requirement.key.as_str() {
        "metadata.name" => node_name,
        _ => "",
    };
    match requirement.operator.as_str() {
        "In" => Some(found == wanted),
        "NotIn" => Some(found != wanted),
        _ => None,
    }
}
