//! Calls that are proxied to the kubelets: logs, exec, attach, port-forward, the proxy of nodes, and metrics.
//!
//! As the API server does it: the object says which node, the node says where its kubelet listens, and an upgraded
//! connection is carried byte for byte.

mod kubelet;
mod location;
mod metrics;
pub(crate) mod no_verification;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use http::{HeaderMap, HeaderName, Request, Response as HttpResponse, StatusCode, header};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::{Body as _, Incoming};
use hyper_util::rt::TokioIo;

use crate::endpoints::answer::{Body, Response, StatusError, json_response, text_response};
use crate::endpoints::request_info::RequestInfo;
use crate::kinds::Handling;
use crate::server::state::State;

const WEBSOCKETS: &str = "websocket";
/// What kubectl offers in a WebSocket that only newer kubelets understand: a command's streams, and SPDY.
const NEWER: [&str; 2] = ["v5.channel.k8s.io", "SPDY/3.1+portforward.k8s.io"];
/// So much of a kubelet's refusal is read.
const REFUSAL: usize = 64 * 1024;
/// What is of one connection only, and is not carried on.
const HOP: [HeaderName; 5] = [
    header::AUTHORIZATION,
    header::HOST,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
];

/// Carries a call that `RequestInfo::for_a_kubelet` says is one.
pub(crate) async fn proxy(
    state: Arc<State>,
    call: RequestInfo,
    request: Request<Incoming>,
) -> Response {
    let done = if call.resource.handling == Handling::Measured {
        metrics::answer(&state, &call)
            .await
            .map(|(code, value)| json_response(code, &value))
    } else {
        proxied(&state, &call, request).await
    };
    done.unwrap_or_else(|failure| failure.response())
}

async fn proxied(
    state: &State,
    call: &RequestInfo,
    request: Request<Incoming>,
) -> Result<Response, StatusError> {
    let upgraded = wanted_upgrade(request.headers());
    let is_understood = state.auth.settings().carry_websockets
        || (is_newer(request.headers()) && location::understands_websockets(state, call));
    let refuses = upgraded.as_deref() == Some(WEBSOCKETS) && !is_understood;
    if refuses && call.resource.plural == "pods" {
        return Err(StatusError::bad_request("Upgrade request required"));
    }
    if matches!(call.subresource(), Some("exec" | "attach" | "portforward")) && upgraded.is_none() {
        return Err(StatusError::bad_request("Upgrade request required"));
    }
    let Some(place) = location::of(state, call, request.uri())? else {
        // A pod that is on no node has no log.
        return Ok(text_response(200, ""));
    };
    match upgraded {
        Some(_) => upgrade(state, &place, request).await,
        None => plain(state, call, &place, request).await,
    }
}

fn wanted_upgrade(headers: &HeaderMap) -> Option<String> {
    let connection = headers
        .get(header::CONNECTION)?
        .to_str()
        .ok()?
        .to_lowercase();
    let upgrade = headers.get(header::UPGRADE)?.to_str().ok()?.to_lowercase();
    connection.contains("upgrade").then_some(upgrade)
}

fn is_newer(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).into_iter();
    let texts = values.filter_map(|value| value.to_str().ok());
    texts
        .flat_map(|text| text.split(',').map(str::trim))
        .any(|protocol| NEWER.contains(&protocol))
}

fn outgoing(place: &location::ProxyTarget, request: &Request<Incoming>) -> http::request::Builder {
    let mut builder = Request::builder()
        .method(request.method())
        .uri(&place.path)
        .header(header::HOST, place.host());
    for (name, value) in request.headers() {
        if !HOP.contains(name) {
            builder = builder.header(name, value);
        }
    }
    builder
}

/// Carries a connection that becomes something else than HTTP; a refusal is handed back as it came.
async fn upgrade(
    state: &State,
    place: &location::ProxyTarget,
    mut request: Request<Incoming>,
) -> Result<Response, StatusError> {
    let ask = outgoing(place, &request)
        .body(crate::endpoints::answer::full(""))
        .map_err(unclear)?;
    let client = hyper::upgrade::on(&mut request);
    let mut answer = kubelet::ask(state, place, ask).await?;
    if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
        return Ok(passed(answer));
    }
    let server = hyper::upgrade::on(&mut answer);
    tokio::spawn(async move {
        let (Ok(client), Ok(server)) = tokio::join!(client, server) else {
            return;
        };
        let (mut client, mut server) = (TokioIo::new(client), TokioIo::new(server));
        // Either end may close it, and an error reaches neither.
        drop(tokio::io::copy_bidirectional(&mut client, &mut server).await);
    });
    let (head, _) = answer.into_parts();
    Ok(HttpResponse::from_parts(
        head,
        crate::endpoints::answer::full(""),
    ))
}

async fn plain(
    state: &State,
    call: &RequestInfo,
    place: &location::ProxyTarget,
    request: Request<Incoming>,
) -> Result<Response, StatusError> {
    let builder = outgoing(place, &request);
    let body = Body::new(request.into_body().map_err(std::io::Error::other));
    let answer = kubelet::ask(state, place, builder.body(body).map_err(unclear)?).await?;
    if call.subresource() == Some("log") && !answer.status().is_success() {
        return Err(refused(call, answer).await);
    }
    Ok(passed(answer))
}

fn passed(answer: HttpResponse<Incoming>) -> Response {
    let (mut head, body) = answer.into_parts();
    if body.size_hint().exact().is_none() {
        head.headers.remove(header::CONTENT_LENGTH);
    }
    HttpResponse::from_parts(head, Body::new(body.map_err(std::io::Error::other)))
}

/// Returns a kubelet's refusal in the server's words.
async fn refused(call: &RequestInfo, answer: HttpResponse<Incoming>) -> StatusError {
    let code = answer.status().as_u16();
    let body = Limited::new(answer.into_body(), REFUSAL)
        .collect()
        .await
        .map(|body| body.to_bytes())
        .unwrap_or_default();
    let text = String::from_utf8_lossy(&body).into_owned();
    match code {
        400 => StatusError::bad_request(text),
        500 => StatusError::new(
            500,
            "InternalError",
            format!("Internal error occurred: {text}"),
        ),
        404 => StatusError::new(
            404,
            "NotFound",
            format!(
                "the server could not find the requested resource ( pods/log {})",
                call.name()
            ),
        ),
        401 => StatusError::new(
            401,
            "Unauthorized",
            "the server has asked for the client to provide credentials".to_string(),
        ),
        403 => StatusError::new(
            403,
            "Forbidden",
            format!("Forbidden ( pods/log {}): {text}", call.name()),
        ),
        code => StatusError::new(
            code,
            "",
            format!(
                "the server responded with the status code {code} but did not return more information: {text}"
            ),
        ),
    }
}

fn unclear(why: http::Error) -> StatusError {
    StatusError::bad_request(format!("cannot be carried to a kubelet: {why}"))
}
