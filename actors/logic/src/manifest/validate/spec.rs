//! Rules of the pod's own fields; its containers and volumes have files of their own.

use k8s_openapi::api::core::v1::{PodDNSConfig, PodSecurityContext, PodSpec, Toleration};

use super::{ProblemKind, Report, containers, metadata, names, resources, text, volumes};

const MAX_NAMESERVERS: usize = 3;
const MAX_SEARCHES: usize = 32;
const MAX_SEARCH_CHARACTERS: usize = 2048;

pub(super) fn check(spec: &PodSpec, report: &mut Report) {
    let volumes = volumes::check(spec.volumes.as_deref().unwrap_or_default(), report);
    containers::check(spec, &volumes, report);
    if let Some(of_pod) = &spec.resources {
        resources::of_pod(of_pod, report);
    }
    policies(spec, report);
    host_namespaces(spec, report);
    if let Some(security) = &spec.security_context {
        security_context(security, report);
    }
    dns(spec, report);
    node_names(spec, report);
    for (index, toleration) in spec.tolerations.iter().flatten().enumerate() {
        self::toleration(&format!("spec.tolerations[{index}]"), toleration, report);
    }
    for (index, alias) in spec.host_aliases.iter().flatten().enumerate() {
        report.name(
            format!("spec.hostAliases[{index}].ip"),
            &alias.ip,
            names::ip,
        );
        for (place, name) in alias.hostnames.iter().flatten().enumerate() {
            report.name(
                format!("spec.hostAliases[{index}].hostnames[{place}]"),
                name,
                names::subdomain,
            );
        }
    }
    if spec
        .ephemeral_containers
        .as_ref()
        .is_some_and(|list| !list.is_empty())
    {
        report.forbidden("spec.ephemeralContainers", "cannot be set on create");
    }
    if spec
        .scheduling_gates
        .as_ref()
        .is_some_and(|list| !list.is_empty())
    {
        report.forbidden(
            "spec.nodeName",
            "cannot be set until all schedulingGates have been cleared",
        );
    }
}

fn policies(spec: &PodSpec, report: &mut Report) {
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
    if let Some(os) = &spec.os {
        report.one_of("spec.os.name", Some(&os.name), &["linux", "windows"]);
    }
    if let Some(seconds) = spec
        .active_deadline_seconds
        .filter(|seconds| !(1..=i64::from(i32::MAX)).contains(seconds))
    {
        report.invalid(
            "spec.activeDeadlineSeconds",
            seconds,
            "must be between 1 and 2147483647, inclusive",
        );
    }
    for (index, gate) in spec.readiness_gates.iter().flatten().enumerate() {
        report.name(
            format!("spec.readinessGates[{index}].conditionType"),
            &gate.condition_type,
            names::qualified,
        );
    }
}

