//! Rules of probes, lifecycle hooks and references to fields.

use k8s_openapi::api::core::v1::{
    ExecAction, GRPCAction, HTTPGetAction, Lifecycle, LifecycleHandler, ObjectFieldSelector, Probe,
    SleepAction, TCPSocketAction,
};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::{ProblemKind, Report, names, text};

pub(super) const ENVIRONMENT_FIELDS: &[&str] = &[
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];
pub(super) const VOLUME_FIELDS: &[&str] = &[
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
];
const TOO_MANY: &str = "may not specify more than 1 handler type";

pub(super) fn port_number(field: impl Into<String>, port: i32, report: &mut Report) {
    if !(1..=65535).contains(&port) {
        report.invalid(field, port, "must be between 1 and 65535, inclusive");
    }
}

fn port(field: String, port: &IntOrString, report: &mut Report) {
    match port {
        IntOrString::Int(number) => port_number(field, *number, report),
        IntOrString::String(name) => report.name(field, name, names::port),
    }
}

/// Whether a success threshold other than one makes sense: only being ready can flap.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Threshold {
    One,
    Any,
}

pub(super) fn probe(field: &str, probe: &Probe, threshold: Threshold, report: &mut Report) {
    let actions = Actions {
        exec: probe.exec.as_ref(),
        http_get: probe.http_get.as_ref(),
        tcp_socket: probe.tcp_socket.as_ref(),
        grpc: probe.grpc.as_ref(),
        sleep: None,
    };
    actions.check(field, None, report);
    let rows = [
        ("initialDelaySeconds", probe.initial_delay_seconds),
        ("timeoutSeconds", probe.timeout_seconds),
        ("periodSeconds", probe.period_seconds),
        ("successThreshold", probe.success_threshold),
        ("failureThreshold", probe.failure_threshold),
    ];
    for (name, value) in rows {
        report.not_negative(format!("{field}.{name}"), value.map(i64::from));
    }
    if let Some(grace) = probe
        .termination_grace_period_seconds
        .filter(|grace| *grace <= 0)
    {
        report.invalid(
            format!("{field}.terminationGracePeriodSeconds"),
            grace,
            "must be greater than 0",
        );
    }
    let successes = probe.success_threshold.unwrap_or(1);
    if threshold == Threshold::One && successes != 1 {
        report.invalid(format!("{field}.successThreshold"), successes, "must be 1");
    }
}

pub(super) fn lifecycle(
    field: &str,
    lifecycle: &Lifecycle,
    grace: Option<i64>,
    report: &mut Report,
) {
    let hooks = [
        ("postStart", &lifecycle.post_start),
        ("preStop", &lifecycle.pre_stop),
    ];
    for (name, hook) in hooks {
        if let Some(hook) = hook {
            Actions::of_hook(hook).check(&format!("{field}.{name}"), grace, report);
        }
    }
}

/// What a probe or a hook does: exactly one of these.
struct Actions<'a> {
    exec: Option<&'a ExecAction>,
    http_get: Option<&'a HTTPGetAction>,
    tcp_socket: Option<&'a TCPSocketAction>,
    grpc: Option<&'a GRPCAction>,
    sleep: Option<&'a SleepAction>,
}

impl<'a> Actions<'a> {
    fn of_hook(hook: &'a LifecycleHandler) -> Self {
        Self {
            exec: hook.exec.as_ref(),
            http_get: hook.http_get.as_ref(),
            tcp_socket: hook.tcp_socket.as_ref(),
            grpc: None,
            sleep: hook.sleep.as_ref(),
        }
    }

    fn check(&self, field: &str, grace: Option<i64>, report: &mut Report) {
        let names = [
            ("exec", self.exec.is_some()),
            ("httpGet", self.http_get.is_some()),
            ("tcpSocket", self.tcp_socket.is_some()),
            ("grpc", self.grpc.is_some()),
            ("sleep", self.sleep.is_some()),
        ];
        let mut used = names
            .into_iter()
            .filter(|(_, used)| *used)
            .map(|(name, _)| name);
        if used.next().is_none() {
            return report.add(
                field,
                ProblemKind::Required {
                    detail: "must specify a handler type",
                },
            );
        }
        for second in used {
            report.forbidden(format!("{field}.{second}"), TOO_MANY);
        }
        self.check_each(field, grace, report);
    }

    fn check_each(&self, field: &str, grace: Option<i64>, report: &mut Report) {
        if self
            .exec
            .is_some_and(|exec| exec.command.as_ref().is_none_or(Vec::is_empty))
        {
            report.required(format!("{field}.exec.command"));
        }
        if let Some(http) = self.http_get {
            port(format!("{field}.httpGet.port"), &http.port, report);
            report.one_of(
                format!("{field}.httpGet.scheme"),
                http.scheme.as_deref(),
                &["HTTP", "HTTPS"],
            );
            for header in http.http_headers.iter().flatten() {
                report.name(
                    format!("{field}.httpGet.httpHeaders"),
                    &header.name,
                    names::header,
                );
            }
        }
        if let Some(tcp) = self.tcp_socket {
            port(format!("{field}.tcpSocket.port"), &tcp.port, report);
        }
        if let Some(grpc) = self.grpc {
            port_number(format!("{field}.grpc.port"), grpc.port, report);
        }
        if let (Some(sleep), Some(grace)) = (self.sleep, grace)
            && !(0..=grace).contains(&sleep.seconds)
        {
            let detail = format!(
                "must be non-negative and less than terminationGracePeriodSeconds ({grace})"
            );
            report.invalid(format!("{field}.sleep"), sleep.seconds, detail);
        }
    }
}

/// A field of the pod, or one entry of its labels or annotations.
pub(super) fn field_reference(
    field: &str,
    reference: &ObjectFieldSelector,
    supported: &'static [&'static str],
    report: &mut Report,
) {
    let path = reference.field_path.as_str();
    if path.is_empty() {
        return report.required(format!("{field}.fieldPath"));
    }
    if text(reference.api_version.as_ref()) != "v1" {
        let detail = "error converting fieldPath: unsupported pod version";
        return report.invalid(format!("{field}.fieldPath"), path, detail);
    }
    let subscripted = path
        .strip_suffix("']")
        .and_then(|path| path.split_once("['"));
    match subscripted {
        Some(("metadata.annotations", key)) => report.name(field, key, names::annotation),
        Some(("metadata.labels", key)) => report.name(field, key, names::qualified),
        Some((path, _)) => report.invalid(field, path, "does not support subscript"),
        // An old name that upstream still takes for spec.nodeName.
        None if path == "spec.host" => {}
        None => report.one_of(format!("{field}.fieldPath"), Some(path), supported),
    }
}
