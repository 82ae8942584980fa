//! Routes of the server, by path.
//!
//! A path with empty or `.` segments is redirected to the path without them; one with `..` is refused. Escapes are
//! decoded once, and what they hide is then neither cleaned nor guessed at.
//!
//! Upstream: pkg/kubelet/server/server.go (1.36).

use hyper::Method;

use super::query::unescaped;
use crate::node::Metrics;
use crate::policy::EndpointPolicy;

/// The endpoint of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Route {
    Healthz,
    Pods,
    RunningPods,
    Summary,
    Metrics(Metrics),
    Run(ContainerTarget),
    Exec(ContainerTarget),
    Attach(ContainerTarget),
    PortForward(ContainerTarget),
    ContainerLogs(ContainerTarget),
    Checkpoint(ContainerTarget),
    /// A path beneath the folder of the system's logs.
    Logs(String),
    Configz,
    Statusz,
    Flagz,
    Verbosity,
    Profiles,
    /// A path beneath `/console/`.
    Console(String),
    /// Disabled by the configuration; the reason in upstream's words.
    Disabled(&'static str),
}

/// A container of a pod; the container is empty for port forwarding.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ContainerTarget {
    pub(super) namespace: String,
    pub(super) pod: String,
    pub(super) uid: Option<String>,
    pub(super) container: String,
}

/// Why a path has no route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RouteError {
    /// Malformed: a bad escape, or segments behind escapes that would lead elsewhere.
    Crooked,
    /// Redirect to this path, whose escapes are as they came.
    Elsewhere(String),
    /// No endpoint has this root.
    Nowhere,
    /// The root has no endpoint of this form.
    Nothing,
}

/// The port that the request came in by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ServerPort {
    ReadOnly,
    ReadWrite,
    /// The admin socket.
    Admin,
}

/// Returns the path if it needs no redirect.
pub(super) fn straight(path: &str) -> Result<String, RouteError> {
    let clean = cleaned(path);
    if path.starts_with('/') && clean != path {
        // No redirect leads to a malformed path, or to what a client would read as another host.
        return Err(match straight(&clean) {
            Ok(_) => RouteError::Elsewhere(clean),
            Err(lost) => lost,
        });
    }
    let path = unescaped(path).ok_or(RouteError::Crooked)?;
    let crooked = |segment: &str| matches!(segment, "" | "." | "..");
    let inner = path.strip_prefix('/').ok_or(RouteError::Crooked)?;
    let inner = inner.strip_suffix('/').unwrap_or(inner);
    let is_crooked = !inner.is_empty() && inner.split('/').any(crooked);
    let controls = path.chars().any(|c| c.is_control() || c == '\\');
    match is_crooked || controls || path == "//" {
        true => Err(RouteError::Crooked),
        false => Ok(path),
    }
}

/// Returns the path after any redirect; an empty one if it is malformed.
pub(super) fn meant(path: &str) -> String {
    let found = match straight(path) {
        Err(RouteError::Elsewhere(clean)) => straight(&clean),
        found => found,
    };
    found.unwrap_or_default()
}

/// The path without empty and `.` segments. A slash at the end stays.
fn cleaned(path: &str) -> String {
    let mut clean = Vec::new();
    for segment in path.split('/') {
        match segment {
            "" | "." => {}
            segment => clean.push(segment),
        }
    }
    let end = match path.ends_with('/') && !clean.is_empty() {
        true => "/",
        false => "",
    };
    format!("/{}{end}", clean.join("/"))
}

/// Returns the endpoint of a clean path.
pub(super) fn find(
    path: &str,
    paths: &EndpointPolicy,
    door: ServerPort,
) -> Result<Route, RouteError> {
    if door == ServerPort::Admin {
        return of_operator(path);
    }
    let place = match path {
        "/metrics" => Route::Metrics(Metrics::Own),
        "/metrics/cadvisor" => Route::Metrics(Metrics::Cadvisor),
        "/metrics/probes" => Route::Metrics(Metrics::Probes),
        "/metrics/resource" => Route::Metrics(Metrics::Resource),
        "/metrics/slis" => Route::Metrics(Metrics::Slis),
        "/pods" | "/pods/" => Route::Pods,
        "/stats/summary" | "/stats/summary/" => Route::Summary,
        "/healthz" => Route::Healthz,
        _ if path.starts_with("/healthz/") => Route::Healthz,
        _ if is_beneath(path, "/pods") || is_beneath(path, "/stats") => {
            return Err(RouteError::Nothing);
        }
        _ if door == ServerPort::ReadOnly || !paths.debugging => return closed(path),
        _ => return debugging(path, paths),
    };
    Ok(place)
}