fn host_namespaces(spec: &PodSpec, report: &mut Report) {
    if spec.host_pid == Some(true) && spec.share_process_namespace == Some(true) {
        report.invalid(
            "spec.shareProcessNamespace",
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
            report.forbidden(field, "when `pod.Spec.HostUsers` is false");
        }
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

pub(super) fn user_id(field: impl Into<String>, id: Option<i64>, report: &mut Report) {
    if let Some(id) = id.filter(|id| !(0..=i64::from(i32::MAX)).contains(id)) {
        report.invalid(field, id, "must be between 0 and 2147483647, inclusive");
    }
}

fn security_context(security: &PodSecurityContext, report: &mut Report) {
    const FIELD: &str = "spec.securityContext";
    user_id(format!("{FIELD}.fsGroup"), security.fs_group, report);
    user_id(format!("{FIELD}.runAsUser"), security.run_as_user, report);
    user_id(format!("{FIELD}.runAsGroup"), security.run_as_group, report);
    for (index, group) in security.supplemental_groups.iter().flatten().enumerate() {
        user_id(
            format!("{FIELD}.supplementalGroups[{index}]"),
            Some(*group),
            report,
        );
    }
    let mut names: Vec<&str> = Vec::new();
    for (index, sysctl) in security.sysctls.iter().flatten().enumerate() {
        let field = format!("{FIELD}.sysctls[{index}].name");
        if sysctl.name.is_empty() {
            report.required(field);
        } else if names.contains(&sysctl.name.as_str()) {
            report.duplicate(field, &sysctl.name);
        } else {
            names.push(&sysctl.name);
        }
    }
    if let Some(policy) = &security.fs_group_change_policy {
        report.one_of(
            format!("{FIELD}.fsGroupChangePolicy"),
            Some(policy),
            &["Always", "OnRootMismatch"],
        );
    }
    if let Some(profile) = &security.seccomp_profile {
        let local = profile.localhost_profile.as_deref();
        self::profile(
            &format!("{FIELD}.seccompProfile"),
            &profile.type_,
            local,
            report,
        );
    }
    if let Some(profile) = &security.app_armor_profile {
        let local = profile.localhost_profile.as_deref();
        self::profile(
            &format!("{FIELD}.appArmorProfile"),
            &profile.type_,
            local,
            report,
        );
    }
}

/// A seccomp or AppArmor profile: a file's name goes with `Localhost` and with nothing else.
pub(super) fn profile(field: &str, kind: &str, local: Option<&str>, report: &mut Report) {
    report.one_of(
        format!("{field}.type"),
        Some(kind),
        &["Localhost", "RuntimeDefault", "Unconfined"],
    );
    let field = format!("{field}.localhostProfile");
    match (kind, local) {
        ("Localhost", None | Some("")) => {
            report.add(
                field,
                ProblemKind::Required {
                    detail: "must be set when type is Localhost",
                },
            );
        }
        ("Localhost", Some(path)) => report.name(field, path, names::no_backsteps),
        (_, Some(path)) => report.invalid(field, path, "can only be set when type is Localhost"),
        (_, None) => {}
    }
}

fn dns(spec: &PodSpec, report: &mut Report) {
    if spec.dns_policy.as_deref() == Some("None") {
        let Some(config) = &spec.dns_config else {
            let detail = "must provide `dnsConfig` when `dnsPolicy` is None";
            return report.add("spec.dnsConfig", ProblemKind::Required { detail });
        };
        if config.nameservers.as_ref().is_none_or(Vec::is_empty) {
            let detail = "must provide at least one DNS nameserver when `dnsPolicy` is None";
            return report.add(
                "spec.dnsConfig.nameservers",
                ProblemKind::Required { detail },
            );
        }
    }
    if let Some(config) = &spec.dns_config {
        dns_config(config, report);
    }
}

fn dns_config(config: &PodDNSConfig, report: &mut Report) {
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
            let kind = ProblemKind::Required {
                detail: "must not be empty",
            };
            report.add(format!("spec.dnsConfig.options[{index}]"), kind);
        }
    }
}

/// What is wrong with a name.
type NameRule = fn(&str) -> Vec<String>;

fn node_names(spec: &PodSpec, report: &mut Report) {
    if let Some(selector) = &spec.node_selector {
        metadata::labels("spec.nodeSelector", selector, report);
    }
    let rows: [(&str, Option<&String>, NameRule); 7] = [
        (
            "spec.serviceAccountName",
            spec.service_account_name.as_ref(),
            names::subdomain,
        ),
        ("spec.nodeName", spec.node_name.as_ref(), names::subdomain),
        ("spec.hostname", spec.hostname.as_ref(), names::label),
        (
            "spec.hostnameOverride",
            spec.hostname_override.as_ref(),
            names::subdomain,
        ),
        ("spec.subdomain", spec.subdomain.as_ref(), names::label),
        (
            "spec.priorityClassName",
            spec.priority_class_name.as_ref(),
            names::subdomain,
        ),
        (
            "spec.runtimeClassName",
            spec.runtime_class_name.as_ref(),
            names::subdomain,
        ),
    ];
    for (field, value, rule) in rows {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            report.name(field, value, rule);
        }
    }
}

fn toleration(field: &str, toleration: &Toleration, report: &mut Report) {
    let (key, operator) = (
        text(toleration.key.as_ref()),
        text(toleration.operator.as_ref()),
    );
    let (value, effect) = (
        text(toleration.value.as_ref()),
        text(toleration.effect.as_ref()),
    );
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
    match operator {
        "" | "Equal" => report.name(format!("{field}.operator"), value, names::label_value),
        "Exists" if !value.is_empty() => {
            report.invalid(
                format!("{field}.operator"),
                value,
                "value must be empty when `operator` is 'Exists'",
            );
        }
        "Exists" | "Lt" | "Gt" => {}
        other => report.one_of(
            format!("{field}.operator"),
            Some(other),
            &["Equal", "Exists"],
        ),
    }
    if !effect.is_empty() {
        report.one_of(
            format!("{field}.effect"),
            Some(effect),
            &["NoExecute", "NoSchedule", "PreferNoSchedule"],
        );
    }
}
