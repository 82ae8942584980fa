//! The admin socket's paths, and its errors.

use std::net::IpAddr;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::header::{HOST, ORIGIN};
use hyper::{HeaderMap, Method, Request, StatusCode};
use kernel::{AskError, InjectedFault, NoSuchChild};
use plugin_host::HostError;
use pods::runtime::handover::{PodConsent, SwapError};
use serving::http::{decoded, query};
use serving::node::Metrics;

use super::checkpoint::ContainerCheckpointError;

/// Of the pods' figures, where `/top` does not say: as rarely as cAdvisor measures.
const DEFAULT_AGE: Duration = Duration::from_secs(10);
/// The oldest figures that a caller may ask for; older ones would describe another node.
const MAX_AGE: Duration = Duration::from_secs(60);

/// What the node shows; by `GET` at the admin socket, and to the console's page.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum View {
    /// `/version`
    Version,
    /// `/tree`
    Tree,
    /// `/plugins`
    Plugins,
    /// `/pods`
    Pods,
    /// `/cpus`
    Cpus,
    /// `/devices`
    Devices,
    /// `/images`
    Images,
    /// `/images/present`
    PresentImages,
    /// `/volumes`
    Volumes,
    /// `/events`
    Events,
    /// `/why/POD`, by UID, name or namespace/name; or a refused manifest by its path or its file's name
    Why { pod: String },
}

impl View {
    /// The view at a path, by its segments.
    pub(super) fn at(segments: &[&str]) -> Option<View> {
        let view = match segments {
            ["version"] => View::Version,
            ["tree"] => View::Tree,
            ["plugins"] => View::Plugins,
            ["pods"] => View::Pods,
            ["cpus"] => View::Cpus,
            ["devices"] => View::Devices,
            ["images"] => View::Images,
            ["images", "present"] => View::PresentImages,
            ["volumes"] => View::Volumes,
            ["events"] => View::Events,
            ["why", pod] => View::Why {
                pod: (*pod).to_owned(),
            },
            ["why", namespace, name] => View::Why {
                pod: format!("{namespace}/{name}"),
            },
            _ => return None,
        };
        Some(view)
    }
}

/// A request to the admin socket.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum AdminRoute {
    View(View),
    /// `GET /console/...`: the page, and what it shows
    Console {
        path: String,
    },
    /// `GET /events?follow=true`: a line of JSON each, until the client disconnects
    EventsToCome,
    /// `GET /top?age=SECONDS`: use of the agent, its plugins and the pods, whose figures may be this old
    Top {
        age: Duration,
    },
    /// `GET /config`
    Config,
    /// `GET /variables`
    Variables,
    /// `GET /metrics/agent|cadvisor|probes|resource|slis`
    Metrics(Metrics),
    /// `POST /plugins/NAME/restart`
    Restart {
        plugin: String,
    },
    /// `GET /plugins/KIND-or-NAME/swap?to=NAME`: what it would do
    SwapPlan {
        plugin: String,
        to: String,
    },
    /// `POST /plugins/KIND-or-NAME/swap?to=NAME&endPods=true`
    Swap {
        plugin: String,
        to: String,
        consent: PodConsent,
    },
    /// `POST /checkpoint/POD/CONTAINER?timeout=SECONDS`, with the pod as above
    Checkpoint(CheckpointRequest),
    /// `POST /faults?path=PATH&fault=panic|hang`
    Fault {
        path: String,
        fault: InjectedFault,
    },
}

/// A container, and the shortest timeout of its checkpoint.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CheckpointRequest {
    pub(super) pod: String,
    pub(super) container: String,
    pub(super) within: Duration,
}

