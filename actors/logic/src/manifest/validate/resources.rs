//! Rules of resource requests and limits.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;

use super::{ProblemKind, Report, names};
use crate::quantity::{Quantity, compare};

type List = BTreeMap<String, ApiQuantity>;

const NOT_NEGATIVE: &str = "must be greater than or equal to 0";

pub(super) fn of_container(field: &str, resources: &ResourceRequirements, report: &mut Report) {
    check(field, resources, container_name, report);
}

pub(super) fn of_pod(resources: &ResourceRequirements, report: &mut Report) {
    check("spec.resources", resources, pod_name, report);
}

fn check(
    field: &str,
    resources: &ResourceRequirements,
    name_rule: fn(&str) -> Vec<String>,
    report: &mut Report,
) {
    let limits = quantities(
        &format!("{field}.limits"),
        resources.limits.as_ref(),
        name_rule,
        report,
    );
    let requests = quantities(
        &format!("{field}.requests"),
        resources.requests.as_ref(),
        name_rule,
        report,
    );
    for (name, request) in &requests {
        let requests = format!("{field}.requests");
        match limits.get(name) {
            Some(limit) if !allows_overcommit(name) && compare(request, limit).is_ne() => {
                report.invalid(
                    requests,
                    request.to_string(),
                    format!("must be equal to {name} limit of {limit}"),
                );
            }
            Some(limit) if compare(request, limit).is_gt() => {
                let detail = format!("must be less than or equal to {name} limit of {limit}");
                report.invalid(requests, request.to_string(), detail);
            }
            None if !allows_overcommit(name) => {
                let detail = "Limit must be set for non overcommitable resources";
                report.add(format!("{field}.limits"), ProblemKind::Required { detail });
            }
            Some(_) | None => {}
        }
    }
    let mut names = limits.keys().chain(requests.keys());
    let has_basic = names.clone().any(|name| matches!(*name, "cpu" | "memory"));
    if !has_basic && names.any(|name| is_huge_pages(name)) {
        report.forbidden(field, "HugePages require cpu or memory");
    }
}

/// The quantities that can be read; the others are reported.
fn quantities<'a>(
    field: &str,
    list: Option<&'a List>,
    name_rule: fn(&str) -> Vec<String>,
    report: &mut Report,
) -> BTreeMap<&'a str, Quantity> {
    let mut good = BTreeMap::new();
    for (name, quantity) in list.into_iter().flatten() {
        let field = format!("{field}[{name}]");
        report.name(field.clone(), name, name_rule);
        if let Some(quantity) = not_negative(&field, &quantity.0, report) {
            if is_whole_only(name) && quantity.milli_value() % 1000 != 0 {
                report.invalid(field, quantity.to_string(), "must be an integer");
            }
            good.insert(name.as_str(), quantity);
        }
    }
    good
}

/// Reports what is no quantity, or one below zero.
pub(super) fn not_negative(field: &str, text: &str, report: &mut Report) -> Option<Quantity> {
    match Quantity::parse(text) {
        Ok(quantity) => {
            if quantity.is_negative() {
                report.invalid(field, quantity.to_string(), NOT_NEGATIVE);
            }
            Some(quantity)
        }
        Err(error) => {
            report.invalid(field, text, error.to_string());
            None
        }
    }
}

fn is_huge_pages(name: &str) -> bool {
    name.starts_with("hugepages-")
}

fn is_native(name: &str) -> bool {
    name.split_once('/')
        .is_none_or(|(prefix, _)| prefix.contains("kubernetes.io"))
}

fn allows_overcommit(name: &str) -> bool {
    is_native(name) && !is_huge_pages(name)
}

fn is_extended(name: &str) -> bool {
    !is_native(name)
        && !name.starts_with("requests.")
        && names::qualified(&format!("requests.{name}")).is_empty()
}

fn is_whole_only(name: &str) -> bool {
    is_extended(name)
}

fn container_name(name: &str) -> Vec<String> {
    let wrong = names::qualified(name);
    if !wrong.is_empty() {
        return wrong;
    }
    let known = matches!(name, "cpu" | "memory" | "ephemeral-storage") || is_huge_pages(name);
    if !name.contains('/') && !known {
        return vec!["must be a standard resource for containers".to_owned()];
    }
    if !is_native(name) && !is_extended(name) {
        return vec!["doesn't follow extended resource name standard".to_owned()];
    }
    Vec::new()
}

fn pod_name(name: &str) -> Vec<String> {
    if matches!(name, "cpu" | "memory") || is_huge_pages(name) {
        return Vec::new();
    }
    vec!["must be a resource that a pod can have as a whole: cpu, memory or hugepages-*".to_owned()]
}
