//! Where a path leads.
//!
//! One with empty segments, or of one dot, leads to where it would without them, and the caller is sent there. One that
//! climbs leads nowhere: who asks so means no good. What is hidden behind escapes is decoded once, and then neither
//! cleaned nor guessed at.
//!
//! Upstream: pkg/kubelet/server/server.go (1.36).

use hyper::Method;

use super::query::unescaped;
use crate::node::Metrics;
use crate::policy::Paths;

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    Healthz,
    Pods,
    RunningPods,
    Summary,
    Metrics(Metrics),
    Run(Target),
    Exec(Target),
    Attach(Target),
    PortForward(Target),
    ContainerLogs(Target),
    Checkpoint(Target),
    /// What is beneath the folder of the system's logs.
    Logs(String),
    Configz,
    Statusz,
    Flagz,
    Verbosity,
    Profiles,
    /// The operator does not want it served; why, in upstream's words.
    Disabled(&'static str),
}

/// A container of a pod; for ports no container.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) namespace: String,
    pub(super) pod: String,
    pub(super) uid: Option<String>,
    pub(super) container: String,
}

/// Why a path leads nowhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Lost {
    /// No path at all: a bad escape, or segments behind escapes that would lead elsewhere.
    Crooked,
    /// It is a way round to this path, whose escapes are as they came.
    Elsewhere(String),
    /// Nothing has this root.
    Nowhere,
    /// The root has nothing of this form.
    Nothing,
}

/// Which port the request came in by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Door {
    ReadOnly,
    ReadWrite,
}

/// Returns the path as it is meant.
pub(super) fn straight(path: &str) -> Result<String, Lost> {
    let clean = cleaned(path);
    if path.starts_with('/') && clean != path {
        // Nobody is sent to what is no path either, or another host's to somebody's eyes.
        return Err(match straight(&clean) {
            Ok(_) => Lost::Elsewhere(clean),
            Err(lost) => lost,
        });
    }
    let path = unescaped(path).ok_or(Lost::Crooked)?;
    let crooked = |segment: &str| matches!(segment, "" | "." | "..");
    let inner = path.strip_prefix('/').ok_or(Lost::Crooked)?;
    let inner = inner.strip_suffix('/').unwrap_or(inner);
    let is_crooked = !inner.is_empty() && inner.split('/').any(crooked);
    let controls = path.chars().any(|c| c.is_control() || c == '\\');
    match is_crooked || controls || path == "//" {
        true => Err(Lost::Crooked),
        false => Ok(path),
    }
}

/// Returns the path that a caller means, whichever way he goes there; an empty one if it is none.
pub(super) fn meant(path: &str) -> String {
    let found = match straight(path) {
        Err(Lost::Elsewhere(clean)) => straight(&clean),
        found => found,
    };
    found.unwrap_or_default()
}

/// The way without empty segments and those of one dot. A slash at the end stays.
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

/// Returns where a straight path leads.
pub(super) fn find(path: &str, paths: &Paths, door: Door) -> Result<Place, Lost> {
    let place = match path {
        "/metrics" => Place::Metrics(Metrics::Own),
        "/metrics/cadvisor" => Place::Metrics(Metrics::Cadvisor),
        "/metrics/probes" => Place::Metrics(Metrics::Probes),
        "/metrics/resource" => Place::Metrics(Metrics::Resource),
        "/metrics/slis" => Place::Metrics(Metrics::Slis),
        "/pods" | "/pods/" => Place::Pods,
        "/stats/summary" | "/stats/summary/" => Place::Summary,
        "/healthz" => Place::Healthz,
        _ if path.starts_with("/healthz/") => Place::Healthz,
        _ if is_beneath(path, "/pods") || is_beneath(path, "/stats") => return Err(Lost::Nothing),
        _ if door == Door::ReadOnly || !paths.debugging => return closed(path),
        _ => return debugging(path, paths),
    };
    Ok(place)
}

