//! Rules of the pod's own fields; its containers and volumes have files of their own.

use k8s_openapi::api::core::v1::{Pod, PodDNSConfig, PodSpec};

use super::{
    FieldErrorKind, FieldErrors, containers, metadata, names, os, resources, scheduling, security,
    text, volumes, windows,
};
use crate::manifest::validate::containers::environment;
use crate::manifest::validate::scheduling::affinity;

const NO_HOST_USERS: &str = "when `hostUsers` is false";
/// Characters of `hostnameOverride`: what the kernel takes for a host name.
const MAX_HOST_NAME: usize = 64;
/// Name servers of `dnsConfig`: the API's bound, and what resolvers read.
const MAX_NAMESERVERS: usize = 3;
/// Search domains of `dnsConfig`: the API's bound.
const MAX_SEARCHES: usize = 32;
/// Characters of all search domains with the spaces between them: the API's bound.
const MAX_SEARCH_CHARACTERS: usize = 2048;

pub(super) fn check(pod: &Pod, spec: &PodSpec, report: &mut FieldErrors) {
    if spec.termination_grace_period_seconds.is_none() {
        report.required("spec.terminationGracePeriodSeconds");
    }
    let volumes = volumes::check(pod, spec.volumes.as_deref().unwrap_or_default(), report);
    scheduling::claims(spec.resource_claims.as_deref().unwrap_or_default(), report);
    containers::check(spec, &volumes, report);
    resources::of_pod(pod, spec, report);
    policies(spec, report);
    host_namespaces(spec, report);
    if let Some(security) = &spec.security_context {
        security::of_pod(spec, security, report);
    }
    if let Some(affinity) = &spec.affinity {
        affinity::check(affinity, report);
    }
    dns(spec, report);
    scheduled(spec, report);
    windows::host_processes(spec, report);
    host_name(spec, report);
    node_names(spec, report);
    host_aliases(spec, report);
    if let Some(overhead) = &spec.overhead {
        resources::overhead(overhead, report);
    }
    environment::file_volumes(spec, report);
    os::check(spec, report);
    volumes::tokens(spec, report);
    let debuggers = spec.ephemeral_containers.as_ref();
    if debuggers.is_some_and(|list| !list.is_empty()) {
        report.forbidden("spec.ephemeralContainers", "cannot be set on create");
    }
}

fn scheduled(spec: &PodSpec, report: &mut FieldErrors) {
    for (index, gate) in spec.readiness_gates.iter().flatten().enumerate() {
        report.name(
            format!("spec.readinessGates[{index}].conditionType"),
            &gate.condition_type,
            names::qualified,
        );
    }
    scheduling::gates(spec.scheduling_gates.as_deref().unwrap_or_default(), report);
    let constraints = spec.topology_spread_constraints.as_deref();
    scheduling::spread(constraints.unwrap_or_default(), report);
    for (index, toleration) in spec.tolerations.iter().flatten().enumerate() {
        let field = format!("spec.tolerations[{index}]");
        scheduling::toleration(&field, toleration, report);
    }
}

fn host_name(spec: &PodSpec, report: &mut FieldErrors) {
    const FIELD: &str = "spec.hostnameOverride";
    let Some(name) = &spec.hostname_override else {
        return;
    };
    if spec.set_hostname_as_fqdn == Some(true) {
        let detail = "may not be specified when setHostnameAsFQDN is true";
        report.forbidden(FIELD, detail);
    }
    if spec.host_network == Some(true) {
        report.forbidden(FIELD, "may not be specified when hostNetwork is true");
    }
    report.too_long(FIELD, name.len(), MAX_HOST_NAME);
    report.name(FIELD, name, names::subdomain);
}

fn host_aliases(spec: &PodSpec, report: &mut FieldErrors) {
    for (index, alias) in spec.host_aliases.iter().flatten().enumerate() {
        let field = format!("spec.hostAliases[{index}]");
        report.name(format!("{field}.ip"), &alias.ip, names::ip);
        for (place, name) in alias.hostnames.iter().flatten().enumerate() {
            let field = format!("{field}.hostnames[{place}]");
            report.name(field, name, names::subdomain);
        }
    }
}

fn policies(spec: &PodSpec, report: &mut FieldErrors) {
    report.one_of(
        "spec.restartPolicy",
        spec.restart_policy.as_deref(),
        &["Always", "OnFailure", "Never"],
    );
    const DNS: &[&str] = &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
    report.one_of("spec.dnsPolicy", spec.dns_policy.as_deref(), DNS);
    if let Some(policy) = &spec.preemption_policy {
        report.one_of(
            "spec.preemptionPolicy",
            Some(policy),
            &["PreemptLowerPriority", "Never"],
        );
    }
    if let Some(seconds) = spec.active_deadline_seconds {
        let field = "spec.activeDeadlineSeconds";
        report.between(field, seconds, 1..=i32::MAX.into());
    }
}

