//! Rules of what else a scheduler goes by: spread, tolerations, gates, claims.

pub(super) mod affinity;

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{
    PodResourceClaim, PodSchedulingGate, Toleration, TopologySpreadConstraint,
};

use super::{FieldErrorKind, FieldErrors, names, selectors, text};

pub(super) fn spread(constraints: &[TopologySpreadConstraint], report: &mut FieldErrors) {
    for (index, constraint) in constraints.iter().enumerate() {
        let field = format!("spec.topologySpreadConstraints[{index}]");
        report.positive(format!("{field}.maxSkew"), constraint.max_skew.into());
        if constraint.topology_key.is_empty() {
            report.missing(format!("{field}.topologyKey"), "can not be empty");
        }
        let action = constraint.when_unsatisfiable.as_str();
        let known = &["DoNotSchedule", "ScheduleAnyway"];
        report.known(format!("{field}.whenUnsatisfiable"), action, known);
        let key = |of: &TopologySpreadConstraint| {
            format!("{{{}, {}}}", of.topology_key, of.when_unsatisfiable)
        };
        let mut later = constraints[index + 1..].iter();
        if later.any(|other| key(other) == key(constraint)) {
            let field = format!("{field}.{{topologyKey, whenUnsatisfiable}}");
            report.duplicate(field, &key(constraint));
        }
        domains(&field, constraint, report);
        let selector = constraint.label_selector.as_ref();
        let keys = constraint.match_label_keys.as_deref().unwrap_or_default();
        affinity::merged_keys(&field, keys, selector, report);
        selectors::labels(&format!("{field}.labelSelector"), selector, report);
    }
}

fn domains(field: &str, constraint: &TopologySpreadConstraint, report: &mut FieldErrors) {
    let action = constraint.when_unsatisfiable.as_str();
    if let Some(least) = constraint.min_domains {
        report.positive(format!("{field}.minDomains"), least.into());
        if action != "DoNotSchedule" {
            let detail =
                format!("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}");
            report.invalid(format!("{field}.minDomains"), least, detail);
        }
    }
    let rows = [
        ("nodeAffinityPolicy", &constraint.node_affinity_policy),
        ("nodeTaintsPolicy", &constraint.node_taints_policy),
    ];
    for (name, policy) in rows {
        if let Some(policy) = policy {
            report.known(format!("{field}.{name}"), policy, &["Honor", "Ignore"]);
        }
    }
}

pub(super) fn toleration(field: &str, toleration: &Toleration, report: &mut FieldErrors) {
    let key = text(toleration.key.as_ref());
    let operator = text(toleration.operator.as_ref());
    let effect = text(toleration.effect.as_ref());
    if !key.is_empty() {
        report.name(format!("{field}.key"), key, names::qualified);
    } else if operator != "Exists" {
        let detail = "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
        report.invalid(format!("{field}.operator"), operator, detail);
    }
    if toleration.toleration_seconds.is_some() && effect != "NoExecute" {
        let detail = "effect must be 'NoExecute' when `tolerationSeconds` is set";
        report.invalid(format!("{field}.effect"), effect, detail);
    }
    tolerated_value(field, operator, text(toleration.value.as_ref()), report);
    if !effect.is_empty() {
        let known = &["NoSchedule", "PreferNoSchedule", "NoExecute"];
        report.known(format!("{field}.effect"), effect, known);
    }
}

fn tolerated_value(field: &str, operator: &str, value: &str, report: &mut FieldErrors) {
    match operator {
        "" | "Equal" => {
            let wrong = names::label_value(value);
            if !wrong.is_empty() {
                report.invalid(format!("{field}.operator"), value, wrong.join(";"));
            }
        }
        "Exists" => {
            if !value.is_empty() {
                let detail = "value must be empty when `operator` is 'Exists'";
                report.invalid(format!("{field}.operator"), value, detail);
            }
        }
        "Lt" | "Gt" => number(format!("{field}.value"), value, report),
        other => report.known(format!("{field}.operator"), other, &["Equal", "Exists"]),
    }
}

/// What is compared: a decimal number of 64 bits in its shortest form.
fn number(field: String, value: &str, report: &mut FieldErrors) {
    let digits = value.strip_prefix('-').unwrap_or(value);
    let is_decimal = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    let is_shortest = value == "0" || !digits.starts_with('0');
    if !is_decimal || !is_shortest {
        let detail = "must be a valid decimal integer in canonical form";
        report.invalid(field.clone(), value, detail);
    }
    if value.parse::<i64>().is_err() {
        let why = if is_decimal {
            "value out of range"
        } else {
            "invalid syntax"
        };
        let detail = format!("strconv.ParseInt: parsing {value:?}: {why}");
        report.invalid(field, value, detail);
    }
}

pub(super) fn gates(gates: &[PodSchedulingGate], report: &mut FieldErrors) {
    let mut known = BTreeSet::new();
    for (index, gate) in gates.iter().enumerate() {
        let field = format!("spec.schedulingGates[{index}]");
        report.name(field.clone(), &gate.name, names::qualified);
        if !known.insert(gate.name.as_str()) {
            report.duplicate(field, &gate.name);
        }
    }
    if !gates.is_empty() {
        let detail = "cannot be set until all schedulingGates have been cleared";
        report.forbidden("spec.nodeName", detail);
    }
}

pub(super) fn claims(claims: &[PodResourceClaim], report: &mut FieldErrors) {
    let mut known = BTreeSet::new();
    for (index, claim) in claims.iter().enumerate() {
        let field = format!("spec.resourceClaims[{index}]");
        let name = format!("{field}.name");
        if claim.name.is_empty() {
            report.required(name);
        } else if !known.insert(claim.name.as_str()) {
            report.duplicate(name, &claim.name);
        } else {
            report.name(name, &claim.name, names::label);
        }
        let sources = (
            &claim.resource_claim_name,
            &claim.resource_claim_template_name,
        );
        let detail = match sources {
            (Some(_), Some(_)) => Some(
                "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified",
            ),
            (None, None) => {
                Some("must specify one of: `resourceClaimName`, `resourceClaimTemplateName`")
            }
            (Some(_), None) | (None, Some(_)) => None,
        };
        if let Some(detail) = detail {
            let (value, detail) = (claim.name.clone(), detail.to_owned());
            report.add(field.clone(), FieldErrorKind::Invalid { value, detail });
        }
        let rows = [
            ("resourceClaimName", sources.0),
            ("resourceClaimTemplateName", sources.1),
        ];
        for (part, value) in rows {
            if let Some(value) = value {
                report.name(format!("{field}.{part}"), value, names::subdomain);
            }
        }
    }
}