/// Why a request was refused.
#[derive(Debug, thiserror::Error)]
pub(super) enum AdminError {
    #[error(
        "there is nothing at {path}, expected one of /tree, /plugins, /pods, /cpus, /devices, /images, /images/present, /volumes, /events, /top, /config, /metrics/agent, /variables, /why/POD, /console/, /stats/summary, /containerLogs/NAMESPACE/POD/CONTAINER, /checkpoint/POD/CONTAINER, /faults, /version"
    )]
    Path { path: String },
    #[error("expected {expected} for this path")]
    Method { expected: &'static str },
    #[error(
        "{host:?} is no name of this machine, expected localhost: a page of somebody else's may have sent this"
    )]
    Host { host: String },
    #[error("a browser's page may look, and change nothing: that is oxctl's")]
    Browser,
    #[error("query parameter {name}: found {found:?}, expected {expected}")]
    Parameter {
        name: &'static str,
        found: String,
        expected: &'static str,
    },
    #[error("there is no plugin {name}, expected one of {expected}")]
    NoSuchPlugin { name: String, expected: String },
    #[error("there is no pod {pod} on this node")]
    NoSuchPod { pod: String },
    #[error("there is no pod {pod} on this node, and these manifests do not run: {manifests}")]
    PerhapsRefused { pod: String, manifests: String },
    #[error(transparent)]
    NoSuchActor(#[from] NoSuchChild),
    #[error("faults are injected only into an agent that was started with {variable}=1")]
    NoFaults { variable: &'static str },
    #[error(transparent)]
    Plugin(#[from] HostError),
    #[error(transparent)]
    Swap(#[from] SwapError),
    #[error(transparent)]
    Checkpoint(#[from] ContainerCheckpointError),
    #[error("it cannot be told now: {why}")]
    Untold { why: String },
    #[error("{who} does not answer now")]
    Silent { who: &'static str, source: AskError },
}

impl AdminError {
    pub(super) fn status(&self) -> StatusCode {
        match self {
            AdminError::Swap(error) => swap_status(error),
            AdminError::Path { .. }
            | AdminError::NoSuchPlugin { .. }
            | AdminError::NoSuchPod { .. }
            | AdminError::PerhapsRefused { .. }
            | AdminError::NoSuchActor(_) => StatusCode::NOT_FOUND,
            AdminError::Method { .. } => StatusCode::METHOD_NOT_ALLOWED,
            AdminError::Parameter { .. } => StatusCode::BAD_REQUEST,
            AdminError::NoFaults { .. } | AdminError::Host { .. } | AdminError::Browser => {
                StatusCode::FORBIDDEN
            }
            AdminError::Checkpoint(error) => error.status(),
            AdminError::Plugin(error) => host_status(error),
            AdminError::Silent { .. } | AdminError::Untold { .. } => {
                StatusCode::SERVICE_UNAVAILABLE
            }
        }
    }
}

fn host_status(error: &HostError) -> StatusCode {
    match error {
        HostError::Busy { .. } => StatusCode::CONFLICT,
        HostError::Other { .. } | HostError::Declaration(_) => StatusCode::BAD_REQUEST,
        HostError::NotReady { .. } => StatusCode::BAD_GATEWAY,
    }
}

fn swap_status(error: &SwapError) -> StatusCode {
    match error {
        SwapError::Undeclared { .. } => StatusCode::NOT_FOUND,
        SwapError::NeedsConsent { .. } | SwapError::UnderWay { .. } => StatusCode::CONFLICT,
        SwapError::Host(error) => host_status(error),
        SwapError::Unlisted { .. } => StatusCode::BAD_GATEWAY,
        SwapError::Silent { .. } => StatusCode::SERVICE_UNAVAILABLE,
        SwapError::Record(_) => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// Refuses what a foreign page may have a browser send, to which the socket is forwarded: the request bears a name that is
/// not this machine's, or wants something changed.
pub(super) fn check_browser(method: &Method, headers: &HeaderMap) -> Result<(), AdminError> {
    let host = headers.get(HOST).map(|host| host.to_str().unwrap_or("?"));
    if let Some(host) = host.filter(|host| !is_local(host)) {
        let host = host.to_owned();
        return Err(AdminError::Host { host });
    }
    match *method != Method::GET && headers.contains_key(ORIGIN) {
        true => Err(AdminError::Browser),
        false => Ok(()),
    }
}

/// Whether nobody else can own this name: a loopback address, or one without a dot.
fn is_local(host: &str) -> bool {
    let name = host.rsplit_once(':').map_or(host, |(name, port)| {
        let is_port = port.bytes().all(|byte| byte.is_ascii_digit());
        if is_port { name } else { host }
    });
    let address = name.trim_start_matches('[').trim_end_matches(']').parse();
    match address {
        Ok(address) => IpAddr::is_loopback(&address),
        Err(_) => !name.contains('.'),
    }
}

impl AdminRoute {
    pub(super) fn of(request: &Request<Incoming>) -> Result<AdminRoute, AdminError> {
        let path = request.uri().path();
        let parts: Vec<String> = path.trim_matches('/').split('/').map(decoded).collect();
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        let route = match parts.as_slice() {
            ["top"] => AdminRoute::Top { age: age(request)? },
            ["config"] => AdminRoute::Config,
            ["variables"] => AdminRoute::Variables,
            ["metrics", name] => AdminRoute::Metrics(metrics(path, name)?),
            ["events"] if follows(request)? => AdminRoute::EventsToCome,
            ["console", rest @ ..] => AdminRoute::Console {
                path: rest.join("/"),
            },
            ["plugins", plugin, "restart"] => {
                expect(request, &Method::POST)?;
                AdminRoute::Restart {
                    plugin: (*plugin).to_owned(),
                }
            }
            ["plugins", plugin, "swap"] => swap(request, (*plugin).to_owned())?,
            ["checkpoint", pod, container] => {
                AdminRoute::Checkpoint(checkpoint_request(request, (*pod).to_owned(), container)?)
            }
            ["checkpoint", namespace, name, container] => {
                let pod = format!("{namespace}/{name}");
                AdminRoute::Checkpoint(checkpoint_request(request, pod, container)?)
            }
            ["faults"] => {
                expect(request, &Method::POST)?;
                let path = needed(request, "path", "an actor's path, as /tree shows it")?;
                AdminRoute::Fault {
                    path,
                    fault: fault(request)?,
                }
            }
            other => AdminRoute::View(View::at(other).ok_or_else(|| AdminError::Path {
                path: path.to_owned(),
            })?),
        };
        expect(request, route.method())?;
        Ok(route)
    }

    fn method(&self) -> &'static Method {
        match self {
            AdminRoute::View(_)
            | AdminRoute::Console { .. }
            | AdminRoute::EventsToCome
            | AdminRoute::Top { .. }
            | AdminRoute::Config
            | AdminRoute::Variables
            | AdminRoute::Metrics(_)
            | AdminRoute::SwapPlan { .. } => &Method::GET,
            AdminRoute::Restart { .. }
            | AdminRoute::Swap { .. }
            | AdminRoute::Checkpoint(_)
            | AdminRoute::Fault { .. } => &Method::POST,
        }
    }
}

fn expect(request: &Request<Incoming>, method: &Method) -> Result<(), AdminError> {
    match request.method() == method {
        true => Ok(()),
        false if method == Method::POST => Err(AdminError::Method { expected: "POST" }),
        false => Err(AdminError::Method { expected: "GET" }),
    }
}

fn needed(
    request: &Request<Incoming>,
    name: &'static str,
    expected: &'static str,
) -> Result<String, AdminError> {
    let found = query(request, name).next().unwrap_or_default();
    match found.is_empty() {
        true => Err(AdminError::Parameter {
            name,
            found,
            expected,
        }),
        false => Ok(found),
    }
}

fn follows(request: &Request<Incoming>) -> Result<bool, AdminError> {
    is_true(request, "follow")
}

fn consent(request: &Request<Incoming>) -> Result<PodConsent, AdminError> {
    Ok(match is_true(request, "endPods")? {
        true => PodConsent::EndPods,
        false => PodConsent::LeavePods,
    })
}

fn is_true(request: &Request<Incoming>, name: &'static str) -> Result<bool, AdminError> {
    match query(request, name).next().as_deref() {
        None | Some("false") => Ok(false),
        Some("true" | "") => Ok(true),
        Some(found) => Err(AdminError::Parameter {
            name,
            found: found.to_owned(),
            expected: "true or false",
        }),
    }
}

/// How old figures of pods may be; at least a second, as the summary's own.
fn age(request: &Request<Incoming>) -> Result<Duration, AdminError> {
    let Some(found) = query(request, "age").next() else {
        return Ok(DEFAULT_AGE);
    };
    match found.parse::<u64>() {
        Ok(seconds) if (1..=MAX_AGE.as_secs()).contains(&seconds) => {
            Ok(Duration::from_secs(seconds))
        }
        Ok(_) | Err(_) => Err(AdminError::Parameter {
            name: "age",
            found,
            expected: "1 to 60 seconds",
        }),
    }
}

fn metrics(path: &str, name: &str) -> Result<Metrics, AdminError> {
    match name {
        "agent" => Ok(Metrics::Own),
        "cadvisor" => Ok(Metrics::Cadvisor),
        "probes" => Ok(Metrics::Probes),
        "resource" => Ok(Metrics::Resource),
        "slis" => Ok(Metrics::Slis),
        _ => Err(AdminError::Path {
            path: path.to_owned(),
        }),
    }
}

/// A swap, or what it would do where that is only asked.
fn swap(request: &Request<Incoming>, plugin: String) -> Result<AdminRoute, AdminError> {
    let to = needed(request, "to", "the name of a declared plugin")?;
    Ok(match *request.method() == Method::GET {
        true => AdminRoute::SwapPlan { plugin, to },
        false => AdminRoute::Swap {
            plugin,
            to,
            consent: consent(request)?,
        },
    })
}

/// Parses the query as upstream does: the last of several timeouts counts.
fn checkpoint_request(
    request: &Request<Incoming>,
    pod: String,
    container: &str,
) -> Result<CheckpointRequest, AdminError> {
    expect(request, &Method::POST)?;
    let seconds: u32 = match query(request, "timeout").last() {
        None => 0,
        Some(found) => found.parse().map_err(|_| AdminError::Parameter {
            name: "timeout",
            found,
            expected: "a number of seconds",
        })?,
    };
    Ok(CheckpointRequest {
        pod,
        container: container.to_owned(),
        within: Duration::from_secs(seconds.into()),
    })
}

fn fault(request: &Request<Incoming>) -> Result<InjectedFault, AdminError> {
    const EXPECTED: &str = "panic or hang";
    let found = needed(request, "fault", EXPECTED)?;
    match found.as_str() {
        "panic" => Ok(InjectedFault::Panic),
        "hang" => Ok(InjectedFault::Hang),
        _ => Err(AdminError::Parameter {
            name: "fault",
            found,
            expected: EXPECTED,
        }),
    }
}
