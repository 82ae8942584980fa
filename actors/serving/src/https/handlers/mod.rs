//! The handlers of authorized requests.

mod debug;
mod files;
mod journal;
mod logs;
mod metrics;
mod pods;
mod safe_open;
mod streaming;
mod zpages;

use std::net::IpAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue, LOCATION, RETRY_AFTER};
use hyper::{Method, Request, Response, StatusCode};
use telemetry::{Attribute, RemoteParent, Span};
use tokio::sync::{Semaphore, mpsc};

use super::accept::takes_json;
use super::progress::ReadByPeople;
use super::query::QueryPairs;
use super::route::{ContainerTarget, Route, RouteError, ServerPort, find, straight};
use crate::healthz;
use crate::http::{HandlerResponse, not_found, text, whole, with_guard};
use crate::logs::LogWatches;
use crate::node::{ContainerCheckpointRequest, Detail, KubeletHost, NodeError, RunCommand};
use crate::policy::{EndpointPolicy, Policy};

/// Commands, terminals and forwarded ports at a time, and as many followed logs.
const STREAMS: usize = 256;

/// A request while it is handled.
pub(crate) struct RequestContext {
    pub(crate) counted: ::metrics::api::http::RequestTimer,
    pub(crate) from: Option<IpAddr>,
    pub(crate) door: ServerPort,
    /// Made when the endpoint is known.
    span: Span,
}

impl RequestContext {
    /// Of a request that came in by a port; `from` is unknown at the one that asks nobody who they are.
    pub(crate) fn new<B>(request: &Request<B>, from: Option<IpAddr>, door: ServerPort) -> Self {
        let server = match door {
            ServerPort::ReadWrite => "readwrite",
            ServerPort::ReadOnly => "readonly",
            ServerPort::Admin => "admin",
        };
        let (method, path) = (request.method().as_str(), request.uri().path());
        RequestContext {
            counted: ::metrics::api::http::begin(method, path, server, kernel::now),
            from,
            door,
            span: Span::default(),
        }
    }

    /// Begins the span. A caller at the read-only port is anybody.
    fn begin_span<B>(&mut self, place: &Route, request: &Request<B>) {
        let parent = match self.door {
            ServerPort::ReadWrite | ServerPort::Admin => RemoteParent::Followed,
            ServerPort::ReadOnly => RemoteParent::Linked,
        };
        let route = place.template();
        self.span = Span::of_request((request.headers(), parent), route, || {
            vec![
                Attribute::text("http.request.method", request.method().as_str()),
                Attribute::text("http.route", route),
                Attribute::text("url.path", request.uri().path()),
            ]
        });
    }

    /// Counts the request, and extends its span, until the last byte of the response is sent.
    pub(crate) fn with(self, answer: HandlerResponse) -> HandlerResponse {
        let (counted, span) = (self.counted, self.span);
        let status = answer.status();
        let code = i64::from(status.as_u16());
        span.add(|| vec![Attribute::number("http.response.status_code", code)]);
        if status.is_server_error() {
            span.fail(&status);
        }
        answer.map(|body| with_guard(body, (counted, span)))
    }
}

/// Handles authorized requests.
#[derive(Debug)]
pub(crate) struct KubeletHandlers<N> {
    node: Rc<N>,
    paths: EndpointPolicy,
    idle: Duration,
    system_logs: PathBuf,
    journalctl: PathBuf,
    streams: Arc<Semaphore>,
    followed: Arc<Semaphore>,
    queries: Arc<Semaphore>,
    written: LogWatches,
}

impl<N: KubeletHost> KubeletHandlers<N> {
    pub(crate) fn new(policy: &Policy, node: Rc<N>) -> Self {
        KubeletHandlers {
            node,
            paths: policy.paths,
            idle: policy.idle,
            system_logs: policy.system_logs.clone(),
            journalctl: policy.journalctl.clone(),
            streams: Arc::new(Semaphore::new(STREAMS)),
            followed: Arc::new(Semaphore::new(STREAMS)),
            queries: Arc::new(Semaphore::new(journal::QUERIES)),
            written: LogWatches::default(),
        }
    }

    /// Answers a request.
    pub(crate) async fn answer(
        &self,
        request: Request<Incoming>,
        mut answering: RequestContext,
    ) -> HandlerResponse {
        let found = straight(request.uri().path());
        let found = found.and_then(|path| find(&path, &self.paths, answering.door));
        let place = match found {
            Ok(place) => place,
            Err(lost) => return answering.with(lost_answer(lost, request.uri().query())),
        };
        answering.begin_span(&place, &request);
        let scope = answering.span.scope();
        scope.run(self.routed(place, request, answering)).await
    }

