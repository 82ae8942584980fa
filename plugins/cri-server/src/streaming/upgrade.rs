//! From an HTTP request to streams: negotiates the protocol and connects the streams to the backend.

use std::pin::pin;

use http::header::{
    CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, UPGRADE,
};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use super::connection::{NewStream, StreamWriter};
use super::remote_command::{CommandResult, ProtocolVersion, RemoteStreams, StreamOptions};
use super::websocket::StreamClose;
use super::{
    StreamingBackend, StreamingRequest, StreamingResponse, port_forward, refusal, remote_command,
    spdy, websocket,
};

const VERSION_HEADER: &str = "x-stream-protocol-version";
const ACCEPTED_HEADER: &str = "x-accepted-stream-protocol-versions";
const COMMAND_PROTOCOLS: [&str; 4] = [
    "v4.channel.k8s.io",
    "v3.channel.k8s.io",
    "v2.channel.k8s.io",
    "channel.k8s.io",
];
const FORWARD_PROTOCOL: &str = "portforward.k8s.io";
const TUNNEL_PROTOCOL: &str = "SPDY/3.1+portforward.k8s.io";

/// The protocol that carries the streams.
#[derive(Clone, Copy, Debug)]
enum Transport {
    Spdy(ProtocolVersion),
    Channels(ProtocolVersion, StreamClose),
    Tunnel,
}

/// A connection that is about to be streams instead of HTTP.
pub(super) struct UpgradedConnection {
    upgrade: OnUpgrade,
    request: StreamingRequest,
    transport: Transport,
}

/// Answers a request to become streams; an error is the response that refuses it.
pub(super) fn begin(
    mut http: Request<Incoming>,
    request: StreamingRequest,
) -> Result<(StreamingResponse, UpgradedConnection), Box<StreamingResponse>> {
    let headers = http.headers();
    let wants = |what: &str| {
        listed(headers, UPGRADE.as_str()).any(|name| name.eq_ignore_ascii_case(what))
            && listed(headers, CONNECTION.as_str()).any(|name| name.eq_ignore_ascii_case("upgrade"))
    };
    let (answer, transport) = if wants("websocket") {
        websockets(headers, &request)?
    } else if wants("SPDY/3.1") {
        framed(headers, &request)?
    } else {
        let text = "unable to upgrade: missing upgrade headers in request";
        return Err(refusal(StatusCode::BAD_REQUEST, text));
    };
    let upgrade = hyper::upgrade::on(&mut http);
    Ok((
        answer,
        UpgradedConnection {
            upgrade,
            request,
            transport,
        },
    ))
}

fn listed<'a>(headers: &'a HeaderMap, name: &'a str) -> impl Iterator<Item = &'a str> {
    let values = headers
        .get_all(name)
        .into_iter()
        .filter_map(|value| value.to_str().ok());
    values
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .filter(|name| !name.is_empty())
}

fn framed(
    headers: &HeaderMap,
    request: &StreamingRequest,
) -> Result<(StreamingResponse, Transport), Box<StreamingResponse>> {
    let served: &[&str] = match request {
        StreamingRequest::Exec(_) | StreamingRequest::Attach(_) => &COMMAND_PROTOCOLS,
        StreamingRequest::PortForward(_) => &[FORWARD_PROTOCOL],
    };
    let mut offered = listed(headers, VERSION_HEADER).peekable();
    if offered.peek().is_none() {
        let text = "unable to upgrade: X-Stream-Protocol-Version is required";
        return Err(refusal(StatusCode::BAD_REQUEST, text));
    }
    let Some(chosen) = offered.find_map(|name| served.iter().find(|one| **one == name)) else {
        let names: Vec<_> = listed(headers, VERSION_HEADER).collect();
        let text = format!(
            "unable to upgrade: unable to negotiate protocol: client supports [{}], server accepts [{}]",
            names.join(" "),
            served.join(" "),
        );
        let mut refusal = refusal(StatusCode::FORBIDDEN, text);
        for name in served {
            refusal
                .headers_mut()
                .append(ACCEPTED_HEADER, HeaderValue::from_static(name));
        }
        return Err(refusal);
    };
    let mut answer = switching("SPDY/3.1");
    answer
        .headers_mut()
        .insert(VERSION_HEADER, HeaderValue::from_static(chosen));
    Ok((
        answer,
        Transport::Spdy(ProtocolVersion::of(chosen).unwrap_or(ProtocolVersion::V4)),
    ))
}

