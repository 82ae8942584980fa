//! Rules of probes, lifecycle hooks and references to fields.

use k8s_openapi::api::core::v1::{
    ExecAction, GRPCAction, HTTPGetAction, Lifecycle, LifecycleHandler, ObjectFieldSelector, Probe,
    SleepAction, TCPSocketAction,
};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::manifest::validate::{FieldErrors, names, text};

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
pub(in crate::manifest::validate) const VOLUME_FIELDS: &[&str] = &[
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
];
const SIGNALS: &[&str] = &[
    "SIGABRT",
    "SIGALRM",
    "SIGBUS",
    "SIGCHLD",
    "SIGCLD",
    "SIGCONT",
    "SIGFPE",
    "SIGHUP",
    "SIGILL",
    "SIGINT",
    "SIGIO",
    "SIGIOT",
    "SIGKILL",
    "SIGPIPE",
    "SIGPOLL",
    "SIGPROF",
    "SIGPWR",
    "SIGQUIT",
    "SIGRTMAX",
    "SIGRTMAX-1",
    "SIGRTMAX-10",
    "SIGRTMAX-11",
    "SIGRTMAX-12",
    "SIGRTMAX-13",
    "SIGRTMAX-14",
    "SIGRTMAX-2",
    "SIGRTMAX-3",
    "SIGRTMAX-4",
    "SIGRTMAX-5",
    "SIGRTMAX-6",
    "SIGRTMAX-7",
    "SIGRTMAX-8",
    "SIGRTMAX-9",
    "SIGRTMIN",
    "SIGRTMIN+1",
    "SIGRTMIN+10",
    "SIGRTMIN+11",
    "SIGRTMIN+12",
    "SIGRTMIN+13",
    "SIGRTMIN+14",
    "SIGRTMIN+15",
    "SIGRTMIN+2",
    "SIGRTMIN+3",
    "SIGRTMIN+4",
    "SIGRTMIN+5",
    "SIGRTMIN+6",
    "SIGRTMIN+7",
    "SIGRTMIN+8",
    "SIGRTMIN+9",
    "SIGSEGV",
    "SIGSTKFLT",
    "SIGSTOP",
    "SIGSYS",
    "SIGTERM",
    "SIGTRAP",
    "SIGTSTP",
    "SIGTTIN",
    "SIGTTOU",
    "SIGURG",
    "SIGUSR1",
    "SIGUSR2",
    "SIGVTALRM",
    "SIGWINCH",
    "SIGXCPU",
    "SIGXFSZ",
];
const TOO_MANY: &str = "may not specify more than 1 handler type";

pub(super) fn port_number(field: impl Into<String>, port: i32, report: &mut FieldErrors) {
    if !(1..=65535).contains(&port) {
        report.invalid(field, port, "must be between 1 and 65535, inclusive");
    }
}

fn port(field: String, port: &IntOrString, report: &mut FieldErrors) {
    match port {
        IntOrString::Int(number) => port_number(field, *number, report),
        IntOrString::String(name) => report.name(field, name, names::port),
    }
}

/// Whether a success threshold other than one makes sense: only being ready can flap.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum SuccessThreshold {
    One,
    Any,
}

pub(super) fn probe(
    field: &str,
    probe: &Probe,
    threshold: SuccessThreshold,
    report: &mut FieldErrors,
) {
    let actions = HandlerActions {
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
    if threshold == SuccessThreshold::Any
        && let Some(grace) = probe.termination_grace_period_seconds
    {
        report.invalid(
            format!("{field}.terminationGracePeriodSeconds"),
            grace,
            "must not be set for readinessProbes",
        );
    }
    let successes = probe.success_threshold.unwrap_or(1);
    if threshold == SuccessThreshold::One && successes != 1 {
        report.invalid(format!("{field}.successThreshold"), successes, "must be 1");
    }
}

/// The pod's fields that its hooks' rules depend on.
#[derive(Clone, Copy)]
pub(super) struct LifecycleRules<'a> {
    pub(super) grace: Option<i64>,
    pub(super) os: Option<&'a str>,
}