    async fn routed(
        &self,
        place: Route,
        request: Request<Incoming>,
        answering: RequestContext,
    ) -> HandlerResponse {
        let methods = place.methods();
        if !methods.is_empty() && !methods.contains(request.method()) {
            let names: Vec<&str> = methods.iter().map(|method| method.as_str()).collect();
            let mut answer = text(StatusCode::METHOD_NOT_ALLOWED, "405: Method Not Allowed");
            let allowed = HeaderValue::try_from(names.join(", "));
            answer
                .headers_mut()
                .insert(ALLOW, allowed.expect("the names of methods are text"));
            return answering.with(answer);
        }
        if place.is_json() && !takes_json(request.headers()) {
            let why = "406: Not Acceptable\n\nAvailable representations: application/json";
            return answering.with(text(StatusCode::NOT_ACCEPTABLE, why));
        }
        let called = match &place {
            Route::Exec(target) => self.exec_url(target, &request).await,
            Route::Attach(target) => self.attach_url(target, &request).await,
            Route::PortForward(target) => self.port_forward_url(target, &request).await,
            Route::Healthz
            | Route::Pods
            | Route::RunningPods
            | Route::Summary
            | Route::Metrics(_)
            | Route::Run(_)
            | Route::ContainerLogs(_)
            | Route::Checkpoint(_)
            | Route::Logs(_)
            | Route::Configz
            | Route::Statusz
            | Route::Flagz
            | Route::Verbosity
            | Route::Profiles
            | Route::Console(_)
            | Route::Disabled(_) => {
                let answer = self.plain(place, request).await;
                return answering.with(answer);
            }
        };
        match called {
            Ok(called) => self.carry(called, request, answering).await,
            Err(answer) => answering.with(answer),
        }
    }

    async fn plain(&self, place: Route, request: Request<Incoming>) -> HandlerResponse {
        let query = QueryPairs::of(request.uri().query());
        let is_log = matches!(place, Route::ContainerLogs(_) | Route::Logs(_));
        let answer = match place {
            Route::Healthz => Ok(healthz::answer(&*self.node, &request)
                .await
                .unwrap_or_else(not_found)),
            Route::Pods => self.pods().await,
            Route::RunningPods => self.running_pods().await,
            Route::Summary => self.summary(&request, &query).await,
            Route::Metrics(which) => self.metrics(which, &request).await,
            Route::Run(target) => self.run(target, &query).await,
            Route::ContainerLogs(target) => self.container_log(target, &query).await,
            Route::Checkpoint(target) => self.checkpoint(target, &query).await,
            Route::Logs(path) => Ok(self.system_log(&path, &request).await),
            Route::Configz => self.node.configz().await.map(json).map_err(failed),
            Route::Statusz => Ok(self.statusz(&request)),
            Route::Flagz => Ok(self.flagz(&request)),
            Route::Verbosity => Ok(self.verbosity(request).await),
            Route::Profiles => Ok(text(
                StatusCode::NOT_IMPLEMENTED,
                "this agent is no Go program and has no such profiles\n",
            )),
            Route::Console(path) => Ok(self.node.console(&path).await),
            Route::Disabled(why) => Ok(text(StatusCode::METHOD_NOT_ALLOWED, why)),
            Route::Exec(_) | Route::Attach(_) | Route::PortForward(_) => Ok(not_found()),
        };
        let mut answer = answer.unwrap_or_else(|answer| answer);
        if is_log {
            answer.extensions_mut().insert(ReadByPeople);
        }
        answer
    }

    async fn summary(
        &self,
        request: &Request<Incoming>,
        query: &QueryPairs,
    ) -> Result<HandlerResponse, HandlerResponse> {
        let broken = |why: &dyn std::fmt::Display| {
            let why = format!("Internal Error: {why}");
            text(StatusCode::INTERNAL_SERVER_ERROR, why)
        };
        if request.method() == Method::POST {
            let kind = request.headers().get(CONTENT_TYPE);
            let kind = kind.and_then(|kind| kind.to_str().ok());
            no_media_type(kind)
                .map_err(|why| broken(&format!("parse form failed: mime: {why}")))?;
        }
        let mut only = query.all("only_cpu_and_memory");
        let detail = match (only.next(), only.next()) {
            (Some("true"), None) => Detail::OnlyCpuAndMemory,
            _ => Detail::Everything,
        };
        let summary = self.node.summary(detail).await;
        summary.map(json).map_err(|trouble| broken(&trouble))
    }

    async fn run(
        &self,
        target: ContainerTarget,
        query: &QueryPairs,
    ) -> Result<HandlerResponse, HandlerResponse> {
        let pod = self.pod(&target).await?;
        let command = query.first("cmd").unwrap_or_default();
        let wanted = RunCommand {
            pod,
            container: target.container,
            command: command.split(' ').map(str::to_owned).collect(),
        };
        self.node.run(wanted).await.map(json).map_err(failed)
    }

