//! What is kept back from pods: node allocatable, CPUs, memory by NUMA node.

use std::collections::{BTreeMap, BTreeSet};

use super::FieldErrors;
use crate::kubelet_configuration::{KubeletConfiguration, Quantity};
use crate::names;

const ENFORCEMENTS: [&str; 6] = [
    "pods",
    "system-reserved",
    "system-reserved-compressible",
    "kube-reserved",
    "kube-reserved-compressible",
    "none",
];

pub(super) fn check(c: &KubeletConfiguration, checks: &mut FieldErrors) {
    enforcements(c, checks);
    cpus(c, checks);
    numa_memory(c, checks);
    amounts("systemReserved", &c.system_reserved, checks);
    amounts("kubeReserved", &c.kube_reserved, checks);
    for (resource, share) in &c.qos_reserved {
        let percent = share.strip_suffix('%').map(str::parse::<i64>);
        let is_share = matches!(percent, Some(Ok(0..=100)));
        if resource != "memory" {
            checks.refuse(
                "qosReserved",
                format!("cannot reserve {resource:?}, only memory"),
            );
        } else if !is_share {
            checks.refuse(
                "qosReserved",
                format!("has {share:?}; expected a percentage such as 50%"),
            );
        }
    }
}

fn enforcements(c: &KubeletConfiguration, checks: &mut FieldErrors) {
    let field = "enforceNodeAllocatable";
    let all = &c.enforce_node_allocatable;
    let has = |word: &str| all.iter().any(|found| found == word);
    for (whole, part) in [
        ("system-reserved", "system-reserved-compressible"),
        ("kube-reserved", "kube-reserved-compressible"),
    ] {
        if has(whole) && has(part) {
            checks.refuse(field, format!("cannot hold both {whole:?} and {part:?}"));
        }
    }
    let mut seen = BTreeSet::new();
    for word in all {
        if !seen.insert(word) {
            checks.refuse(field, format!("holds {word:?} twice"));
            continue;
        }
        let needs = match word.as_str() {
            "none" => {
                checks.require(
                    all.len() == 1,
                    field,
                    "cannot hold anything beside \"none\"",
                );
                continue;
            }
            "pods" => None,
            "system-reserved" | "system-reserved-compressible" => {
                Some(("systemReservedCgroup", &c.system_reserved_cgroup))
            }
            "kube-reserved" | "kube-reserved-compressible" => {
                Some(("kubeReservedCgroup", &c.kube_reserved_cgroup))
            }
            _ => {
                checks.one_of(field, word, &ENFORCEMENTS);
                continue;
            }
        };
        if let Some((needed, "")) = needs.map(|(needed, cgroup)| (needed, cgroup.as_str())) {
            checks.refuse(needed, format!("must be set when {field} holds {word:?}"));
        }
        if !c.cgroups_per_qos {
            checks.refuse(
                "cgroupsPerQOS",
                format!("must be true when {field} holds {word:?}"),
            );
        }
    }
}

fn cpus(c: &KubeletConfiguration, checks: &mut FieldErrors) {
    let (field, cpus) = ("reservedSystemCPUs", &c.reserved_system_cpus);
    if cpus.is_empty() {
        return;
    }
    checks.require(
        c.system_reserved_cgroup.is_empty() && c.kube_reserved_cgroup.is_empty(),
        field,
        "cannot be set together with systemReservedCgroup (--system-reserved-cgroup) or \
         kubeReservedCgroup (--kube-reserved-cgroup)",
    );
    if !cpus.split(',').all(is_cpu_range) {
        checks.refuse(
            field,
            format!("is {cpus:?}; expected CPUs and ranges such as 0-3,8"),
        );
    }
}

fn is_cpu_range(text: &str) -> bool {
    let number = |text: &str| text.parse::<u32>().ok().filter(|_| !text.starts_with('+'));
    match text.split_once('-') {
        None => number(text).is_some(),
        Some((first, last)) => match (number(first), number(last)) {
            (Some(first), Some(last)) => first <= last,
            _ => false,
        },
    }
}

fn numa_memory(c: &KubeletConfiguration, checks: &mut FieldErrors) {
    let field = "reservedMemory";
    let mut seen = BTreeSet::new();
    for reservation in &c.reserved_memory {
        let node = reservation.numa_node;
        for (kind, amount) in &reservation.limits {
            if !names::is_memory_resource(kind) {
                checks.refuse(
                    field,
                    format!(
                        "has {kind:?} for NUMA node {node}; expected memory or hugepages-<size>"
                    ),
                );
            }
            if amount.is_zero() {
                checks.refuse(
                    field,
                    format!("may not be zero for NUMA node {node} and {kind:?}"),
                );
            }
            if !seen.insert((node, kind)) {
                checks.refuse(field, format!("has NUMA node {node} and {kind:?} twice"));
            }
        }
    }
}

fn amounts(field: &'static str, reserved: &BTreeMap<String, String>, checks: &mut FieldErrors) {
    const RESOURCES: [&str; 4] = ["cpu", "memory", "ephemeral-storage", "pid"];
    for (resource, amount) in reserved {
        if !RESOURCES.contains(&resource.as_str()) {
            let known = RESOURCES.join(", ");
            checks.refuse(
                field,
                format!("cannot reserve {resource:?}; expected one of {known}"),
            );
            continue;
        }
        match amount.parse::<Quantity>() {
            Ok(amount) if amount.is_negative() => {
                checks.refuse(
                    field,
                    format!("has {amount} for {resource:?}; it must not be negative"),
                );
            }
            Ok(_) => {}
            Err(error) => checks.refuse(field, format!("for {resource:?}: {error}")),
        }
    }
}
