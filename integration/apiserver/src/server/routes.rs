//! One request: written down, spoilt if so ordered, allowed or refused, answered.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use http::{Request, header};
use http_body_util::{BodyExt as _, Limited, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};

use super::control;
use crate::auth::{self, ConnectionPeer};
use crate::encoding::tables;
use crate::endpoints::answer::{Body, Response, StatusError, json_response, text_response, typed};
use crate::endpoints::request_info::{QueryParameters, RequestInfo, RequestVerb};
use crate::endpoints::{discovery, openapi};
use crate::server::faults::Effect;
use crate::server::request_log::RecordedRequest;
use crate::server::state::State;
use crate::verbs::watch;
use crate::{nodes, verbs};

/// The largest request body in bytes: upstream's limit for etcd and the server.
const LARGEST_BODY: usize = 3 * 1024 * 1024;

/// One connection, as its requests see it.
#[derive(Debug)]
pub(super) struct RoutedRequest {
    pub(super) state: Arc<State>,
    pub(super) peer: ConnectionPeer,
    pub(super) number: u64,
}

/// A request's number in the request log.
#[derive(Clone, Copy)]
struct LogNumber(usize);

/// The connection is cut instead of an answer.
#[derive(Debug)]
pub(super) struct CutOff;

impl std::fmt::Display for CutOff {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("cut off as ordered")
    }
}

impl std::error::Error for CutOff {}

pub(super) async fn answer(
    context: Arc<RoutedRequest>,
    mut request: Request<Incoming>,
) -> Result<Response, CutOff> {
    if let Some(control) = control::ControlRequest::parse(&request) {
        return Ok(control::answer(&context.state, control, request).await);
    }
    let written = context
        .state
        .request_log()
        .add(recorded(&request, context.number));
    request.extensions_mut().insert(LogNumber(written));
    let answer = answer_with_faults(&context, request).await;
    if let Ok(response) = &answer {
        context
            .state
            .request_log()
            .answered(written, response.status().as_u16());
    }
    answer
}

fn recorded(request: &Request<Incoming>, connection: u64) -> RecordedRequest {
    let text = |name| {
        request
            .headers()
            .get(name)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
            .to_string()
    };
    RecordedRequest {
        method: request.method().to_string(),
        path: request.uri().path().to_string(),
        query: request.uri().query().unwrap_or_default().to_string(),
        status: 0,
        user_agent: text(header::USER_AGENT),
        content_type: text(header::CONTENT_TYPE),
        connection,
    }
}

/// Answers as far as the faults let it.
async fn answer_with_faults(
    context: &RoutedRequest,
    request: Request<Incoming>,
) -> Result<Response, CutOff> {
    let target = request
        .uri()
        .path_and_query()
        .map(ToString::to_string)
        .unwrap_or_default();
    let watched =
        QueryParameters::parse(request.uri().query().unwrap_or_default()).is_true("watch");
    let effect = context
        .state
        .faults()
        .take(request.method().as_str(), &target, watched);
    match effect {
        None => Ok(plain(context, request, None).await),
        Some(Effect::Status { code, retry_after }) => Ok(refusal(code, retry_after)),
        Some(Effect::Garbage) => Ok(typed(
            200,
            "application/json",
            b"<html>{\"kind\": 7, ]]".to_vec(),
        )),
        Some(Effect::Nonsense) => Ok(typed(
            200,
            "application/json",
            b"{\"kind\":\"Teapot\",\"items\":\"none\",\"metadata\":[3]}".to_vec(),
        )),
        Some(Effect::OtherList) => Ok(typed(
            200,
            "application/json",
            b"{\"kind\":\"ComponentStatusList\",\"apiVersion\":\"v1\",\"metadata\":{\"resourceVersion\":\"9\"},\"items\":[]}"
                .to_vec(),
        )),
        Some(Effect::Delay(seconds)) => {
            tokio::time::sleep(Duration::try_from_secs_f64(seconds).unwrap_or_default()).await;
            Ok(plain(context, request, None).await)
        }
        Some(Effect::Refuse) => Err(CutOff),
        Some(Effect::Lose) => {
            drop(plain(context, request, None).await);
            Err(CutOff)
        }
        Some(Effect::Cut) => cut(plain(context, request, None).await).await,
        Some(Effect::Hang) => std::future::pending().await,
        Some(
            order @ (Effect::HalfEvent
            | Effect::GarbageEvent
            | Effect::OtherEvent
            | Effect::ExpireEvent
            | Effect::Mute),
        ) => Ok(plain(context, request, Some(order)).await),
    }
}

