//! WebSockets of the API server's newer protocols, which runtimes need not know: what they carry goes on to the
//! runtime as SPDY.
//!
//! A command's streams are taken out of their messages, and each becomes a stream of SPDY; of a forwarded port the
//! bytes of the messages are SPDY already.
//!
//! Upstream: pkg/kubelet/server/server.go, staging/src/k8s.io/apiserver/pkg/util/proxy (1.36).

mod command_status;
mod remote;
mod spdy;
mod tunnel;

use http::header::{
    CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL,
    SEC_WEBSOCKET_VERSION, UPGRADE,
};
use hyper::header::HeaderValue;
use hyper::upgrade::Upgraded;
use hyper::{HeaderMap, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

pub(super) use self::remote::translate;
pub(super) use self::tunnel::tunnel;
use super::streams::{BUFFER, nothing};
use crate::authn::{is_websocket, protocols};
use crate::http::{HandlerResponse, text};

/// The remote command protocol whose streams can be closed one by one.
const REMOTE: &str = "v5.channel.k8s.io";
/// SPDY in a WebSocket: the name of the inner protocol follows.
const TUNNEL: &str = "SPDY/3.1+";
const KUBERNETES: &str = ".k8s.io";
/// The largest message in bytes. Clients send some tens of kilobytes.
const LONGEST: usize = 4 << 20;

type CallerSocket = WebSocketStream<TokioIo<Upgraded>>;

/// Whether a command's streams come in a WebSocket protocol that only newer servers understand.
pub(super) fn is_remote(headers: &HeaderMap) -> bool {
    is_websocket(headers) && protocols(headers).any(|protocol| protocol == REMOTE)
}

/// The protocols that a requested SPDY tunnel may carry.
pub(super) fn tunnelled(headers: &HeaderMap) -> Vec<String> {
    if !is_websocket(headers) {
        return Vec::new();
    }
    let inner = |protocol: &str| {
        let inner = protocol.strip_prefix(TUNNEL)?;
        inner.ends_with(KUBERNETES).then(|| inner.to_owned())
    };
    protocols(headers).filter_map(inner).collect()
}

/// The response that opens a WebSocket, or the refusal.
fn opening(headers: &HeaderMap, protocol: &str) -> Result<HandlerResponse, Box<HandlerResponse>> {
    let bad = |why: &'static str| Box::new(text(StatusCode::BAD_REQUEST, why));
    let version = headers.get(SEC_WEBSOCKET_VERSION);
    if version.is_none_or(|version| version != "13") {
        return Err(bad(
            "unable to upgrade: the WebSocket's version is not 13\n",
        ));
    }
    let key = headers.get(SEC_WEBSOCKET_KEY);
    let key = key.ok_or_else(|| bad("unable to upgrade: the WebSocket has no key\n"))?;
    let accept = HeaderValue::try_from(derive_accept_key(key.as_bytes()));
    let protocol = HeaderValue::try_from(protocol);
    let (Ok(accept), Ok(protocol)) = (accept, protocol) else {
        return Err(bad(
            "unable to upgrade: the WebSocket's protocol is no text\n",
        ));
    };
    let mut answer = Response::new(nothing());
    *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = answer.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(SEC_WEBSOCKET_ACCEPT, accept);
    if !protocol.is_empty() {
        headers.insert(SEC_WEBSOCKET_PROTOCOL, protocol);
    }
    Ok(answer)
}

async fn open(here: Upgraded) -> CallerSocket {
    let limits = WebSocketConfig::default()
        .read_buffer_size(BUFFER)
        .write_buffer_size(0)
        .max_message_size(Some(LONGEST))
        .max_frame_size(Some(LONGEST));
    WebSocketStream::from_raw_socket(TokioIo::new(here), Role::Server, Some(limits)).await
}