fn websockets(
    headers: &HeaderMap,
    request: &StreamingRequest,
) -> Result<(StreamingResponse, Transport), Box<StreamingResponse>> {
    let Some(key) = headers.get(SEC_WEBSOCKET_KEY) else {
        return Err(refusal(
            StatusCode::BAD_REQUEST,
            "unable to upgrade: no websocket key",
        ));
    };
    let plain_channels = Transport::Channels(ProtocolVersion::V1, StreamClose::None);
    let numbered = Transport::Channels(ProtocolVersion::V4, StreamClose::None);
    let choice = |name: &str| match (name, request) {
        ("v5.channel.k8s.io", StreamingRequest::Exec(_) | StreamingRequest::Attach(_)) => Some((
            "v5.channel.k8s.io",
            Transport::Channels(ProtocolVersion::V4, StreamClose::Single),
        )),
        ("v4.channel.k8s.io", _) => Some(("v4.channel.k8s.io", numbered)),
        ("channel.k8s.io", StreamingRequest::Exec(_) | StreamingRequest::Attach(_)) => {
            Some(("channel.k8s.io", plain_channels))
        }
        (TUNNEL_PROTOCOL, StreamingRequest::PortForward(_)) => {
            Some((TUNNEL_PROTOCOL, Transport::Tunnel))
        }
        _ => None,
    };
    let protocol = SEC_WEBSOCKET_PROTOCOL.as_str();
    let chosen = if listed(headers, protocol).next().is_none() {
        Some(("", plain_channels))
    } else {
        listed(headers, protocol).find_map(choice)
    };
    let Some((name, transport)) = chosen else {
        let names: Vec<_> = listed(headers, protocol).collect();
        let text = format!(
            "unable to negotiate protocol: client supports [{}]",
            names.join(" ")
        );
        return Err(refusal(StatusCode::FORBIDDEN, text));
    };
    let mut answer = switching("websocket");
    if let Ok(accepted) = HeaderValue::from_str(&derive_accept_key(key.as_bytes())) {
        answer.headers_mut().insert(SEC_WEBSOCKET_ACCEPT, accepted);
    }
    if !name.is_empty() {
        answer
            .headers_mut()
            .insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(name));
    }
    Ok((answer, transport))
}

fn switching(to: &'static str) -> StreamingResponse {
    let mut answer = Response::new(Full::new(Bytes::new()));
    *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    answer
        .headers_mut()
        .insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    answer
        .headers_mut()
        .insert(UPGRADE, HeaderValue::from_static(to));
    answer
}

impl UpgradedConnection {
    /// Serves the streams until they end.
    pub(super) async fn serve<B: StreamingBackend>(self, backend: &B) {
        let UpgradedConnection {
            upgrade,
            request,
            transport,
        } = self;
        let Ok(io) = upgrade.await else { return };
        let io = TokioIo::new(io);
        match transport {
            Transport::Spdy(version) => over_spdy(io, backend, &request, version).await,
            Transport::Tunnel => {
                let serve = |io| over_spdy(io, backend, &request, ProtocolVersion::V4);
                websocket::serve_tunnel(io, serve).await;
            }
            Transport::Channels(version, closing) => {
                let count = match &request {
                    StreamingRequest::Exec(_) | StreamingRequest::Attach(_) => 5,
                    StreamingRequest::PortForward(request) => {
                        u8::try_from(request.port.len() * 2).unwrap_or(u8::MAX)
                    }
                };
                let serve = async |opened| over_channels(opened, backend, &request, version).await;
                websocket::serve_channels(io, count, closing, serve).await;
            }
        }
    }
}

async fn over_spdy<Io: AsyncRead + AsyncWrite>(
    io: Io,
    backend: &impl StreamingBackend,
    request: &StreamingRequest,
    version: ProtocolVersion,
) {
    let io = pin!(io);
    let serve = async |mut opened: mpsc::Receiver<NewStream>| match request {
        StreamingRequest::PortForward(request) => {
            port_forward::serve_pairs(backend, request, opened).await
        }
        StreamingRequest::Exec(_) | StreamingRequest::Attach(_) => {
            let streams =
                remote_command::accept_streams(&mut opened, options(request), version).await;
            // No further stream is accepted: the connection drops what more the client opens.
            drop(opened);
            run_command(streams, backend, request, version).await;
        }
    };
    spdy::serve_streams(io, serve).await;
}

async fn over_channels(
    opened: Vec<NewStream>,
    backend: &impl StreamingBackend,
    request: &StreamingRequest,
    version: ProtocolVersion,
) {
    match request {
        StreamingRequest::PortForward(request) => {
            port_forward::serve_channels(backend, request, opened).await
        }
        StreamingRequest::Exec(_) | StreamingRequest::Attach(_) => {
            let streams = remote_command::accept_channels(opened, options(request)).await;
            run_command(streams, backend, request, version).await;
        }
    }
}

fn options(request: &StreamingRequest) -> StreamOptions {
    let (stdin, stdout, stderr, tty) = match request {
        StreamingRequest::Exec(request) => {
            (request.stdin, request.stdout, request.stderr, request.tty)
        }
        StreamingRequest::Attach(request) => {
            (request.stdin, request.stdout, request.stderr, request.tty)
        }
        StreamingRequest::PortForward(_) => (false, false, false, false),
    };
    StreamOptions {
        stdin,
        stdout,
        stderr,
        tty,
    }
}

async fn run_command(
    accepted: Option<(RemoteStreams, StreamWriter)>,
    backend: &impl StreamingBackend,
    request: &StreamingRequest,
    version: ProtocolVersion,
) {
    let Some((streams, error)) = accepted else {
        return;
    };
    let (result, action) = match request {
        StreamingRequest::Exec(request) => {
            (backend.exec(request, streams).await, "executing command in")
        }
        StreamingRequest::Attach(request) => {
            (backend.attach(request, streams).await, "attaching to")
        }
        StreamingRequest::PortForward(_) => (CommandResult::Exited(0), ""),
    };
    remote_command::report_result(result, action, version, &error).await;
}
