//! Rules of containers.

pub(super) mod environment;
pub(super) mod handlers;
mod mounts;

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Container, ContainerPort, PodSpec, Volume};

use self::handlers::{LifecycleRules, SuccessThreshold};
use super::security::Users;
use super::{FieldErrors, names, resources, security, text};

pub(super) const PULL_POLICIES: &[&str] = &["Always", "IfNotPresent", "Never"];
const RESTART_POLICIES: &[&str] = &["Always", "Never", "OnFailure"];
/// Restart rules of one container: the API's bound.
const MAX_RESTART_RULES: usize = 20;
/// Exit codes of one restart rule: the API's bound.
const MAX_EXIT_CODES: usize = 255;
const ONLY_SIDECARS: &str = "may not be set for init containers without restartPolicy=Always";

type DeclaredVolumes<'a> = BTreeMap<&'a str, &'a Volume>;

/// The pod's fields that its containers' rules depend on.
struct ContainerContext<'a> {
    hooks: LifecycleRules<'a>,
    restart_policy: &'a str,
    users: Users,
    volumes: &'a DeclaredVolumes<'a>,
    claims: BTreeSet<&'a str>,
}

pub(super) fn check(spec: &PodSpec, volumes: &DeclaredVolumes<'_>, report: &mut FieldErrors) {
    let claims = spec.resource_claims.iter().flatten();
    let frame = ContainerContext {
        hooks: LifecycleRules {
            grace: spec.termination_grace_period_seconds,
            os: spec.os.as_ref().map(|os| os.name.as_str()),
        },
        restart_policy: text(spec.restart_policy.as_ref()),
        users: match spec.host_users {
            Some(false) => Users::OfPod,
            Some(true) | None => Users::OfNode,
        },
        volumes,
        claims: claims
            .map(|claim| claim.name.as_str())
            .filter(|name| !name.is_empty())
            .collect(),
    };
    let mut known = BTreeSet::new();
    frame.apps(spec, &mut known, report);
    frame.init(spec, &mut known, report);
}

impl ContainerContext<'_> {
    fn apps<'a>(&self, spec: &'a PodSpec, known: &mut BTreeSet<&'a str>, report: &mut FieldErrors) {
        if spec.containers.is_empty() {
            report.required("spec.containers");
        }
        let mut host_ports = BTreeSet::new();
        for (index, container) in spec.containers.iter().enumerate() {
            let field = format!("spec.containers[{index}]");
            self.common(&field, container, report);
            if !known.insert(container.name.as_str()) {
                report.duplicate(format!("{field}.name"), &container.name);
            }
            self.running(&field, container, report);
            restart_rules(&field, container, report);
            host_port_conflicts(&field, container, &mut host_ports, report);
        }
    }

    fn init<'a>(&self, spec: &'a PodSpec, known: &mut BTreeSet<&'a str>, report: &mut FieldErrors) {
        for (index, container) in spec.init_containers.iter().flatten().enumerate() {
            let field = format!("spec.initContainers[{index}]");
            self.common(&field, container, report);
            restart_rules(&field, container, report);
            if !container.name.is_empty() && !known.insert(container.name.as_str()) {
                report.duplicate(format!("{field}.name"), &container.name);
            }
            // Init containers run one by one, so each has the host's ports for itself. Upstream checks each as if it
            // were the first.
            let first = "spec.initContainers[0]";
            host_port_conflicts(first, container, &mut BTreeSet::new(), report);
            if container.restart_policy.as_deref() == Some("Always") {
                self.running(&field, container, report);
            } else {
                not_running(&field, container, report);
            }
        }
    }

    fn common(&self, field: &str, container: &Container, report: &mut FieldErrors) {
        if container.name.is_empty() {
            report.required(format!("{field}.name"));
        } else {
            report.name(format!("{field}.name"), &container.name, names::label);
        }
        image(field, text(container.image.as_ref()), report);
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
        environment::check(field, container, report);
        mounts::check(field, container, self.volumes, report);
        report.one_of(
            format!("{field}.imagePullPolicy"),
            container.image_pull_policy.as_deref(),
            PULL_POLICIES,
        );
        if let Some(resources) = &container.resources {
            let field = format!("{field}.resources");
            resources::of_container(&field, resources, &self.claims, report);
        }
        self.resize_policy(&format!("{field}.resizePolicy"), container, report);
        if let Some(security) = &container.security_context {
            let field = format!("{field}.securityContext");
            security::of_container(&field, security, self.users, report);
        }
    }

    /// What only a container that stays may have.
    fn running(&self, field: &str, container: &Container, report: &mut FieldErrors) {
        if let Some(lifecycle) = &container.lifecycle {
            let field = format!("{field}.lifecycle");
            handlers::lifecycle(&field, lifecycle, self.hooks, report);
        }
        let rows = [
            (
                "livenessProbe",
                &container.liveness_probe,
                SuccessThreshold::One,
            ),
            (
                "readinessProbe",
                &container.readiness_probe,
                SuccessThreshold::Any,
            ),
            (
                "startupProbe",
                &container.startup_probe,
                SuccessThreshold::One,
            ),
        ];
        for (name, probe, threshold) in rows {
            if let Some(probe) = probe {
                handlers::probe(&format!("{field}.{name}"), probe, threshold, report);
            }
        }
    }

    fn resize_policy(&self, field: &str, container: &Container, report: &mut FieldErrors) {
        let mut known = BTreeSet::new();
        for (index, policy) in container.resize_policy.iter().flatten().enumerate() {
            let (resource, restart) = (&policy.resource_name, &policy.restart_policy);
            if !known.insert(resource) {
                report.duplicate(format!("{field}[{index}]"), resource);
            }
            report.one_of(field, Some(resource), &["cpu", "memory"]);
            report.one_of(field, Some(restart), &["NotRequired", "RestartContainer"]);
            if self.restart_policy == "Never" && restart != "NotRequired" {
                let detail = "must be 'NotRequired' when pod `restartPolicy` is 'Never'";
                report.invalid(field, restart, detail);
            }
        }
    }
}

