//! Rules of containers.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{
    Container, ContainerPort, EnvVar, EnvVarSource, PodSpec, SecurityContext, Volume, VolumeMount,
};

use super::handlers::{self, Threshold};
use super::{ProblemKind, Report, names, resources, spec, text};

pub(super) const PULL_POLICIES: &[&str] = &["Always", "IfNotPresent", "Never"];
const RESTART_POLICIES: &[&str] = &["Always", "Never", "OnFailure"];
const MAX_RESTART_RULES: usize = 20;
const ONLY_SIDECARS: &str = "may not be set for init containers without restartPolicy=Always";

type Volumes<'a> = BTreeMap<&'a str, &'a Volume>;

pub(super) fn check(spec: &PodSpec, volumes: &Volumes<'_>, report: &mut Report) {
    let grace = spec.termination_grace_period_seconds;
    if spec.containers.is_empty() {
        report.required("spec.containers");
    }
    let mut known = BTreeSet::new();
    let mut host_ports = BTreeSet::new();
    for (index, container) in spec.containers.iter().enumerate() {
        let field = format!("spec.containers[{index}]");
        common(&field, container, volumes, report);
        if !known.insert(container.name.as_str()) {
            report.duplicate(format!("{field}.name"), &container.name);
        }
        running(&field, container, grace, report);
        host_port_conflicts(&field, container, &mut host_ports, report);
    }
    for (index, container) in spec.init_containers.iter().flatten().enumerate() {
        let field = format!("spec.initContainers[{index}]");
        common(&field, container, volumes, report);
        if !container.name.is_empty() && !known.insert(container.name.as_str()) {
            report.duplicate(format!("{field}.name"), &container.name);
        }
        // Init containers run one by one, so each has the host's ports for itself.
        host_port_conflicts(&field, container, &mut BTreeSet::new(), report);
        if container.restart_policy.as_deref() == Some("Always") {
            running(&field, container, grace, report);
        } else {
            not_running(&field, container, report);
        }
    }
}

/// What only a container that stays may have.
fn running(field: &str, container: &Container, grace: Option<i64>, report: &mut Report) {
    if let Some(lifecycle) = &container.lifecycle {
        handlers::lifecycle(&format!("{field}.lifecycle"), lifecycle, grace, report);
    }
    let rows = [
        ("livenessProbe", &container.liveness_probe, Threshold::One),
        ("readinessProbe", &container.readiness_probe, Threshold::Any),
        ("startupProbe", &container.startup_probe, Threshold::One),
    ];
    for (name, probe, threshold) in rows {
        if let Some(probe) = probe {
            handlers::probe(&format!("{field}.{name}"), probe, threshold, report);
        }
    }
}

fn not_running(field: &str, container: &Container, report: &mut Report) {
    let rows = [
        ("lifecycle", container.lifecycle.is_some()),
        ("livenessProbe", container.liveness_probe.is_some()),
        ("readinessProbe", container.readiness_probe.is_some()),
        ("startupProbe", container.startup_probe.is_some()),
    ];
    for (name, _) in rows.into_iter().filter(|(_, used)| *used) {
        report.forbidden(format!("{field}.{name}"), ONLY_SIDECARS);
    }
}

fn common(field: &str, container: &Container, volumes: &Volumes<'_>, report: &mut Report) {
    if container.name.is_empty() {
        report.required(format!("{field}.name"));
    } else {
        report.name(format!("{field}.name"), &container.name, names::label);
    }
    if text(container.image.as_ref()).is_empty() {
        report.required(format!("{field}.image"));
    }
    let policy = container.termination_message_policy.as_deref();
    report.one_of(
        format!("{field}.terminationMessagePolicy"),
        policy,
        &["File", "FallbackToLogsOnError"],
    );
    ports(
        field,
        container.ports.as_deref().unwrap_or_default(),
        report,
    );
    for (index, variable) in container.env.iter().flatten().enumerate() {
        environment(&format!("{field}.env[{index}]"), variable, report);
    }
    for (index, source) in container.env_from.iter().flatten().enumerate() {
        if source.config_map_ref.is_none() && source.secret_ref.is_none() {
            let detail = "must specify one of: `configMapRef` or `secretRef`";
            report.invalid(format!("{field}.envFrom[{index}]"), "", detail);
        }
    }
    mounts(field, container, volumes, report);
    report.one_of(
        format!("{field}.imagePullPolicy"),
        container.image_pull_policy.as_deref(),
        PULL_POLICIES,
    );
    if let Some(resources) = &container.resources {
        resources::of_container(&format!("{field}.resources"), resources, report);
    }
    if let Some(security) = &container.security_context {
        security_context(&format!("{field}.securityContext"), security, report);
    }
    restart_rules(field, container, report);
}

