//! Rules of affinity: the nodes and pods that a pod selects.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{
    Affinity, NodeAffinity, PodAffinityTerm, WeightedPodAffinityTerm,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use crate::manifest::validate::selectors::{self, Values};
use crate::manifest::validate::{FieldErrors, names};

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
const UNSELECTED: &str = "must not be specified when labelSelector is not set";
const BOTH: &str = "exists in both matchLabelKeys and labelSelector";

pub(in crate::manifest::validate) fn check(affinity: &Affinity, report: &mut FieldErrors) {
    if let Some(nodes) = &affinity.node_affinity {
        of_nodes("spec.affinity.nodeAffinity", nodes, report);
    }
    if let Some(pods) = &affinity.pod_affinity {
        let required = pods
            .required_during_scheduling_ignored_during_execution
            .as_deref();
        let preferred = pods
            .preferred_during_scheduling_ignored_during_execution
            .as_deref();
        of_pods("spec.affinity.podAffinity", required, preferred, report);
    }
    if let Some(pods) = &affinity.pod_anti_affinity {
        let required = pods
            .required_during_scheduling_ignored_during_execution
            .as_deref();
        let preferred = pods
            .preferred_during_scheduling_ignored_during_execution
            .as_deref();
        of_pods("spec.affinity.podAntiAffinity", required, preferred, report);
    }
}

fn of_nodes(field: &str, nodes: &NodeAffinity, report: &mut FieldErrors) {
    if let Some(selector) = &nodes.required_during_scheduling_ignored_during_execution {
        selectors::nodes(&format!("{field}.{REQUIRED}"), selector, report);
    }
    let preferred = &nodes.preferred_during_scheduling_ignored_during_execution;
    for (index, term) in preferred.iter().flatten().enumerate() {
        let field = format!("{field}.{PREFERRED}[{index}]");
        weight(&field, term.weight, report);
        let preference = format!("{field}.preference");
        selectors::node_term(&preference, &term.preference, Values::Any, report);
    }
}

fn weight(field: &str, weight: i32, report: &mut FieldErrors) {
    if !(1..=100).contains(&weight) {
        report.invalid(
            format!("{field}.weight"),
            weight,
            "must be in the range 1-100",
        );
    }
}

fn of_pods(
    field: &str,
    required: Option<&[PodAffinityTerm]>,
    preferred: Option<&[WeightedPodAffinityTerm]>,
    report: &mut FieldErrors,
) {
    for (index, term) in required.into_iter().flatten().enumerate() {
        pod_term(&format!("{field}.{REQUIRED}[{index}]"), term, report);
    }
    for (index, term) in preferred.into_iter().flatten().enumerate() {
        let field = format!("{field}.{PREFERRED}[{index}]");
        weight(&field, term.weight, report);
        pod_term(
            &format!("{field}.podAffinityTerm"),
            &term.pod_affinity_term,
            report,
        );
    }
}

fn pod_term(field: &str, term: &PodAffinityTerm, report: &mut FieldErrors) {
    let selector = term.label_selector.as_ref();
    selectors::labels(&format!("{field}.labelSelector"), selector, report);
    let namespaces = term.namespace_selector.as_ref();
    selectors::labels(&format!("{field}.namespaceSelector"), namespaces, report);
    for name in term.namespaces.iter().flatten() {
        report.name(format!("{field}.namespace"), name, names::label);
    }
    let same = term.match_label_keys.as_deref().unwrap_or_default();
    let other = term.mismatch_label_keys.as_deref().unwrap_or_default();
    merged_keys(field, same, selector, report);
    label_keys(
        &format!("{field}.mismatchLabelKeys"),
        other,
        selector,
        report,
    );
    for (index, key) in same
        .iter()
        .enumerate()
        .filter(|(_, key)| other.contains(key))
    {
        let detail = "exists in both matchLabelKeys and mismatchLabelKeys";
        report.invalid(format!("{field}.matchLabelKeys[{index}]"), key, detail);
    }
    let key = format!("{field}.topologyKey");
    if term.topology_key.is_empty() {
        report.missing(key.clone(), "can not be empty");
    }
    report.name(key, &term.topology_key, names::qualified);
}

fn label_keys(
    field: &str,
    keys: &[String],
    selector: Option<&LabelSelector>,
    report: &mut FieldErrors,
) {
    if keys.is_empty() {
        return;
    }
    if selector.is_none() {
        return report.forbidden(field, UNSELECTED);
    }
    for (index, key) in keys.iter().enumerate() {
        report.name(format!("{field}[{index}]"), key, names::qualified);
    }
}

/// Keys whose values the API server merges into the selector, so that one mention there is its own.
pub(super) fn merged_keys(
    field: &str,
    keys: &[String],
    selector: Option<&LabelSelector>,
    report: &mut FieldErrors,
) {
    label_keys(&format!("{field}.matchLabelKeys"), keys, selector, report);
    let Some(selector) = selector else {
        return;
    };
    let labels = selector.match_labels.iter().flatten();
    let mut seen: BTreeSet<&str> = labels.map(|(key, _)| key.as_str()).collect();
    for wanted in selector.match_expressions.iter().flatten() {
        let place = keys.iter().rposition(|key| *key == wanted.key);
        if !seen.insert(&wanted.key)
            && let Some(index) = place
        {
            report.invalid(format!("{field}[{index}]"), &wanted.key, BOTH);
        }
    }
}
