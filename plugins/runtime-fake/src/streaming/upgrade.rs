//! From an HTTP request to streams: which protocol is spoken, and who serves it.

use std::pin::pin;
use std::sync::Weak;

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

use super::remote::{Outcome, Streams, Version, Wanted};
use super::session::{Opened, Outlet};
use super::websocket::Closing;
use super::{Answer, Asked, attach, command, forward, refusal, remote, spdy, websocket};
use crate::shared::Shared;

const VERSION: &str = "x-stream-protocol-version";
const ACCEPTED: &str = "x-accepted-stream-protocol-versions";
const COMMANDS: [&str; 4] = [
    "v4.channel.k8s.io",
    "v3.channel.k8s.io",
    "v2.channel.k8s.io",
    "channel.k8s.io",
];
const FORWARD: &str = "portforward.k8s.io";
const TUNNEL: &str = "SPDY/3.1+portforward.k8s.io";

/// How the streams come.
#[derive(Clone, Copy, Debug)]
enum Carrier {
    Spdy(Version),
    Channels(Version, Closing),
    Tunnel,
}

/// A connection that is about to be something else than HTTP.
pub(super) struct Upgraded {
    upgrade: OnUpgrade,
    asked: Asked,
    carrier: Carrier,
}

/// Answers a request that wants to become streams.
pub(super) fn begin(
    mut request: Request<Incoming>,
    asked: Asked,
) -> Result<(Answer, Upgraded), Box<Answer>> {
    let headers = request.headers();
    let wants = |what: &str| {
        listed(headers, UPGRADE.as_str()).any(|name| name.eq_ignore_ascii_case(what))
            && listed(headers, CONNECTION.as_str()).any(|name| name.eq_ignore_ascii_case("upgrade"))
    };
    let (answer, carrier) = if wants("websocket") {
        websockets(headers, &asked)?
    } else if wants("SPDY/3.1") {
        framed(headers, &asked)?
    } else {
        let text = "unable to upgrade: missing upgrade headers in request";
        return Err(refusal(StatusCode::BAD_REQUEST, text));
    };
    let upgrade = hyper::upgrade::on(&mut request);
    Ok((
        answer,
        Upgraded {
            upgrade,
            asked,
            carrier,
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

fn framed(headers: &HeaderMap, asked: &Asked) -> Result<(Answer, Carrier), Box<Answer>> {
    let served: &[&str] = match asked {
        Asked::Exec(_) | Asked::Attach(_) => &COMMANDS,
        Asked::PortForward(_) => &[FORWARD],
    };
    let mut offered = listed(headers, VERSION).peekable();
    if offered.peek().is_none() {
        let text = "unable to upgrade: X-Stream-Protocol-Version is required";
        return Err(refusal(StatusCode::BAD_REQUEST, text));
    }
    let Some(chosen) = offered.find_map(|name| served.iter().find(|one| **one == name)) else {
        let names: Vec<_> = listed(headers, VERSION).collect();
        let text = format!(
            "unable to upgrade: unable to negotiate protocol: client supports [{}], server accepts [{}]",
            names.join(" "),
            served.join(" "),
        );
        let mut refusal = refusal(StatusCode::FORBIDDEN, text);
        for name in served {
            refusal
                .headers_mut()
                .append(ACCEPTED, HeaderValue::from_static(name));
        }
        return Err(refusal);
    };
    let mut answer = switching("SPDY/3.1");
    answer
        .headers_mut()
        .insert(VERSION, HeaderValue::from_static(chosen));
    Ok((
        answer,
        Carrier::Spdy(Version::of(chosen).unwrap_or(Version::V4)),
    ))
}

fn websockets(headers: &HeaderMap, asked: &Asked) -> Result<(Answer, Carrier), Box<Answer>> {
    let Some(key) = headers.get(SEC_WEBSOCKET_KEY) else {
        return Err(refusal(
            StatusCode::BAD_REQUEST,
            "unable to upgrade: no websocket key",
        ));
    };
    let plain_channels = Carrier::Channels(Version::V1, Closing::None);
    let numbered = Carrier::Channels(Version::V4, Closing::None);
    let choice = |name: &str| match (name, asked) {
        ("v5.channel.k8s.io", Asked::Exec(_) | Asked::Attach(_)) => Some((
            "v5.channel.k8s.io",
            Carrier::Channels(Version::V4, Closing::Single),
        )),
        ("v4.channel.k8s.io", _) => Some(("v4.channel.k8s.io", numbered)),
        ("channel.k8s.io", Asked::Exec(_) | Asked::Attach(_)) => {
            Some(("channel.k8s.io", plain_channels))
        }
        (TUNNEL, Asked::PortForward(_)) => Some((TUNNEL, Carrier::Tunnel)),
        _ => None,
    };
    let protocol = SEC_WEBSOCKET_PROTOCOL.as_str();
    let chosen = if listed(headers, protocol).next().is_none() {
        Some(("", plain_channels))
    } else {
        listed(headers, protocol).find_map(choice)
    };
    let Some((name, carrier)) = chosen else {
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
    Ok((answer, carrier))
}

fn switching(to: &'static str) -> Answer {
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

impl Upgraded {
    /// Serves the streams until they end.
    pub(super) async fn serve(self, node: &Weak<Shared>) {
        let Upgraded {
            upgrade,
            asked,
            carrier,
        } = self;
        let Ok(io) = upgrade.await else { return };
        let io = TokioIo::new(io);
        match carrier {
            Carrier::Spdy(version) => over_spdy(io, node, &asked, version).await,
            Carrier::Tunnel => {
                let serve = |io| over_spdy(io, node, &asked, Version::V4);
                websocket::tunnel(io, serve).await;
            }
            Carrier::Channels(version, closing) => {
                let count = match &asked {
                    Asked::Exec(_) | Asked::Attach(_) => 5,
                    Asked::PortForward(request) => {
                        u8::try_from(request.port.len() * 2).unwrap_or(u8::MAX)
                    }
                };
                let serve = async |opened| over_channels(opened, node, &asked, version).await;
                websocket::converse(io, count, closing, serve).await;
            }
        }
    }
}

async fn over_spdy<Io: AsyncRead + AsyncWrite>(
    io: Io,
    node: &Weak<Shared>,
    asked: &Asked,
    version: Version,
) {
    let io = pin!(io);
    let serve = async |mut opened: mpsc::Receiver<Opened>| match asked {
        Asked::PortForward(request) => forward::run(node, request, opened).await,
        Asked::Exec(_) | Asked::Attach(_) => {
            let streams = remote::gather(&mut opened, wanted(asked), version).await;
            // Nobody waits for another one: what more the client opens goes nowhere.
            drop(opened);
            run(streams, node, asked, version).await;
        }
    };
    spdy::converse(io, serve).await;
}

async fn over_channels(opened: Vec<Opened>, node: &Weak<Shared>, asked: &Asked, version: Version) {
    match asked {
        Asked::PortForward(request) => forward::channels(node, request, opened).await,
        Asked::Exec(_) | Asked::Attach(_) => {
            let streams = remote::channels(opened, wanted(asked)).await;
            run(streams, node, asked, version).await;
        }
    }
}

fn wanted(asked: &Asked) -> Wanted {
    let (stdin, stdout, stderr, tty) = match asked {
        Asked::Exec(request) => (request.stdin, request.stdout, request.stderr, request.tty),
        Asked::Attach(request) => (request.stdin, request.stdout, request.stderr, request.tty),
        Asked::PortForward(_) => (false, false, false, false),
    };
    Wanted {
        stdin,
        stdout,
        stderr,
        tty,
    }
}

async fn run(
    gathered: Option<(Streams, Outlet)>,
    node: &Weak<Shared>,
    asked: &Asked,
    version: Version,
) {
    let Some((streams, error)) = gathered else {
        return;
    };
    let (outcome, what) = match asked {
        Asked::Exec(request) => (
            command::run(node, request, streams).await,
            "executing command in",
        ),
        Asked::Attach(request) => (attach::run(node, request, streams).await, "attaching to"),
        Asked::PortForward(_) => (Outcome::Exited(0), ""),
    };
    remote::report(outcome, what, version, &error).await;
}