/// What is served only where `enableDebuggingHandlers` says so.
fn debugging(path: &str, paths: &Paths) -> Result<Place, Lost> {
    let root = path[1..].split('/').next().unwrap_or_default();
    let place = match root {
        "run" => Place::Run(container(path, "/run")?),
        "exec" => Place::Exec(container(path, "/exec")?),
        "attach" => Place::Attach(container(path, "/attach")?),
        "portForward" => Place::PortForward(ports(path)?),
        "containerLogs" => Place::ContainerLogs(exactly(path, "/containerLogs")?),
        "checkpoint" if paths.checkpoint => Place::Checkpoint(exactly(path, "/checkpoint")?),
        "runningpods" if matches!(path, "/runningpods" | "/runningpods/") => Place::RunningPods,
        "runningpods" => return Err(Lost::Nothing),
        "configz" if path == "/configz" => Place::Configz,
        "statusz" if paths.statusz && path == "/statusz" => Place::Statusz,
        "flagz" if paths.flagz && path == "/flagz" => Place::Flagz,
        "logs" if !paths.system_logs => Place::Disabled("logs endpoint is disabled.\n"),
        // What its list links to lies beneath it.
        "logs" if path == "/logs" => return Err(Lost::Elsewhere("/logs/".to_owned())),
        "logs" => Place::Logs(path.strip_prefix("/logs/").unwrap_or_default().to_owned()),
        _ if path == "/debug/flags/v" && !paths.debug_flags => {
            Place::Disabled("flags endpoint is disabled.\n")
        }
        _ if path == "/debug/flags/v" => Place::Verbosity,
        _ if is_beneath(path, "/debug/pprof") && !paths.profiling => {
            Place::Disabled("profiling endpoint is disabled.\n")
        }
        _ if is_beneath(path, "/debug/pprof") => Place::Profiles,
        _ => return Err(Lost::Nowhere),
    };
    Ok(place)
}