fn ports(field: &str, ports: &[ContainerPort], report: &mut Report) {
    let mut known = BTreeSet::new();
    for (index, port) in ports.iter().enumerate() {
        let field = format!("{field}.ports[{index}]");
        let name = text(port.name.as_ref());
        if !name.is_empty() {
            let before = report.problems.len();
            report.name(format!("{field}.name"), name, names::port);
            if report.problems.len() == before && !known.insert(name) {
                report.duplicate(format!("{field}.name"), name);
            }
        }
        if port.container_port == 0 {
            report.required(format!("{field}.containerPort"));
        } else {
            handlers::port_number(
                format!("{field}.containerPort"),
                port.container_port,
                report,
            );
        }
        if let Some(host_port) = port.host_port.filter(|port| *port != 0) {
            handlers::port_number(format!("{field}.hostPort"), host_port, report);
        }
        report.one_of(
            format!("{field}.protocol"),
            port.protocol.as_deref(),
            &["SCTP", "TCP", "UDP"],
        );
    }
}

fn host_port_conflicts(
    field: &str,
    container: &Container,
    taken: &mut BTreeSet<String>,
    report: &mut Report,
) {
    for (index, port) in container.ports.iter().flatten().enumerate() {
        let Some(host_port) = port.host_port.filter(|port| *port != 0) else {
            continue;
        };
        let place = format!(
            "{}/{}/{host_port}",
            text(port.protocol.as_ref()),
            text(port.host_ip.as_ref())
        );
        if taken.contains(&place) {
            report.duplicate(format!("{field}.ports[{index}].hostPort"), &place);
        } else {
            taken.insert(place);
        }
    }
}

fn environment(field: &str, variable: &EnvVar, report: &mut Report) {
    if variable.name.is_empty() {
        report.required(format!("{field}.name"));
    } else {
        report.name(format!("{field}.name"), &variable.name, names::variable);
    }
    if let Some(source) = &variable.value_from {
        value_from(
            &format!("{field}.valueFrom"),
            source,
            text(variable.value.as_ref()),
            report,
        );
    }
}