/// What the admin socket has of the kubelet's API: what the console's page asks for beside its own.
fn of_operator(path: &str) -> Result<Route, RouteError> {
    match path {
        "/stats/summary" => Ok(Route::Summary),
        _ if is_beneath(path, "/containerLogs") => {
            Ok(Route::ContainerLogs(exactly(path, "/containerLogs")?))
        }
        _ => Err(RouteError::Nowhere),
    }
}

/// Endpoints that are served only with `enableDebuggingHandlers`.
fn debugging(path: &str, paths: &EndpointPolicy) -> Result<Route, RouteError> {
    let root = path[1..].split('/').next().unwrap_or_default();
    let place = match root {
        "run" => Route::Run(container(path, "/run")?),
        "exec" => Route::Exec(container(path, "/exec")?),
        "attach" => Route::Attach(container(path, "/attach")?),
        "portForward" => Route::PortForward(ports(path)?),
        "containerLogs" => Route::ContainerLogs(exactly(path, "/containerLogs")?),
        "checkpoint" if paths.checkpoint => Route::Checkpoint(exactly(path, "/checkpoint")?),
        "runningpods" if matches!(path, "/runningpods" | "/runningpods/") => Route::RunningPods,
        "runningpods" => return Err(RouteError::Nothing),
        "configz" if path == "/configz" => Route::Configz,
        "statusz" if paths.statusz && path == "/statusz" => Route::Statusz,
        "flagz" if paths.flagz && path == "/flagz" => Route::Flagz,
        "logs" if !paths.system_logs => Route::Disabled("logs endpoint is disabled.\n"),
        // The entries of its listing are beneath it.
        "logs" if path == "/logs" => return Err(RouteError::Elsewhere("/logs/".to_owned())),
        "logs" => Route::Logs(path.strip_prefix("/logs/").unwrap_or_default().to_owned()),
        // Its page names all else relative to itself.
        "console" if paths.console && path == "/console" => {
            return Err(RouteError::Elsewhere("/console/".to_owned()));
        }
        "console" if paths.console => Route::Console(
            path.strip_prefix("/console/")
                .unwrap_or_default()
                .to_owned(),
        ),
        _ if path == "/debug/flags/v" && !paths.debug_flags => {
            Route::Disabled("flags endpoint is disabled.\n")
        }
        _ if path == "/debug/flags/v" => Route::Verbosity,
        _ if is_beneath(path, "/debug/pprof") && !paths.profiling => {
            Route::Disabled("profiling endpoint is disabled.\n")
        }
        _ if is_beneath(path, "/debug/pprof") => Route::Profiles,
        _ => return Err(RouteError::Nowhere),
    };
    Ok(place)
}

fn closed(path: &str) -> Result<Route, RouteError> {
    let roots = [
        "/run",
        "/exec",
        "/attach",
        "/portForward",
        "/containerLogs",
        "/runningpods",
        "/debug/pprof",
        "/logs",
    ];
    match roots.iter().any(|root| is_beneath(path, root)) {
        true => Ok(Route::Disabled("Debug endpoints are disabled.\n")),
        false => Err(RouteError::Nowhere),
    }
}

fn is_beneath(path: &str, root: &str) -> bool {
    let rest = path.strip_prefix(root);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn segments<'a>(path: &'a str, root: &str) -> Vec<&'a str> {
    let rest = path.strip_prefix(root).unwrap_or_default();
    let rest = rest.strip_prefix('/').unwrap_or(rest);
    rest.strip_suffix('/').unwrap_or(rest).split('/').collect()
}

/// `/namespace/pod/container`, or with a UID before the container.
fn container(path: &str, root: &str) -> Result<ContainerTarget, RouteError> {
    match segments(path, root)[..] {
        [_, _, _] => exactly(path, root),
        [namespace, pod, uid, container] => Ok(ContainerTarget {
            namespace: namespace.to_owned(),
            pod: pod.to_owned(),
            uid: Some(uid.to_owned()),
            container: container.to_owned(),
        }),
        _ => Err(RouteError::Nothing),
    }
}