fn closed(path: &str) -> Result<Place, Lost> {
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
        true => Ok(Place::Disabled("Debug endpoints are disabled.\n")),
        false => Err(Lost::Nowhere),
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
fn container(path: &str, root: &str) -> Result<Target, Lost> {
    match segments(path, root)[..] {
        [_, _, _] => exactly(path, root),
        [namespace, pod, uid, container] => Ok(Target {
            namespace: namespace.to_owned(),
            pod: pod.to_owned(),
            uid: Some(uid.to_owned()),
            container: container.to_owned(),
        }),
        _ => Err(Lost::Nothing),
    }
}

fn exactly(path: &str, root: &str) -> Result<Target, Lost> {
    match segments(path, root)[..] {
        [namespace, pod, container] => Ok(Target {
            namespace: namespace.to_owned(),
            pod: pod.to_owned(),
            uid: None,
            container: container.to_owned(),
        }),
        _ => Err(Lost::Nothing),
    }
}

/// `/namespace/pod`, or with a UID.
fn ports(path: &str) -> Result<Target, Lost> {
    let (namespace, pod, uid) = match segments(path, "/portForward")[..] {
        [namespace, pod] => (namespace, pod, None),
        [namespace, pod, uid] => (namespace, pod, Some(uid)),
        _ => return Err(Lost::Nothing),
    };
    Ok(Target {
        namespace: namespace.to_owned(),
        pod: pod.to_owned(),
        uid: uid.map(str::to_owned),
        container: String::new(),
    })
}

impl Place {
    /// Returns the methods that are taken there; none if every one is.
    pub(super) fn methods(&self) -> &'static [Method] {
        match self {
            Place::Healthz
            | Place::Metrics(_)
            | Place::Configz
            | Place::Statusz
            | Place::Flagz
            | Place::Verbosity
            | Place::Disabled(_) => &[],
            Place::Pods
            | Place::RunningPods
            | Place::ContainerLogs(_)
            | Place::Logs(_)
            | Place::Profiles => &[Method::GET],
            Place::Summary | Place::Exec(_) | Place::Attach(_) | Place::PortForward(_) => {
                &[Method::GET, Method::POST]
            }
            Place::Run(_) | Place::Checkpoint(_) => &[Method::POST],
        }
    }

    /// Whether it is refused to who does not take JSON.
    pub(super) fn is_json(&self) -> bool {
        match self {
            Place::Pods | Place::RunningPods | Place::Summary | Place::Checkpoint(_) => true,
            Place::Healthz
            | Place::Metrics(_)
            | Place::Run(_)
            | Place::Exec(_)
            | Place::Attach(_)
            | Place::PortForward(_)
            | Place::ContainerLogs(_)
            | Place::Logs(_)
            | Place::Configz
            | Place::Statusz
            | Place::Flagz
            | Place::Verbosity
            | Place::Profiles
            | Place::Disabled(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(uid: Option<&str>, container: &str) -> Target {
        Target {
            namespace: "ns".into(),
            pod: "pod".into(),
            uid: uid.map(str::to_owned),
            container: container.into(),
        }
    }

    #[test]
    fn every_path_of_the_kubelet_leads_somewhere() {
        let cases = [
            ("/healthz", Place::Healthz),
            ("/healthz/ping", Place::Healthz),
            ("/pods", Place::Pods),
            ("/pods/", Place::Pods),
            ("/runningpods", Place::RunningPods),
            ("/runningpods/", Place::RunningPods),
            ("/stats/summary", Place::Summary),
            ("/metrics", Place::Metrics(Metrics::Own)),
            ("/metrics/cadvisor", Place::Metrics(Metrics::Cadvisor)),
            ("/run/ns/pod/c", Place::Run(target(None, "c"))),
            ("/run/ns/pod/u/c", Place::Run(target(Some("u"), "c"))),
            ("/exec/ns/pod/c", Place::Exec(target(None, "c"))),
            ("/exec/ns/pod/u/c", Place::Exec(target(Some("u"), "c"))),
            ("/attach/ns/pod/c", Place::Attach(target(None, "c"))),
            ("/portForward/ns/pod", Place::PortForward(target(None, ""))),
            (
                "/portForward/ns/pod/u",
                Place::PortForward(target(Some("u"), "")),
            ),
            (
                "/containerLogs/ns/pod/c",
                Place::ContainerLogs(target(None, "c")),
            ),
            ("/checkpoint/ns/pod/c", Place::Checkpoint(target(None, "c"))),
            ("/logs/", Place::Logs(String::new())),
            ("/logs/a/b", Place::Logs("a/b".into())),
            ("/configz", Place::Configz),
            ("/statusz", Place::Statusz),
            ("/flagz", Place::Flagz),
            ("/debug/flags/v", Place::Verbosity),
            ("/debug/pprof/heap", Place::Profiles),
        ];
        for (path, place) in cases {
            let path = straight(path).unwrap();
            let found = find(&path, &Paths::default(), Door::ReadWrite);
            assert_eq!(found, Ok(place), "{path}");
        }
    }

    #[test]
    fn paths_that_are_none_lead_nowhere() {
        let cases = [
            ("/", Lost::Nowhere),
            ("/nope", Lost::Nowhere),
            ("/healthzz", Lost::Nowhere),
            ("/metrics/nope", Lost::Nowhere),
            ("/configz/", Lost::Nowhere),
            ("/spec/", Lost::Nowhere),
            ("/pods/ns/pod", Lost::Nothing),
            ("/stats/", Lost::Nothing),
            ("/exec/ns/pod", Lost::Nothing),
            ("/exec", Lost::Nothing),
            ("/containerLogs/ns/pod/u/c", Lost::Nothing),
            ("/portForward/ns", Lost::Nothing),
        ];
        for (path, lost) in cases {
            let found = find(path, &Paths::default(), Door::ReadWrite);
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
            assert_eq!(straight(path), Err(Lost::Crooked), "{path}");
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
            let elsewhere = Lost::Elsewhere(end.to_owned());
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
            assert_eq!(straight(path), Err(Lost::Crooked), "{path}");
            assert_eq!(meant(path), "", "{path}");
        }
        let logs = find("/logs", &Paths::default(), Door::ReadWrite);
        assert_eq!(logs, Err(Lost::Elsewhere("/logs/".to_owned())));
    }

    #[test]
    fn what_is_switched_off_says_so() {
        let disabled = |path: &str, paths: &Paths, door| match find(path, paths, door) {
            Ok(Place::Disabled(why)) => Some(why),
            _ => None,
        };
        let off = Paths {
            debugging: false,
            ..Paths::default()
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
            for (paths, door) in [(off, Door::ReadWrite), (Paths::default(), Door::ReadOnly)] {
                let why = disabled(path, &paths, door);
                assert_eq!(why, Some("Debug endpoints are disabled.\n"), "{path}");
            }
        }
        assert_eq!(find("/configz", &off, Door::ReadWrite), Err(Lost::Nowhere));
        let some = Paths {
            system_logs: false,
            profiling: false,
            debug_flags: false,
            checkpoint: false,
            statusz: false,
            flagz: false,
            ..Paths::default()
        };
        let why = |path| disabled(path, &some, Door::ReadWrite);
        assert_eq!(why("/logs/x"), Some("logs endpoint is disabled.\n"));
        assert_eq!(
            why("/debug/pprof/"),
            Some("profiling endpoint is disabled.\n")
        );
        assert_eq!(why("/debug/flags/v"), Some("flags endpoint is disabled.\n"));
        for path in ["/checkpoint/a/b/c", "/statusz", "/flagz"] {
            let found = find(path, &some, Door::ReadWrite);
            assert_eq!(found, Err(Lost::Nowhere), "{path}");
        }
    }
}
