//! SPDY in the messages of a WebSocket: its bytes go on to the runtime as they are.

use std::cell::Cell;

use futures_util::{SinkExt, StreamExt};
use http::header::{
    SEC_WEBSOCKET_EXTENSIONS, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION,
    UPGRADE,
};
use hyper::body::Incoming;
use hyper::header::{HeaderName, HeaderValue};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_tungstenite::tungstenite::{Bytes, Message};

use super::{TUNNEL, open, opening};
use crate::http::HandlerResponse;
use crate::https::streams::{
    BUFFER, CarryError, GOODBYE_TIMEOUT, SWITCH_TIMEOUT, StreamForward, dial, onward, passed,
    silent,
};

const VERSIONS: HeaderName = HeaderName::from_static("x-stream-protocol-version");
const SPDY: &str = "SPDY/3.1";

/// Asks the runtime for SPDY, and carries it in the messages of the caller's WebSocket.
pub(in crate::https) async fn tunnel(
    carried: StreamForward,
    inner: Vec<String>,
    mut request: Request<Incoming>,
) -> Result<HandlerResponse, CarryError> {
    let here = hyper::upgrade::on(&mut request);
    let asked = request.headers().clone();
    let mut onward = onward(&carried, request)?;
    *onward.method_mut() = Method::POST;
    let headers = onward.headers_mut();
    for name in [
        SEC_WEBSOCKET_PROTOCOL,
        SEC_WEBSOCKET_KEY,
        SEC_WEBSOCKET_VERSION,
        SEC_WEBSOCKET_EXTENSIONS,
        VERSIONS,
    ] {
        headers.remove(name);
    }
    headers.insert(UPGRADE, HeaderValue::from_static(SPDY));
    for protocol in inner {
        if let Ok(protocol) = HeaderValue::try_from(protocol) {
            headers.append(VERSIONS, protocol);
        }
    }
    let mut answer = dial(onward).await?;
    if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
        return passed(answer).await;
    }
    let header = |name: HeaderName| answer.headers().get(name)?.to_str().ok();
    let is_spdy = |to: &str| to.eq_ignore_ascii_case(SPDY);
    if !header(UPGRADE).is_some_and(is_spdy) {
        return Err(CarryError::Unswitched);
    }
    let chosen = header(VERSIONS).map(|chosen| format!("{TUNNEL}{}", chosen.trim()));
    let opened = match opening(&asked, &chosen.unwrap_or_default()) {
        Ok(opened) => opened,
        Err(refusal) => return Ok(*refusal),
    };
    let there = hyper::upgrade::on(&mut answer);
    tokio::task::spawn_local(exchange(here, there, carried));
    Ok(opened)
}

async fn exchange(here: OnUpgrade, there: OnUpgrade, carried: StreamForward) {
    let switched = tokio::time::timeout(SWITCH_TIMEOUT, async { tokio::try_join!(here, there) });
    match switched.await {
        Ok(Ok((here, there))) => both_ways(here, there, &carried).await,
        Ok(Err(error)) => tracing::debug!("a tunnel did not begin: {error}"),
        Err(_) => tracing::debug!("a tunnel did not begin in time"),
    }
    drop(carried.keep);
}

async fn both_ways(here: Upgraded, there: Upgraded, carried: &StreamForward) {
    let (mut to_caller, mut from_caller) = open(here).await.split();
    let (mut from_runtime, mut to_runtime) = tokio::io::split(TokioIo::new(there));
    let last = Cell::new(kernel::now());
    let up = async {
        while let Some(Ok(message)) = from_caller.next().await {
            let bytes: Bytes = match message {
                Message::Binary(bytes) => bytes,
                Message::Text(text) => text.into(),
                Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => continue,
                Message::Close(_) => break,
            };
            last.set(kernel::now());
            to_runtime.write_all(&bytes).await?;
            to_runtime.flush().await?;
        }
        std::io::Result::Ok(())
    };
    let down = async {
        let mut piece = vec![0; BUFFER];
        loop {
            let read = from_runtime.read(&mut piece).await.unwrap_or_default();
            if read == 0 {
                break;
            }
            last.set(kernel::now());
            let message = Message::binary(piece[..read].to_vec());
            if to_caller.send(message).await.is_err() {
                break;
            }
        }
    };
    // Either end ends the tunnel: SPDY ends its streams itself.
    tokio::select! {
        done = up => {
            if let Err(error) = done {
                tracing::debug!("a tunnel was cut: {error}");
            }
        }
        () = down => {}
        () = silent(&last, carried.idle) => {
            tracing::info!("a tunnel was idle for {:?} and is ended", carried.idle);
        }
    }
    let goodbye = async {
        drop(to_caller.close().await);
        drop(to_runtime.shutdown().await);
        while let Some(Ok(_)) = from_caller.next().await {}
    };
    drop(tokio::time::timeout(GOODBYE_TIMEOUT, goodbye).await);
}
