//! What can be asked of the admin socket, and how a question is refused.

use hyper::body::Incoming;
use hyper::{Method, Request, StatusCode};
use kernel::plugin::HostError;
use kernel::{AskError, Fault, NoSuchChild};

use crate::serving::http::{decoded, query};

/// One question or order.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// `GET /version`
    Version,
    /// `GET /tree`
    Tree,
    /// `GET /plugins`
    Plugins,
    /// `GET /pods`
    Pods,
    /// `GET /events`
    Events,
    /// `GET /events?follow=true`: a JSON line each, until the asker leaves
    EventsToCome,
    /// `GET /why/POD`, by UID, name or namespace/name
    Why { pod: String },
    /// `POST /plugins/NAME/restart`
    Restart { plugin: String },
    /// `POST /plugins/KIND-or-NAME/swap?to=NAME`
    Swap { plugin: String, to: String },
    /// `POST /faults?path=PATH&fault=panic|hang`
    Fault { path: String, fault: Fault },
}

/// Why a question or order has no answer but a sentence.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refusal {
    #[error(
        "there is nothing at {path}, expected one of /tree, /plugins, /pods, /events, /why/POD, /faults, /version"
    )]
    Path { path: String },
    #[error("expected {expected} for this path")]
    Method { expected: &'static str },
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
    #[error(transparent)]
    NoSuchActor(#[from] NoSuchChild),
    #[error("faults are injected only into an agent that was started with {variable}=1")]
    NoFaults { variable: &'static str },
    #[error(transparent)]
    Plugin(#[from] HostError),
    #[error("{who} does not answer now")]
    Silent { who: &'static str, source: AskError },
}

impl Refusal {
    pub(super) fn status(&self) -> StatusCode {
        match self {
            Refusal::Path { .. }
            | Refusal::NoSuchPlugin { .. }
            | Refusal::NoSuchPod { .. }
            | Refusal::NoSuchActor(_) => StatusCode::NOT_FOUND,
            Refusal::Method { .. } => StatusCode::METHOD_NOT_ALLOWED,
            Refusal::Parameter { .. } => StatusCode::BAD_REQUEST,
            Refusal::NoFaults { .. } => StatusCode::FORBIDDEN,
            Refusal::Plugin(HostError::Busy { .. }) => StatusCode::CONFLICT,
            Refusal::Plugin(HostError::Other { .. } | HostError::Declaration(_)) => {
                StatusCode::BAD_REQUEST
            }
            Refusal::Plugin(HostError::NotReady { .. }) => StatusCode::BAD_GATEWAY,
            Refusal::Silent { .. } => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

impl Route {
    pub(super) fn of(request: &Request<Incoming>) -> Result<Route, Refusal> {
        let path = request.uri().path();
        let parts: Vec<String> = path.trim_matches('/').split('/').map(decoded).collect();
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        let route = match parts.as_slice() {
            ["version"] => Route::Version,
            ["tree"] => Route::Tree,
            ["plugins"] => Route::Plugins,
            ["pods"] => Route::Pods,
            ["events"] => match follows(request)? {
                true => Route::EventsToCome,
                false => Route::Events,
            },
            ["why", pod] => Route::Why {
                pod: (*pod).to_owned(),
            },
            ["why", namespace, name] => Route::Why {
                pod: format!("{namespace}/{name}"),
            },
            ["plugins", plugin, "restart"] => {
                expect(request, &Method::POST)?;
                Route::Restart {
                    plugin: (*plugin).to_owned(),
                }
            }
            ["plugins", plugin, "swap"] => {
                expect(request, &Method::POST)?;
                let to = needed(request, "to", "the name of a declared plugin")?;
                Route::Swap {
                    plugin: (*plugin).to_owned(),
                    to,
                }
            }
            ["faults"] => {
                expect(request, &Method::POST)?;
                let path = needed(request, "path", "an actor's path, as /tree shows it")?;
                Route::Fault {
                    path,
                    fault: fault(request)?,
                }
            }
            _ => {
                return Err(Refusal::Path {
                    path: path.to_owned(),
                });
            }
        };
        expect(request, route.method())?;
        Ok(route)
    }

    fn method(&self) -> &'static Method {
        match self {
            Route::Version
            | Route::Tree
            | Route::Plugins
            | Route::Pods
            | Route::Events
            | Route::EventsToCome
            | Route::Why { .. } => &Method::GET,
            Route::Restart { .. } | Route::Swap { .. } | Route::Fault { .. } => &Method::POST,
        }
    }
}

fn expect(request: &Request<Incoming>, method: &Method) -> Result<(), Refusal> {
    match request.method() == method {
        true => Ok(()),
        false if method == Method::POST => Err(Refusal::Method { expected: "POST" }),
        false => Err(Refusal::Method { expected: "GET" }),
    }
}

fn needed(
    request: &Request<Incoming>,
    name: &'static str,
    expected: &'static str,
) -> Result<String, Refusal> {
    let found = query(request, name).next().unwrap_or_default();
    match found.is_empty() {
        true => Err(Refusal::Parameter {
            name,
            found,
            expected,
        }),
        false => Ok(found),
    }
}

fn follows(request: &Request<Incoming>) -> Result<bool, Refusal> {
    match query(request, "follow").next().as_deref() {
        None | Some("false") => Ok(false),
        Some("true" | "") => Ok(true),
        Some(found) => Err(Refusal::Parameter {
            name: "follow",
            found: found.to_owned(),
            expected: "true or false",
        }),
    }
}

fn fault(request: &Request<Incoming>) -> Result<Fault, Refusal> {
    const EXPECTED: &str = "panic or hang";
    let found = needed(request, "fault", EXPECTED)?;
    match found.as_str() {
        "panic" => Ok(Fault::Panic),
        "hang" => Ok(Fault::Hang),
        _ => Err(Refusal::Parameter {
            name: "fault",
            found,
            expected: EXPECTED,
        }),
    }
}
