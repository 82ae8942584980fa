//! Rules of resource requests and limits.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Pod, PodSpec, ResourceClaim, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;

use super::{FieldErrorKind, FieldErrors, names, text};
use crate::pod::requests::{self, OverheadPolicy, RequestBasis, ResourceAmounts};
use crate::quantity::{Quantity, compare};

type ValidatedResourceList = BTreeMap<String, ApiQuantity>;

const NOT_NEGATIVE: &str = "must be greater than or equal to 0";
const POD: &str = "spec.resources";

/// What is wrong with a resource's name.
type ResourceNameRule = fn(&str) -> Option<ResourceNameError>;

enum ResourceNameError {
    Name(String),
    NotOfPods,
}

pub(super) fn of_container(
    field: &str,
    resources: &ResourceRequirements,
    of_pod: &BTreeSet<&str>,
    report: &mut FieldErrors,
) {
    check(field, resources, container_name, report);
    let claims = resources.claims.as_deref().unwrap_or_default();
    self::claims(&format!("{field}.claims"), claims, of_pod, report);
}

/// What the pod's sandbox takes is checked as a container's limits are.
pub(super) fn overhead(overhead: &ValidatedResourceList, report: &mut FieldErrors) {
    let resources = ResourceRequirements {
        limits: Some(overhead.clone()),
        ..ResourceRequirements::default()
    };
    check("spec.overhead", &resources, container_name, report);
}

pub(super) fn of_pod(pod: &Pod, spec: &PodSpec, report: &mut FieldErrors) {
    let Some(resources) = &spec.resources else {
        return;
    };
    if resources.claims.is_some() {
        let detail = "claims may not be set for Resources at pod-level";
        report.forbidden(format!("{POD}.claims"), detail);
    }
    check(POD, resources, pod_name, report);
    let of_containers = without_pod_level(pod);
    holds_requests(&of_containers, resources, report);
    holds_huge_pages(&of_containers, resources, report);
    holds_limits(spec, resources, report);
}

fn without_pod_level(pod: &Pod) -> Pod {
    let mut pod = pod.clone();
    if let Some(spec) = &mut pod.spec {
        spec.resources = None;
    }
    pod
}

fn holds_requests(of_containers: &Pod, resources: &ResourceRequirements, report: &mut FieldErrors) {
    let needed = requests::pod_requests(of_containers, RequestBasis::Spec, OverheadPolicy::Left);
    let given = requests::read(resources.requests.as_ref());
    for (name, (given, needed)) in both(&given, &needed) {
        if compare(needed, given).is_gt() {
            let detail = format!(
                "must be greater than or equal to aggregate container requests of {needed}"
            );
            report.invalid(format!("{POD}.requests[{name}]"), given.to_string(), detail);
        }
    }
}

fn holds_huge_pages(
    of_containers: &Pod,
    resources: &ResourceRequirements,
    report: &mut FieldErrors,
) {
    let needed = requests::pod_limits(of_containers, RequestBasis::Spec, OverheadPolicy::Left);
    let given = requests::read(resources.limits.as_ref());
    for (name, (given, needed)) in both(&given, &needed).filter(|(name, _)| is_huge_pages(name)) {
        if compare(needed, given).is_gt() {
            let detail =
                format!("must be greater than or equal to aggregate container limits of {needed}");
            report.invalid(format!("{POD}.limits[{name}]"), given.to_string(), detail);
        }
    }
}

fn both<'a>(
    given: &'a ResourceAmounts,
    needed: &'a ResourceAmounts,
) -> impl Iterator<Item = (&'a String, (&'a Quantity, &'a Quantity))> {
    given
        .iter()
        .filter_map(|(name, given)| Some((name, (given, needed.get(name)?))))
}

fn holds_limits(spec: &PodSpec, resources: &ResourceRequirements, report: &mut FieldErrors) {
    let most = requests::read(resources.limits.as_ref());
    for (index, container) in spec.containers.iter().enumerate() {
        let limits = container
            .resources
            .as_ref()
            .and_then(|held| held.limits.as_ref());
        let limits = requests::read(limits);
        for (name, (most, limit)) in both(&most, &limits) {
            if compare(limit, most).is_gt() {
                let field = format!("{POD}.containers[{index}][{name}].limits");
                let detail = format!("must be less than or equal to pod limits of {most}");
                report.invalid(field, limit.to_string(), detail);
            }
        }
    }
}