fn value_from(field: &str, source: &EnvVarSource, value: &str, report: &mut Report) {
    if let Some(reference) = &source.field_ref {
        handlers::field_reference(
            &format!("{field}.fieldRef"),
            reference,
            handlers::ENVIRONMENT_FIELDS,
            report,
        );
    }
    if let Some(reference) = &source.resource_field_ref {
        resource_reference(
            &format!("{field}.resourceFieldRef"),
            &reference.resource,
            report,
        );
    }
    let sources = [
        source.field_ref.is_some(),
        source.resource_field_ref.is_some(),
        source.config_map_key_ref.is_some(),
        source.secret_key_ref.is_some(),
        source.file_key_ref.is_some(),
    ];
    match sources.into_iter().filter(|used| *used).count() {
        0 => {
            let detail = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`";
            report.invalid(field, "", detail);
        }
        _ if !value.is_empty() => {
            report.invalid(field, "", "may not be specified when `value` is not empty")
        }
        1 => {}
        _ => report.invalid(
            field,
            "",
            "may not have more than one field specified at a time",
        ),
    }
}

fn resource_reference(field: &str, resource: &str, report: &mut Report) {
    const SUPPORTED: &[&str] = &[
        "limits.cpu",
        "limits.ephemeral-storage",
        "limits.memory",
        "requests.cpu",
        "requests.ephemeral-storage",
        "requests.memory",
    ];
    let is_huge_pages =
        resource.starts_with("limits.hugepages-") || resource.starts_with("requests.hugepages-");
    if !is_huge_pages {
        report.one_of(format!("{field}.resource"), Some(resource), SUPPORTED);
    }
}

fn mounts(field: &str, container: &Container, volumes: &Volumes<'_>, report: &mut Report) {
    let privileged = container
        .security_context
        .as_ref()
        .and_then(|security| security.privileged)
        == Some(true);
    let devices = container.volume_devices.as_deref().unwrap_or_default();
    let mut paths = BTreeSet::new();
    for (index, mount) in container.volume_mounts.iter().flatten().enumerate() {
        let field = format!("{field}.volumeMounts[{index}]");
        if mount.name.is_empty() {
            report.required(format!("{field}.name"));
        }
        match volumes.get(mount.name.as_str()) {
            None => report.not_found(format!("{field}.name"), &mount.name),
            Some(volume) => of_image(&field, mount, volume, report),
        }
        if mount.mount_path.is_empty() {
            report.required(format!("{field}.mountPath"));
        }
        if !paths.insert(mount.mount_path.as_str()) {
            report.invalid(
                format!("{field}.mountPath"),
                &mount.mount_path,
                "must be unique",
            );
        }
        if devices.iter().any(|device| device.name == mount.name) {
            report.invalid(
                format!("{field}.name"),
                &mount.name,
                "must not already exist in volumeDevices",
            );
        }
        mount_options(&field, mount, privileged, report);
    }
    for (index, device) in devices.iter().enumerate() {
        let field = format!("{field}.volumeDevices[{index}].name");
        if !volumes.contains_key(device.name.as_str()) {
            report.not_found(field, &device.name);
        } else {
            let detail = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode";
            report.invalid(field, &device.name, detail);
        }
    }
}

fn of_image(field: &str, mount: &VolumeMount, volume: &Volume, report: &mut Report) {
    let expression = text(mount.sub_path_expr.as_ref());
    if volume.image.is_some() && !expression.is_empty() {
        report.invalid(
            format!("{field}.subPathExpr"),
            expression,
            "not allowed in image volume sources",
        );
    }
}

fn mount_options(field: &str, mount: &VolumeMount, privileged: bool, report: &mut Report) {
    let (sub_path, expression) = (
        text(mount.sub_path.as_ref()),
        text(mount.sub_path_expr.as_ref()),
    );
    report.name(format!("{field}.subPath"), sub_path, names::descending);
    report.name(
        format!("{field}.subPathExpr"),
        expression,
        names::descending,
    );
    if !sub_path.is_empty() && !expression.is_empty() {
        let detail = "subPathExpr and subPath are mutually exclusive";
        report.invalid(format!("{field}.subPathExpr"), expression, detail);
    }
    let propagation = mount.mount_propagation.as_deref();
    if propagation.is_some() {
        let known = &["Bidirectional", "HostToContainer", "None"];
        report.one_of(format!("{field}.mountPropagation"), propagation, known);
    }
    if propagation == Some("Bidirectional") && !privileged {
        let detail = "Bidirectional mount propagation is available only to privileged containers";
        report.forbidden(format!("{field}.mountPropagation"), detail);
    }
    let Some(recursive) = mount.recursive_read_only.as_deref() else {
        return;
    };
    let field = format!("{field}.recursiveReadOnly");
    report.one_of(
        field.clone(),
        Some(recursive),
        &["Disabled", "Enabled", "IfPossible"],
    );
    if matches!(recursive, "Enabled" | "IfPossible") {
        if mount.read_only != Some(true) {
            report.forbidden(field.clone(), "may only be specified when readOnly is true");
        }
        if propagation.is_some_and(|mode| mode != "None") {
            report.forbidden(
                field,
                "may only be specified when mountPropagation is None or not specified",
            );
        }
    }
}

fn security_context(field: &str, security: &SecurityContext, report: &mut Report) {
    spec::user_id(format!("{field}.runAsUser"), security.run_as_user, report);
    spec::user_id(format!("{field}.runAsGroup"), security.run_as_group, report);
    if let Some(mode) = security.proc_mount.as_deref() {
        report.one_of(
            format!("{field}.procMount"),
            Some(mode),
            &["Default", "Unmasked"],
        );
    }
    if let Some(profile) = &security.seccomp_profile {
        let local = profile.localhost_profile.as_deref();
        spec::profile(
            &format!("{field}.seccompProfile"),
            &profile.type_,
            local,
            report,
        );
    }
    if let Some(profile) = &security.app_armor_profile {
        let local = profile.localhost_profile.as_deref();
        spec::profile(
            &format!("{field}.appArmorProfile"),
            &profile.type_,
            local,
            report,
        );
    }
    if security.allow_privilege_escalation != Some(false) {
        return;
    }
    if security.privileged == Some(true) {
        let detail = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true";
        report.invalid(field, "", detail);
    }
    let added = security
        .capabilities
        .iter()
        .filter_map(|capabilities| capabilities.add.as_ref())
        .flatten();
    if added
        .into_iter()
        .any(|capability| capability == "CAP_SYS_ADMIN")
    {
        let detail =
            "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN";
        report.invalid(field, "", detail);
    }
}

fn restart_rules(field: &str, container: &Container, report: &mut Report) {
    if let Some(policy) = container.restart_policy.as_deref() {
        report.one_of(
            format!("{field}.restartPolicy"),
            Some(policy),
            RESTART_POLICIES,
        );
    }
    let rules = container
        .restart_policy_rules
        .as_deref()
        .unwrap_or_default();
    if !rules.is_empty() && container.restart_policy.is_none() {
        let detail = "must specify restartPolicy when restart rules are used";
        report.add(
            format!("{field}.restartPolicy"),
            ProblemKind::Required { detail },
        );
    }
    let field = format!("{field}.restartPolicyRules");
    if rules.len() > MAX_RESTART_RULES {
        report.invalid(field.clone(), rules.len(), "must have at most 20 items");
    }
    for (index, rule) in rules.iter().enumerate() {
        let field = format!("{field}[{index}]");
        report.one_of(
            format!("{field}.action"),
            Some(&rule.action),
            &["Restart", "RestartAllContainers"],
        );
        match &rule.exit_codes {
            None => report.required(format!("{field}.exitCodes")),
            Some(codes) => {
                report.one_of(
                    format!("{field}.exitCodes.operator"),
                    Some(&codes.operator),
                    &["In", "NotIn"],
                );
            }
        }
    }
}
