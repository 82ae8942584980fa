//! Label selectors.
//!
//! Mirrors `LabelSelectorAsSelector` of apimachinery.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use thiserror::Error;

/// The longest that upstream takes, written as text.
pub(super) const MAX_SELECTOR_BYTES: usize = 100 * 1024;

/// Why a selector is none.
#[derive(Debug, Error, PartialEq, Eq)]
pub(super) enum SelectorError {
    #[error("{0:?} is not a valid label selector operator")]
    Operator(String),
    #[error("values: for 'in', 'notin' operators, values set can't be empty")]
    NoValues,
    #[error("values: values set must be empty for exists and does not exist")]
    Values,
}

pub(super) fn check(selector: &LabelSelector) -> Result<(), SelectorError> {
    for requirement in selector.match_expressions.iter().flatten() {
        let has_values = !values(requirement).is_empty();
        match requirement.operator.as_str() {
            "In" | "NotIn" if !has_values => return Err(SelectorError::NoValues),
            "Exists" | "DoesNotExist" if has_values => return Err(SelectorError::Values),
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => return Err(SelectorError::Operator(other.to_owned())),
        }
    }
    Ok(())
}

/// Whether the labels match a selector, which was validated.
pub(super) fn matches(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
    let mut pairs = selector.match_labels.iter().flatten();
    let mut more = selector.match_expressions.iter().flatten();
    pairs.all(|(key, value)| labels.get(key) == Some(value))
        && more.all(|requirement| holds(requirement, labels))
}

fn holds(requirement: &LabelSelectorRequirement, labels: &BTreeMap<String, String>) -> bool {
    let found = labels.get(&requirement.key);
    let listed = found.is_some_and(|value| values(requirement).contains(value));
    match requirement.operator.as_str() {
        "In" => listed,
        "NotIn" => !listed,
        "Exists" => found.is_some(),
        "DoesNotExist" => found.is_none(),
        _ => false,
    }
}

/// How long upstream's text of it is: `a=b,c in (d,e),!f`.
pub(super) fn length(selector: &LabelSelector) -> usize {
    let pairs = selector.match_labels.iter().flatten();
    let pairs = pairs.map(|(key, value)| key.len() + "=".len() + value.len());
    let more = selector
        .match_expressions
        .iter()
        .flatten()
        .map(|requirement| {
            let values = values(requirement);
            let list = values
                .iter()
                .map(|value| value.len() + ",".len())
                .sum::<usize>();
            let list = list.saturating_sub(",".len());
            let around = match requirement.operator.as_str() {
                "In" => " in ()".len(),
                "NotIn" => " notin ()".len(),
                "DoesNotExist" => "!".len(),
                _ => 0,
            };
            requirement.key.len() + around + list
        });
    let parts: Vec<usize> = pairs.chain(more).collect();
    parts.iter().sum::<usize>() + parts.len().saturating_sub(1)
}

fn values(requirement: &LabelSelectorRequirement) -> &[String] {
    requirement.values.as_deref().unwrap_or_default()
}