fn exactly(path: &str, root: &str) -> Result<ContainerTarget, RouteError> {
    match segments(path, root)[..] {
        [namespace, pod, container] => Ok(ContainerTarget {
            namespace: namespace.to_owned(),
            pod: pod.to_owned(),
            uid: None,
            container: container.to_owned(),
        }),
        _ => Err(RouteError::Nothing),
    }
}

/// `/namespace/pod`, or with a UID.
fn ports(path: &str) -> Result<ContainerTarget, RouteError> {
    let (namespace, pod, uid) = match segments(path, "/portForward")[..] {
        [namespace, pod] => (namespace, pod, None),
        [namespace, pod, uid] => (namespace, pod, Some(uid)),
        _ => return Err(RouteError::Nothing),
    };
    Ok(ContainerTarget {
        namespace: namespace.to_owned(),
        pod: pod.to_owned(),
        uid: uid.map(str::to_owned),
        container: String::new(),
    })
}

impl Route {
    /// Returns the methods that are allowed; empty if all are.
    pub(super) fn methods(&self) -> &'static [Method] {
        match self {
            Route::Healthz
            | Route::Metrics(_)
            | Route::Configz
            | Route::Statusz
            | Route::Flagz
            | Route::Verbosity
            | Route::Disabled(_) => &[],
            Route::Pods
            | Route::RunningPods
            | Route::ContainerLogs(_)
            | Route::Logs(_)
            | Route::Console(_)
            | Route::Profiles => &[Method::GET],
            Route::Summary | Route::Exec(_) | Route::Attach(_) | Route::PortForward(_) => {
                &[Method::GET, Method::POST]
            }
            Route::Run(_) | Route::Checkpoint(_) => &[Method::POST],
        }
    }

    /// The endpoint's path with names in the place of values, as upstream's spans are called.
    pub(super) fn template(&self) -> &'static str {
        match self {
            Route::Healthz => "/healthz",
            Route::Pods => "/pods",
            Route::RunningPods => "/runningpods/",
            Route::Summary => "/stats/summary",
            Route::Metrics(Metrics::Own) => "/metrics",
            Route::Metrics(Metrics::Cadvisor) => "/metrics/cadvisor",
            Route::Metrics(Metrics::Probes) => "/metrics/probes",
            Route::Metrics(Metrics::Resource) => "/metrics/resource",
            Route::Metrics(Metrics::Slis) => "/metrics/slis",
            Route::Run(_) => "/run/{podNamespace}/{podID}/{containerName}",
            Route::Exec(_) => "/exec/{podNamespace}/{podID}/{containerName}",
            Route::Attach(_) => "/attach/{podNamespace}/{podID}/{containerName}",
            Route::PortForward(_) => "/portForward/{podNamespace}/{podID}",
            Route::ContainerLogs(_) => "/containerLogs/{podNamespace}/{podID}/{containerName}",
            Route::Checkpoint(_) => "/checkpoint/{podNamespace}/{podID}/{containerName}",
            Route::Logs(_) => "/logs/{logpath:*}",
            Route::Configz => "/configz",
            Route::Statusz => "/statusz",
            Route::Flagz => "/flagz",
            Route::Verbosity => "/debug/flags/v",
            Route::Profiles => "/debug/pprof/{subpath:*}",
            Route::Console(_) => "/console/{subpath:*}",
            Route::Disabled(_) => "disabled",
        }
    }

    /// Whether the endpoint is refused to callers that do not accept JSON.
    pub(super) fn is_json(&self) -> bool {
        match self {
            Route::Pods | Route::RunningPods | Route::Summary | Route::Checkpoint(_) => true,
            Route::Healthz
            | Route::Metrics(_)
            | Route::Run(_)
            | Route::Exec(_)
            | Route::Attach(_)
            | Route::PortForward(_)
            | Route::ContainerLogs(_)
            | Route::Logs(_)
            | Route::Configz
            | Route::Statusz
            | Route::Flagz
            | Route::Verbosity
            | Route::Profiles
            | Route::Console(_)
            | Route::Disabled(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(uid: Option<&str>, container: &str) -> ContainerTarget {
        ContainerTarget {
            namespace: "ns".into(),
            pod: "pod".into(),
            uid: uid.map(str::to_owned),
            container: container.into(),
        }
    }

    #[test]
    fn every_path_of_the_kubelet_leads_somewhere() {
        let cases = [
            ("/healthz", Route::Healthz),
            ("/healthz/ping", Route::Healthz),
            ("/pods", Route::Pods),
            ("/pods/", Route::Pods),
            ("/runningpods", Route::RunningPods),
            ("/runningpods/", Route::RunningPods),
            ("/stats/summary", Route::Summary),
            ("/metrics", Route::Metrics(Metrics::Own)),
            ("/metrics/cadvisor", Route::Metrics(Metrics::Cadvisor)),
            ("/run/ns/pod/c", Route::Run(target(None, "c"))),
            ("/run/ns/pod/u/c", Route::Run(target(Some("u"), "c"))),
            ("/exec/ns/pod/c", Route::Exec(target(None, "c"))),
            ("/exec/ns/pod/u/c", Route::Exec(target(Some("u"), "c"))),
            ("/attach/ns/pod/c", Route::Attach(target(None, "c"))),
            ("/portForward/ns/pod", Route::PortForward(target(None, ""))),
            (
                "/portForward/ns/pod/u",
                Route::PortForward(target(Some("u"), "")),
            ),
            (
                "/containerLogs/ns/pod/c",
                Route::ContainerLogs(target(None, "c")),
            ),
            ("/checkpoint/ns/pod/c", Route::Checkpoint(target(None, "c"))),
            ("/logs/", Route::Logs(String::new())),
            ("/logs/a/b", Route::Logs("a/b".into())),
            ("/configz", Route::Configz),
            ("/statusz", Route::Statusz),
            ("/flagz", Route::Flagz),
            ("/debug/flags/v", Route::Verbosity),
            ("/debug/pprof/heap", Route::Profiles),
        ];
        for (path, place) in cases {
            let path = straight(path).unwrap();
            let found = find(&path, &EndpointPolicy::default(), ServerPort::ReadWrite);
            assert_eq!(found, Ok(place), "{path}");
        }
    }

    #[test]
    fn paths_that_are_none_lead_nowhere() {
        let cases = [
            ("/", RouteError::Nowhere),
            ("/nope", RouteError::Nowhere),
            ("/healthzz", RouteError::Nowhere),
            ("/metrics/nope", RouteError::Nowhere),
            ("/configz/", RouteError::Nowhere),
            ("/spec/", RouteError::Nowhere),
            ("/pods/ns/pod", RouteError::Nothing),
            ("/stats/", RouteError::Nothing),
            ("/exec/ns/pod", RouteError::Nothing),
            ("/exec", RouteError::Nothing),
            ("/containerLogs/ns/pod/u/c", RouteError::Nothing),
            ("/portForward/ns", RouteError::Nothing),
        ];
        for (path, lost) in cases {
            let found = find(path, &EndpointPolicy::default(), ServerPort::ReadWrite);
            assert_eq!(found, Err(lost), "{path}");
        }
        let crooked = [
            "",
            "*",
            "pods",
            "/logs/%2e%2e/etc",
            "/logs/..%2fetc",
            "/logs/%2E./x",
            "/logs/%2f",
            "/logs/a%00",
            "/logs/%",
            "/logs/%ff",
            "/logs/a%5cb",
        ];
        for path in crooked {
            assert_eq!(straight(path), Err(RouteError::Crooked), "{path}");
            assert_eq!(meant(path), "", "{path}");
        }
    }

    /// Go's TestServeMuxHandlerRedirects.
    #[test]
    fn ways_round_lead_to_where_they_end() {
        let cases = [
            ("//", "/"),
            ("/.", "/"),
            ("//pods", "/pods"),
            ("/pods//", "/pods/"),
            ("/logs/./x", "/logs/x"),
            ("/logs//a%20b/", "/logs/a%20b/"),
        ];
        for (path, end) in cases {
            let elsewhere = RouteError::Elsewhere(end.to_owned());
            assert_eq!(straight(path), Err(elsewhere), "{path}");
            assert_eq!(meant(path), unescaped(end).unwrap(), "{path}");
        }
        for path in [
            "//logs/%2e%2e",
            "//\\host//x",
            "/x/../%zz",
            "/..",
            "/logs/../etc",
            "//a/../pods",
        ] {
            assert_eq!(straight(path), Err(RouteError::Crooked), "{path}");
            assert_eq!(meant(path), "", "{path}");
        }
        let logs = find("/logs", &EndpointPolicy::default(), ServerPort::ReadWrite);
        assert_eq!(logs, Err(RouteError::Elsewhere("/logs/".to_owned())));
    }

    #[test]
    fn console_is_served_where_it_is_wanted_and_then_by_no_open_port() {
        let wanted = EndpointPolicy {
            console: true,
            ..EndpointPolicy::default()
        };
        let page = |path| find(path, &wanted, ServerPort::ReadWrite);
        assert_eq!(page("/console/"), Ok(Route::Console(String::new())));
        assert_eq!(
            page("/console/why/ns/p"),
            Ok(Route::Console("why/ns/p".into()))
        );
        assert_eq!(
            page("/console"),
            Err(RouteError::Elsewhere("/console/".into()))
        );
        let off = find(
            "/console/",
            &EndpointPolicy::default(),
            ServerPort::ReadWrite,
        );
        assert_eq!(off, Err(RouteError::Nowhere));
        let undebugged = EndpointPolicy {
            debugging: false,
            ..wanted
        };
        for (paths, door) in [
            (wanted, ServerPort::ReadOnly),
            (wanted, ServerPort::Admin),
            (undebugged, ServerPort::ReadWrite),
        ] {
            assert_eq!(find("/console/", &paths, door), Err(RouteError::Nowhere));
        }
    }

    #[test]
    fn admin_socket_has_summaries_and_logs_and_nothing_that_changes_anything() {
        let off = EndpointPolicy {
            debugging: false,
            ..EndpointPolicy::default()
        };
        let found = |path| find(path, &off, ServerPort::Admin);
        assert_eq!(found("/stats/summary"), Ok(Route::Summary));
        let log = Route::ContainerLogs(target(None, "c"));
        assert_eq!(found("/containerLogs/ns/pod/c"), Ok(log));
        for path in [
            "/run/ns/pod/c",
            "/exec/ns/pod/c",
            "/logs/",
            "/pods",
            "/metrics",
        ] {
            assert_eq!(found(path), Err(RouteError::Nowhere), "{path}");
        }
    }

    /// With a checkpoint at that port, anybody could fill the disk (CVE-2025-0426).
    #[test]
    fn nothing_at_the_read_only_port_runs_or_writes_anything() {
        for path in [
            "/run/ns/pod/c",
            "/exec/ns/pod/c",
            "/attach/ns/pod/c",
            "/portForward/ns/pod",
            "/checkpoint/ns/pod/c",
            "/containerLogs/ns/pod/c",
            "/logs/",
        ] {
            let found = find(path, &EndpointPolicy::default(), ServerPort::ReadOnly);
            let is_closed = matches!(found, Ok(Route::Disabled(_)) | Err(RouteError::Nowhere));
            assert!(is_closed, "{path}: {found:?}");
        }
    }

    #[test]
    fn what_is_switched_off_says_so() {
        let disabled = |path: &str, paths: &EndpointPolicy, door| match find(path, paths, door) {
            Ok(Route::Disabled(why)) => Some(why),
            _ => None,
        };
        let off = EndpointPolicy {
            debugging: false,
            ..EndpointPolicy::default()
        };
        for path in [
            "/run/a/b/c",
            "/exec",
            "/exec/",
            "/logs",
            "/logs/",
            "/runningpods/",
            "/debug/pprof/",
        ] {
            for (paths, door) in [
                (off, ServerPort::ReadWrite),
                (EndpointPolicy::default(), ServerPort::ReadOnly),
            ] {
                let why = disabled(path, &paths, door);
                assert_eq!(why, Some("Debug endpoints are disabled.\n"), "{path}");
            }
        }
        assert_eq!(
            find("/configz", &off, ServerPort::ReadWrite),
            Err(RouteError::Nowhere)
        );
        let some = EndpointPolicy {
            system_logs: false,
            profiling: false,
            debug_flags: false,
            checkpoint: false,
            statusz: false,
            flagz: false,
            ..EndpointPolicy::default()
        };
        let why = |path| disabled(path, &some, ServerPort::ReadWrite);
        assert_eq!(why("/logs/x"), Some("logs endpoint is disabled.\n"));
        assert_eq!(
            why("/debug/pprof/"),
            Some("profiling endpoint is disabled.\n")
        );
        assert_eq!(why("/debug/flags/v"), Some("flags endpoint is disabled.\n"));
        for path in ["/checkpoint/a/b/c", "/statusz", "/flagz"] {
            let found = find(path, &some, ServerPort::ReadWrite);
            assert_eq!(found, Err(RouteError::Nowhere), "{path}");
        }
    }
}