pub(super) fn lifecycle(
    field: &str,
    lifecycle: &Lifecycle,
    of_pod: LifecycleRules<'_>,
    report: &mut FieldErrors,
) {
    if let Some(signal) = &lifecycle.stop_signal {
        stop_signal(format!("{field}.stopSignal"), signal, of_pod.os, report);
    }
    let hooks = [
        ("postStart", &lifecycle.post_start),
        ("preStop", &lifecycle.pre_stop),
    ];
    for (name, hook) in hooks {
        if let Some(hook) = hook {
            HandlerActions::of_hook(hook).check(&format!("{field}.{name}"), of_pod.grace, report);
        }
    }
}

fn stop_signal(field: String, signal: &str, os: Option<&str>, report: &mut FieldErrors) {
    match os {
        None => {
            let detail = "may not be set for containers with empty `spec.os.name`";
            report.forbidden(field, detail);
        }
        Some("windows") => report.known(field, signal, &["SIGKILL", "SIGTERM"]),
        Some("linux") => report.known(field, signal, SIGNALS),
        Some(_) => {}
    }
}

/// The actions of a probe or a hook: exactly one must be set.
struct HandlerActions<'a> {
    exec: Option<&'a ExecAction>,
    http_get: Option<&'a HTTPGetAction>,
    tcp_socket: Option<&'a TCPSocketAction>,
    grpc: Option<&'a GRPCAction>,
    sleep: Option<&'a SleepAction>,
}

impl<'a> HandlerActions<'a> {
    fn of_hook(hook: &'a LifecycleHandler) -> Self {
        Self {
            exec: hook.exec.as_ref(),
            http_get: hook.http_get.as_ref(),
            tcp_socket: hook.tcp_socket.as_ref(),
            grpc: None,
            sleep: hook.sleep.as_ref(),
        }
    }

    fn check(&self, field: &str, grace: Option<i64>, report: &mut FieldErrors) {
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
        let Some(first) = used.next() else {
            return report.missing(field, "must specify a handler type");
        };
        self.check_one(&format!("{field}.{first}"), first, grace, report);
        for second in used {
            report.forbidden(format!("{field}.{second}"), TOO_MANY);
        }
    }

    /// Only the first is looked at: which one is meant cannot be known.
    fn check_one(&self, field: &str, name: &str, grace: Option<i64>, report: &mut FieldErrors) {
        if let Some(exec) = self.exec.filter(|_| name == "exec")
            && exec.command.as_ref().is_none_or(Vec::is_empty)
        {
            report.required(format!("{field}.command"));
        }
        if let Some(http) = self.http_get.filter(|_| name == "httpGet") {
            http_get(field, http, report);
        }
        if let Some(tcp) = self.tcp_socket.filter(|_| name == "tcpSocket") {
            port(format!("{field}.port"), &tcp.port, report);
        }
        if let Some(grpc) = self.grpc.filter(|_| name == "grpc") {
            port_number(format!("{field}.port"), grpc.port, report);
        }
        if let (Some(sleep), Some(grace)) = (self.sleep.filter(|_| name == "sleep"), grace)
            && !(0..=grace).contains(&sleep.seconds)
        {
            let detail = format!(
                "must be non-negative and less than terminationGracePeriodSeconds ({grace})"
            );
            report.invalid(field, sleep.seconds, detail);
        }
    }
}

fn http_get(field: &str, http: &HTTPGetAction, report: &mut FieldErrors) {
    report.some(format!("{field}.path"), text(http.path.as_ref()));
    port(format!("{field}.port"), &http.port, report);
    let scheme = text(http.scheme.as_ref());
    report.known(format!("{field}.scheme"), scheme, &["HTTP", "HTTPS"]);
    for header in http.http_headers.iter().flatten() {
        let field = format!("{field}.httpHeaders");
        report.name(field, &header.name, names::header);
    }
}

/// A field of the pod, or one entry of its labels or annotations.
pub(in crate::manifest::validate) fn field_reference(
    field: &str,
    reference: &ObjectFieldSelector,
    supported: &'static [&'static str],
    report: &mut FieldErrors,
) {
    let path = reference.field_path.as_str();
    let version = text(reference.api_version.as_ref());
    if version.is_empty() {
        return report.required(format!("{field}.apiVersion"));
    }
    if path.is_empty() {
        return report.required(format!("{field}.fieldPath"));
    }
    if version != "v1" {
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
