//! Rules of label selectors and node selectors.

use k8s_openapi::api::core::v1::{NodeSelector, NodeSelectorRequirement, NodeSelectorTerm};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};

use super::{FieldErrors, metadata, names};

const NEEDS_VALUES: &str = "must be specified when `operator` is 'In' or 'NotIn'";
const NO_VALUES: &str = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
const UNKNOWN: &str = "not a valid selector operator";

pub(super) fn labels(field: &str, selector: Option<&LabelSelector>, report: &mut FieldErrors) {
    let Some(selector) = selector else {
        return;
    };
    if let Some(labels) = &selector.match_labels {
        metadata::labels(&format!("{field}.matchLabels"), labels, report);
    }
    for (index, wanted) in selector.match_expressions.iter().flatten().enumerate() {
        label_expression(
            &format!("{field}.matchExpressions[{index}]"),
            wanted,
            report,
        );
    }
}

fn label_expression(field: &str, wanted: &LabelSelectorRequirement, report: &mut FieldErrors) {
    let values = wanted.values.as_deref().unwrap_or_default();
    match wanted.operator.as_str() {
        "In" | "NotIn" if values.is_empty() => {
            report.missing(format!("{field}.values"), NEEDS_VALUES);
        }
        "In" | "NotIn" => {}
        "Exists" | "DoesNotExist" => {
            if !values.is_empty() {
                report.forbidden(format!("{field}.values"), NO_VALUES);
            }
        }
        other => report.invalid(format!("{field}.operator"), other, UNKNOWN),
    }
    key_and_values(field, &wanted.key, values, report);
}

fn key_and_values(field: &str, key: &str, values: &[String], report: &mut FieldErrors) {
    report.name(format!("{field}.key"), key, names::qualified);
    for (index, value) in values.iter().enumerate() {
        report.name(
            format!("{field}.values[{index}]"),
            value,
            names::label_value,
        );
    }
}

pub(super) fn nodes(field: &str, selector: &NodeSelector, report: &mut FieldErrors) {
    let field = format!("{field}.nodeSelectorTerms");
    if selector.node_selector_terms.is_empty() {
        report.missing(field, "must have at least one node selector term");
        return;
    }
    for (index, term) in selector.node_selector_terms.iter().enumerate() {
        node_term(&format!("{field}[{index}]"), term, Values::Labels, report);
    }
}

/// What the values of a node's selector have to be.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Values {
    Labels,
    /// The values of a preference need not be valid label values.
    Any,
}

pub(super) fn node_term(
    field: &str,
    term: &NodeSelectorTerm,
    values: Values,
    report: &mut FieldErrors,
) {
    for (index, wanted) in term.match_expressions.iter().flatten().enumerate() {
        let field = format!("{field}.matchExpressions[{index}]");
        node_expression(&field, wanted, values, report);
    }
    for (index, wanted) in term.match_fields.iter().flatten().enumerate() {
        node_field(&format!("{field}.matchFields[{index}]"), wanted, report);
    }
}

fn node_expression(
    field: &str,
    wanted: &NodeSelectorRequirement,
    checked: Values,
    report: &mut FieldErrors,
) {
    let values = wanted.values.as_deref().unwrap_or_default();
    match wanted.operator.as_str() {
        "In" | "NotIn" => {
            if values.is_empty() {
                report.missing(format!("{field}.values"), NEEDS_VALUES);
            }
        }
        "Exists" | "DoesNotExist" => {
            if !values.is_empty() {
                report.forbidden(format!("{field}.values"), NO_VALUES);
            }
        }
        "Gt" | "Lt" => {
            if values.len() != 1 {
                let detail = "must be specified single value when `operator` is 'Lt' or 'Gt'";
                report.missing(format!("{field}.values"), detail);
            }
        }
        other => report.invalid(format!("{field}.operator"), other, UNKNOWN),
    }
    let values = match checked {
        Values::Labels => values,
        Values::Any => &[],
    };
    key_and_values(field, &wanted.key, values, report);
}

fn node_field(field: &str, wanted: &NodeSelectorRequirement, report: &mut FieldErrors) {
    let values = wanted.values.as_deref().unwrap_or_default();
    match wanted.operator.as_str() {
        "In" | "NotIn" => {
            if values.len() != 1 {
                let detail = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector";
                report.missing(format!("{field}.values"), detail);
            }
        }
        other => report.invalid(format!("{field}.operator"), other, UNKNOWN),
    }
    if wanted.key != "metadata.name" {
        let detail = "not a valid field selector key";
        return report.invalid(format!("{field}.key"), &wanted.key, detail);
    }
    for (index, value) in values.iter().enumerate() {
        report.name(format!("{field}.values[{index}]"), value, names::subdomain);
    }
}