fn refusal(code: u16, retry_after: Option<u32>) -> Response {
    let (reason, message) = match code {
        401 => ("Unauthorized", "Unauthorized"),
        403 => ("Forbidden", "forbidden: ordered by a fault"),
        404 => (
            "NotFound",
            "the server could not find the requested resource",
        ),
        409 => (
            "Conflict",
            "Operation cannot be fulfilled: the object has been modified; please apply your changes to the latest version and try again",
        ),
        410 => (
            "Expired",
            "The resourceVersion for the provided watch is too old.",
        ),
        429 => (
            "TooManyRequests",
            "The server has received too many requests and has asked us to try again later",
        ),
        503 => ("ServiceUnavailable", "apiserver is shutting down"),
        504 => (
            "Timeout",
            "request did not complete within the allotted timeout",
        ),
        _ => (
            "InternalError",
            "Internal error occurred: ordered by a fault",
        ),
    };
    let mut response = StatusError::new(code, reason, message).response();
    if let Some(seconds) = retry_after {
        response
            .headers_mut()
            .insert(header::RETRY_AFTER, seconds.into());
    }
    response
}

/// Returns the answer with only its first half, and an error after it.
async fn cut(response: Response) -> Result<Response, CutOff> {
    let (head, body) = response.into_parts();
    let Ok(body) = body.collect().await else {
        return Err(CutOff);
    };
    let bytes = body.to_bytes();
    let half = bytes.slice(..bytes.len() / 2);
    let frames = stream::iter([Ok(Frame::data(half)), Err(std::io::Error::other(CutOff))]);
    // A frame on its own is not flushed before the error ends the connection.
    let frames = frames.then(|frame| async {
        tokio::task::yield_now().await;
        frame
    });
    Ok(Response::from_parts(
        head,
        Body::new(StreamBody::new(frames)),
    ))
}

async fn plain(
    context: &RoutedRequest,
    request: Request<Incoming>,
    order: Option<Effect>,
) -> Response {
    match routed(context, request, order).await {
        Ok(response) => response,
        Err(failure) => failure.response(),
    }
}

async fn routed(
    context: &RoutedRequest,
    request: Request<Incoming>,
    order: Option<Effect>,
) -> Result<Response, StatusError> {
    let state = &context.state;
    let user = auth::user(state, &context.peer, request.headers())?;
    let path = request.uri().path();
    if matches!(path, "/healthz" | "/livez" | "/readyz") {
        return Ok(text_response(200, "ok"));
    }
    let accept = request
        .headers()
        .get(header::ACCEPT)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    if let Some(document) = discovery::document(path).or_else(|| openapi::document(path, accept)) {
        return Ok(document);
    }
    let Some(mut call) = RequestInfo::parse(request.method(), request.uri(), request.headers())
    else {
        return Err(StatusError::no_such_path());
    };
    call.user = user;
    auth::permit(state, &call)?;
    if call.for_a_kubelet() {
        return Ok(nodes::proxy(state.clone(), call, request).await);
    }
    if call.verb == RequestVerb::Watch {
        return watch::open(state, &call, order);
    }
    let number = request.extensions().get::<LogNumber>().copied();
    call.body = body_of(request).await?;
    if let Some(LogNumber(number)) = number {
        state.request_log().read(number, &call.body);
    }
    let (code, value) = verbs::carry_out(state, &call)?;
    let value = tables::shaped(&call, value)?;
    Ok(json_response(code, &value))
}

async fn body_of(request: Request<Incoming>) -> Result<Bytes, StatusError> {
    match Limited::new(request.into_body(), LARGEST_BODY)
        .collect()
        .await
    {
        Ok(body) => Ok(body.to_bytes()),
        Err(why) => Err(StatusError::new(
            413,
            "RequestEntityTooLarge",
            format!("Request entity too large: {why}"),
        )),
    }
}