fn host_namespaces(spec: &PodSpec, report: &mut FieldErrors) {
    if spec.host_pid == Some(true) && spec.share_process_namespace == Some(true) {
        report.invalid(
            "spec.securityContext.shareProcessNamespace",
            true,
            "ShareProcessNamespace and HostPID cannot both be enabled",
        );
    }
    if spec.host_users == Some(false) {
        let rows = [
            (spec.host_network, "spec.hostNetwork"),
            (spec.host_pid, "spec.HostPID"),
            (spec.host_ipc, "spec.HostIPC"),
        ];
        for (_, field) in rows.into_iter().filter(|(used, _)| *used == Some(true)) {
            report.forbidden(field, NO_HOST_USERS);
        }
        block_devices(spec, report);
    }
    if spec.host_network != Some(true) {
        return;
    }
    for (index, container) in spec.containers.iter().enumerate() {
        for (place, port) in container.ports.iter().flatten().enumerate() {
            let host_port = port.host_port.unwrap_or(0);
            if host_port != port.container_port {
                let field = format!("spec.containers[{index}].ports[{place}].hostPort");
                report.invalid(
                    field,
                    host_port,
                    "must match `containerPort` when `hostNetwork` is true",
                );
            }
        }
    }
}

/// A block device cannot be mapped to the pod's users.
fn block_devices(spec: &PodSpec, report: &mut FieldErrors) {
    let init = spec.init_containers.iter().flatten().enumerate();
    let init = init.map(|(index, container)| (format!("spec.initContainers[{index}]"), container));
    let apps = spec.containers.iter().enumerate();
    let apps = apps.map(|(index, container)| (format!("spec.containers[{index}]"), container));
    for (field, container) in init.chain(apps) {
        let devices = container.volume_devices.as_deref().unwrap_or_default();
        if !devices.is_empty() {
            report.forbidden(format!("{field}.volumeDevices"), NO_HOST_USERS);
        }
    }
}

fn dns(spec: &PodSpec, report: &mut FieldErrors) {
    if spec.dns_policy.as_deref() == Some("None") {
        let Some(config) = &spec.dns_config else {
            let detail = "must provide `dnsConfig` when `dnsPolicy` is None";
            return report.add("spec.dnsConfig", FieldErrorKind::Required { detail });
        };
        if config.nameservers.as_ref().is_none_or(Vec::is_empty) {
            let detail = "must provide at least one DNS nameserver when `dnsPolicy` is None";
            return report.add(
                "spec.dnsConfig.nameservers",
                FieldErrorKind::Required { detail },
            );
        }
    }
    if let Some(config) = &spec.dns_config {
        dns_config(config, report);
    }
}

fn dns_config(config: &PodDNSConfig, report: &mut FieldErrors) {
    let nameservers = config.nameservers.as_deref().unwrap_or_default();
    if nameservers.len() > MAX_NAMESERVERS {
        report.invalid(
            "spec.dnsConfig.nameservers",
            nameservers,
            "must not have more than 3 nameservers",
        );
    }
    for (index, address) in nameservers.iter().enumerate() {
        report.name(
            format!("spec.dnsConfig.nameservers[{index}]"),
            address,
            names::ip,
        );
    }
    let searches = config.searches.as_deref().unwrap_or_default();
    if searches.len() > MAX_SEARCHES {
        report.invalid(
            "spec.dnsConfig.searches",
            searches,
            "must not have more than 32 search paths",
        );
    }
    if searches.join(" ").len() > MAX_SEARCH_CHARACTERS {
        let detail =
            "must not have more than 2048 characters (including spaces) in the search list";
        report.invalid("spec.dnsConfig.searches", searches, detail);
    }
    for (index, search) in searches.iter().enumerate() {
        report.name(
            format!("spec.dnsConfig.searches[{index}]"),
            search,
            names::search_path,
        );
    }
    for (index, option) in config.options.iter().flatten().enumerate() {
        if text(option.name.as_ref()).is_empty() {
            let kind = FieldErrorKind::Required {
                detail: "must not be empty",
            };
            report.add(format!("spec.dnsConfig.options[{index}]"), kind);
        }
    }
}

/// What is wrong with a name.
type SpecNameRule = fn(&str) -> Vec<String>;

fn node_names(spec: &PodSpec, report: &mut FieldErrors) {
    if let Some(selector) = &spec.node_selector {
        metadata::labels("spec.nodeSelector", selector, report);
    }
    let rows: [(&str, Option<&String>, SpecNameRule); 5] = [
        (
            "spec.serviceAccountName",
            spec.service_account_name.as_ref(),
            names::subdomain,
        ),
        ("spec.nodeName", spec.node_name.as_ref(), names::subdomain),
        ("spec.hostname", spec.hostname.as_ref(), names::label),
        ("spec.subdomain", spec.subdomain.as_ref(), names::label),
        (
            "spec.priorityClassName",
            spec.priority_class_name.as_ref(),
            names::subdomain,
        ),
    ];
    for (field, value, rule) in rows {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            report.name(field, value, rule);
        }
    }
    if let Some(class) = &spec.runtime_class_name {
        report.name("spec.runtimeClassName", class, names::subdomain);
    }
}
