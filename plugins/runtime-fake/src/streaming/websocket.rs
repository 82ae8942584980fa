//! Streams over a WebSocket: the first byte of each message says which one it belongs to. Also a connection
//! of bytes through one, which is how SPDY is tunnelled.

use std::pin::pin;

use futures_util::future::{Either, select};
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream};
use tokio::sync::mpsc;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::frame::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

use super::session::{self, Activity, INLET, Opened, Outgoing, Outlet};

/// The longest message; kubectl's are 32 KiB.
const LONGEST: usize = 1 << 20;
/// With this as first byte, the second names a stream that the client has closed.
const CLOSES: u8 = 255;
/// So much is on its way through a tunnel.
const TUNNEL: usize = 64 << 10;

/// Whether the client can close a single stream: since version 5 it can.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Closing {
    Single,
    None,
}

async fn accept<Io: AsyncRead + AsyncWrite + Unpin>(io: Io) -> WebSocketStream<Io> {
    let limits = WebSocketConfig::default()
        .max_message_size(Some(LONGEST))
        .max_frame_size(Some(LONGEST));
    WebSocketStream::from_raw_socket(io, Role::Server, Some(limits)).await
}

/// Serves a connection of so many streams, all of them there from the beginning.
pub(super) async fn converse<Io, F>(
    io: Io,
    count: u8,
    closing: Closing,
    serve: impl FnOnce(Vec<Opened>) -> F,
) where
    Io: AsyncRead + AsyncWrite + Unpin,
    F: Future<Output = ()>,
{
    let (write, read) = accept(io).await.split();
    let (to, outgoing) = session::outgoing();
    let (inlets, streams) = (0..count)
        .map(|id| {
            let (inlet, from) = mpsc::channel(INLET);
            let outlet = Outlet::new(id.into(), to.clone());
            (
                Some(inlet),
                Opened {
                    headers: Vec::new(),
                    inlet: from,
                    outlet,
                },
            )
        })
        .unzip();
    let activity = Activity::default();
    let reading = hear(read, inlets, closing, &activity);
    let writing = say(write, outgoing, &activity);
    session::hold(serve(streams), to, (reading, writing), &activity).await;
}

async fn hear<Io: AsyncRead + AsyncWrite + Unpin>(
    mut from: SplitStream<WebSocketStream<Io>>,
    mut inlets: Vec<Option<mpsc::Sender<Vec<u8>>>>,
    closing: Closing,
    activity: &Activity,
) {
    while let Some(Ok(message)) = from.next().await {
        activity.seen();
        let bytes = match message {
            Message::Binary(bytes) => bytes,
            Message::Text(text) => text.into(),
            Message::Close(_) => return,
            Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => continue,
        };
        match bytes.split_first() {
            None => {}
            Some((&CLOSES, rest)) if closing == Closing::Single => {
                let named = rest.first().and_then(|id| inlets.get_mut(usize::from(*id)));
                let Some(inlet) = named.filter(|_| rest.len() == 1) else {
                    return;
                };
                *inlet = None;
            }
            Some((id, data)) => {
                // A stream that nobody reads, or that there is not, swallows what it is told.
                if let Some(Some(inlet)) = inlets.get(usize::from(*id)) {
                    drop(inlet.send(data.to_vec()).await);
                }
            }
        }
    }
}

async fn say<Io: AsyncRead + AsyncWrite + Unpin>(
    mut to: SplitSink<WebSocketStream<Io>, Message>,
    mut outgoing: mpsc::Receiver<Outgoing>,
    activity: &Activity,
) {
    while let Some(what) = outgoing.recv().await {
        let message = match what {
            Outgoing::Data(id, bytes) => {
                let id = u8::try_from(id).unwrap_or(CLOSES);
                Message::binary([&[id][..], &bytes].concat())
            }
            Outgoing::End => break,
            // A server closes no single stream.
            Outgoing::Reply(_)
            | Outgoing::Close(_)
            | Outgoing::Cancel(_)
            | Outgoing::Reset(..)
            | Outgoing::Pong(_) => continue,
        };
        if to.send(message).await.is_err() {
            return;
        }
        activity.seen();
    }
    let normal = CloseFrame {
        code: CloseCode::Normal,
        reason: "".into(),
    };
    drop(to.send(Message::Close(Some(normal))).await);
}

/// Serves the connection that is tunnelled through a WebSocket: its bytes are those of the binary messages.
pub(super) async fn tunnel<Io, F>(io: Io, serve: impl FnOnce(DuplexStream) -> F)
where
    Io: AsyncRead + AsyncWrite + Unpin,
    F: Future<Output = ()>,
{
    let (near, far) = tokio::io::duplex(TUNNEL);
    let (mut out, mut into) = tokio::io::split(far);
    let (mut write, mut read) = accept(io).await.split();
    let inwards = async {
        while let Some(Ok(message)) = read.next().await {
            match message {
                Message::Binary(bytes) if into.write_all(&bytes).await.is_ok() => {}
                Message::Binary(_) | Message::Text(_) | Message::Close(_) => break,
                Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => {}
            }
        }
        drop(into.shutdown().await);
    };
    let outwards = async {
        let mut bytes = vec![0; 32 << 10];
        while let Ok(count @ 1..) = out.read(&mut bytes).await {
            if write
                .send(Message::binary(bytes[..count].to_vec()))
                .await
                .is_err()
            {
                return;
            }
        }
        drop(write.close().await);
    };
    let served = async {
        tokio::join!(serve(near), outwards);
    };
    match select(pin!(served), pin!(inwards)).await {
        Either::Left(((), inwards)) => drop(tokio::time::timeout(session::LINGER, inwards).await),
        Either::Right(((), served)) => served.await,
    }
}