    async fn checkpoint(
        &self,
        target: ContainerTarget,
        query: &QueryPairs,
    ) -> Result<HandlerResponse, HandlerResponse> {
        let pod = self.pod(&target).await?;
        if !pods::has_container(&pod, &target.container) {
            return Err(text(
                StatusCode::NOT_FOUND,
                format!("container {} does not exist", target.container),
            ));
        }
        let timeout = match query.all("timeout").last().map(str::parse::<i64>) {
            None => None,
            Some(Ok(seconds)) => Some(Duration::from_secs(seconds.max(0).unsigned_abs())),
            Some(Err(_)) => {
                return Err(text(
                    StatusCode::NOT_FOUND,
                    "cannot parse value of timeout parameter",
                ));
            }
        };
        let wanted = ContainerCheckpointRequest {
            pod,
            container: target.container.clone(),
            timeout,
        };
        match self.node.checkpoint(wanted).await {
            Ok(path) => Ok(json(serde_json::json!({ "items": [path] }).to_string())),
            Err(trouble) => Err(text(
                StatusCode::INTERNAL_SERVER_ERROR,
                format!(
                    "checkpointing of {}/{}/{} failed ({trouble})",
                    target.namespace, target.pod, target.container
                ),
            )),
        }
    }
}

/// Checks that a body's media type is well-formed; the error is in Go's words.
fn no_media_type(kind: Option<&str>) -> Result<(), &'static str> {
    let Some(kind) = kind.filter(|kind| !kind.is_empty()) else {
        return Ok(());
    };
    let kind = kind.split(';').next().unwrap_or_default().trim();
    let is_token = |text: &str| {
        let is_special =
            |c: char| c.is_control() || !c.is_ascii() || "()<>@,;:\\\"/[]?= ".contains(c);
        !text.is_empty() && !text.contains(is_special)
    };
    match kind.split_once('/') {
        _ if kind.is_empty() => Err("no media type"),
        None if is_token(kind) => Ok(()),
        None => Err("expected slash after first token"),
        Some((kind, _)) if !is_token(kind) => Err("expected slash after first token"),
        Some((_, inner)) if is_token(inner) => Ok(()),
        Some((_, "")) => Err("expected token after slash"),
        Some(_) => Err("unexpected content after media subtype"),
    }
}

fn lost_answer(lost: RouteError, query: Option<&str>) -> HandlerResponse {
    match lost {
        // It is the same request there.
        RouteError::Elsewhere(path) => moved(StatusCode::TEMPORARY_REDIRECT, &path, query),
        RouteError::Crooked => text(
            StatusCode::BAD_REQUEST,
            "the path has empty, dotted or unreadable segments\n",
        ),
        RouteError::Nowhere => not_found(),
        RouteError::Nothing => text(StatusCode::NOT_FOUND, "404: Page Not Found"),
    }
}

/// Redirects the caller, with its query.
fn moved(status: StatusCode, to: &str, query: Option<&str>) -> HandlerResponse {
    let to = match query {
        Some(query) => format!("{to}?{query}"),
        None => to.to_owned(),
    };
    let mut answer = text(status, "");
    match HeaderValue::try_from(to) {
        Ok(to) => drop(answer.headers_mut().insert(LOCATION, to)),
        Err(_) => return lost_answer(RouteError::Crooked, None),
    }
    answer
}

fn json(body: impl Into<Bytes>) -> HandlerResponse {
    whole(StatusCode::OK, "application/json", body.into())
}

/// A failure of the node is the server's own error.
fn failed(trouble: NodeError) -> HandlerResponse {
    text(StatusCode::INTERNAL_SERVER_ERROR, trouble.to_string())
}

/// A refusal of a stream by the runtime has a status of its own.
fn no_stream(trouble: &NodeError) -> HandlerResponse {
    let status = match trouble {
        NodeError::NotFound(_) => StatusCode::NOT_FOUND,
        NodeError::Exhausted(_) => StatusCode::TOO_MANY_REQUESTS,
        NodeError::Failed(_) => StatusCode::INTERNAL_SERVER_ERROR,
    };
    let mut answer = text(status, trouble.to_string());
    if status == StatusCode::TOO_MANY_REQUESTS {
        let minute = HeaderValue::from_static("60");
        answer.headers_mut().insert(RETRY_AFTER, minute);
    }
    answer
}

/// A body that is sent as it is produced; `keep` is held until it has ended.
fn as_it_comes<K: Send + Unpin + 'static>(from: mpsc::Receiver<Bytes>, keep: K) -> HandlerResponse {
    let pieces = futures_util::stream::unfold(from, async |mut from| {
        let piece = from.recv().await?;
        Some((Ok(Frame::data(piece)), from))
    });
    Response::new(with_guard(StreamBody::new(pieces).boxed_unsync(), keep))
}

fn html(body: String) -> HandlerResponse {
    let mut answer = text(StatusCode::OK, body);
    let html = HeaderValue::from_static("text/html; charset=utf-8");
    answer.headers_mut().insert(CONTENT_TYPE, html);
    answer
}