fn image(field: &str, image: &str, report: &mut FieldErrors) {
    report.some(format!("{field}.image"), image);
    if image.trim() != image {
        let detail = "must not have leading or trailing whitespace";
        report.invalid(format!("{field}.image"), image, detail);
    }
}

fn not_running(field: &str, container: &Container, report: &mut FieldErrors) {
    let rows = [
        ("lifecycle", container.lifecycle.is_some()),
        ("livenessProbe", container.liveness_probe.is_some()),
        ("readinessProbe", container.readiness_probe.is_some()),
        ("startupProbe", container.startup_probe.is_some()),
    ];
    for (name, _) in rows.into_iter().filter(|(_, used)| *used) {
        report.forbidden(format!("{field}.{name}"), ONLY_SIDECARS);
    }
    for (index, policy) in container.resize_policy.iter().flatten().enumerate() {
        if policy.restart_policy == "RestartContainer" {
            let field = format!("{field}.resizePolicy[{index}].restartPolicy");
            let detail = "must not be set to 'RestartContainer' for non-sidecar initContainers";
            report.invalid(field, &policy.restart_policy, detail);
        }
    }
}

fn ports(field: &str, ports: &[ContainerPort], report: &mut FieldErrors) {
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
    report: &mut FieldErrors,
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

fn restart_rules(field: &str, container: &Container, report: &mut FieldErrors) {
    let rules = container
        .restart_policy_rules
        .as_deref()
        .unwrap_or_default();
    match container.restart_policy.as_deref() {
        Some(policy) => report.known(format!("{field}.restartPolicy"), policy, RESTART_POLICIES),
        None if rules.is_empty() => return,
        None => {
            let detail = "must specify restartPolicy when restart rules are used";
            report.missing(format!("{field}.restartPolicy"), detail);
        }
    }
    let field = format!("{field}.restartPolicyRules");
    report.too_many(field.clone(), rules.len(), MAX_RESTART_RULES);
    for (index, rule) in rules.iter().enumerate() {
        let field = format!("{field}[{index}]");
        let known = &["Restart", "RestartAllContainers"];
        report.known(format!("{field}.action"), &rule.action, known);
        let field = format!("{field}.exitCodes");
        let Some(codes) = &rule.exit_codes else {
            report.missing(field, "must be specified");
            continue;
        };
        let operator = codes.operator.as_str();
        report.known(format!("{field}.operator"), operator, &["In", "NotIn"]);
        let found = codes.values.as_ref().map_or(0, Vec::len);
        report.too_many(format!("{field}.values"), found, MAX_EXIT_CODES);
    }
}