fn check(
    field: &str,
    resources: &ResourceRequirements,
    rule: ResourceNameRule,
    report: &mut FieldErrors,
) {
    let limits = resources.limits.as_ref();
    let limits = quantities(&format!("{field}.limits"), limits, rule, report);
    let requests = resources.requests.as_ref();
    let requests = quantities(&format!("{field}.requests"), requests, rule, report);
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
                report.missing(format!("{field}.limits"), detail);
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
    list: Option<&'a ValidatedResourceList>,
    rule: ResourceNameRule,
    report: &mut FieldErrors,
) -> BTreeMap<&'a str, Quantity> {
    let mut good = BTreeMap::new();
    for (name, quantity) in list.into_iter().flatten() {
        let field = format!("{field}[{name}]");
        match rule(name) {
            None => {}
            Some(ResourceNameError::Name(detail)) => report.invalid(field.clone(), name, detail),
            Some(ResourceNameError::NotOfPods) => {
                report.known(field.clone(), name, &["cpu", "hugepages-", "memory"]);
            }
        }
        let Some(quantity) = not_negative(&field, &quantity.0, report) else {
            continue;
        };
        if is_whole_only(name) && quantity.milli_value() % 1000 != 0 {
            report.invalid(field.clone(), quantity.to_string(), "must be an integer");
        }
        if is_huge_pages(name) && !is_divisible(name, &quantity) {
            let detail = format!("{quantity} is not positive integer multiple of {name}");
            report.invalid(field, quantity.to_string(), detail);
        }
        good.insert(name.as_str(), quantity);
    }
    good
}

/// Whole pages only; a size that cannot be read makes no whole page.
fn is_divisible(name: &str, quantity: &Quantity) -> bool {
    let size = name
        .strip_prefix("hugepages-")
        .and_then(|size| Quantity::parse(size).ok());
    size.is_some_and(|size| size.value() > 0 && quantity.value() % size.value() == 0)
}

pub(super) fn read(field: &str, text: &str, report: &mut FieldErrors) -> Option<Quantity> {
    match Quantity::parse(text) {
        Ok(quantity) => Some(quantity),
        Err(error) => {
            report.invalid(field, text, error.to_string());
            None
        }
    }
}

/// Reports what is no quantity, or one below zero.
fn not_negative(field: &str, text: &str, report: &mut FieldErrors) -> Option<Quantity> {
    let quantity = read(field, text, report)?;
    if quantity.is_negative() {
        report.invalid(field, quantity.to_string(), NOT_NEGATIVE);
    }
    Some(quantity)
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

/// Whether a resource is one of the cluster's own making, such as a device plugin's (upstream's
/// `IsExtendedResourceName`).
pub fn is_extended_resource(name: &str) -> bool {
    !is_native(name)
        && !name.starts_with("requests.")
        && names::qualified(&format!("requests.{name}")).is_empty()
}

fn is_whole_only(name: &str) -> bool {
    is_extended_resource(name)
}

fn container_name(name: &str) -> Option<ResourceNameError> {
    if let Some(wrong) = names::qualified(name).into_iter().next() {
        return Some(ResourceNameError::Name(wrong));
    }
    let known = matches!(name, "cpu" | "memory" | "ephemeral-storage") || is_huge_pages(name);
    let wrong = if !name.contains('/') && !known {
        "must be a standard resource for containers"
    } else if !is_native(name) && !is_extended_resource(name) {
        "doesn't follow extended resource name standard"
    } else {
        return None;
    };
    Some(ResourceNameError::Name(wrong.to_owned()))
}

/// Of a plain name only what upstream's API has as a standard is taken.
fn pod_name(name: &str) -> Option<ResourceNameError> {
    const STANDARD: &[&str] = &["cpu", "memory", "ephemeral-storage", "storage", "pods"];
    if let Some(wrong) = names::qualified(name).into_iter().next() {
        return Some(ResourceNameError::Name(wrong));
    }
    if matches!(name, "cpu" | "memory") || is_huge_pages(name) {
        return None;
    }
    if name.contains('/') || STANDARD.contains(&name) {
        return Some(ResourceNameError::NotOfPods);
    }
    let wrong = "must be a standard resource type or fully qualified";
    Some(ResourceNameError::Name(wrong.to_owned()))
}

fn claims(
    field: &str,
    claims: &[ResourceClaim],
    of_pod: &BTreeSet<&str>,
    report: &mut FieldErrors,
) {
    let mut taken: BTreeSet<(&str, &str)> = BTreeSet::new();
    for (index, claim) in claims.iter().enumerate() {
        let field = format!("{field}[{index}]");
        let (name, request) = (claim.name.as_str(), text(claim.request.as_ref()));
        if name.is_empty() {
            report.required(field);
            continue;
        }
        if taken.contains(&(name, "")) {
            report.duplicate(field.clone(), name);
        } else {
            if !request.is_empty() {
                report.name(format!("{field}.request"), request, names::label);
            }
            let parts = taken.iter().filter(|(held, _)| *held == name).count();
            if taken.contains(&(name, request)) {
                report.duplicate(field.clone(), &format!("{name}/{request}"));
            } else if request.is_empty() && parts > 0 {
                report.duplicate(field.clone(), name);
            }
            taken.insert((name, request));
        }
        if !of_pod.contains(name) {
            let kind = FieldErrorKind::NotFound {
                value: format!("{name:?}"),
                detail: one_of_claims(of_pod),
            };
            report.add(field, kind);
        }
    }
}

fn one_of_claims(of_pod: &BTreeSet<&str>) -> String {
    const ONE: &str = "must be one of the names in pod.spec.resourceClaims";
    if of_pod.is_empty() {
        return format!("{ONE} which is empty");
    }
    let known: Vec<&str> = of_pod.iter().copied().collect();
    format!("{ONE}: {}", known.join(", "))
}
