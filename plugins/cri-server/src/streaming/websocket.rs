//! A command's streams over a WebSocket: the first byte of each message says which one it belongs to. Also a connection
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

use super::connection::{self, IdleTimer, NewStream, OutgoingFrame, READ_QUEUE, StreamWriter};

/// The longest message, in bytes; kubectl's are 32 KiB.
const MAX_MESSAGE_BYTES: usize = 1 << 20;
/// The first byte of a message whose second byte is the number of a stream that the client has closed (version 5).
const CLOSE_MESSAGE: u8 = 255;
/// Bytes on their way through a tunnel, each way.
const TUNNEL_BYTES: usize = 64 << 10;

/// Whether the client can close a single stream: from version 5 of the protocol on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StreamClose {
    Single,
    None,
}

async fn accept<Io: AsyncRead + AsyncWrite + Unpin>(io: Io) -> WebSocketStream<Io> {
    let limits = WebSocketConfig::default()
        .max_message_size(Some(MAX_MESSAGE_BYTES))
        .max_frame_size(Some(MAX_MESSAGE_BYTES));
    WebSocketStream::from_raw_socket(io, Role::Server, Some(limits)).await
}

/// Serves a connection of `count` streams, which exist from the beginning.
pub(super) async fn serve_channels<Io, F>(
    io: Io,
    count: u8,
    closing: StreamClose,
    serve: impl FnOnce(Vec<NewStream>) -> F,
) where
    Io: AsyncRead + AsyncWrite + Unpin,
    F: Future<Output = ()>,
{
    let (write, read) = accept(io).await.split();
    let (to, outgoing) = connection::outgoing();
    let (senders, streams) = (0..count)
        .map(|id| {
            let (sender, reader) = mpsc::channel(READ_QUEUE);
            let writer = StreamWriter::new(id.into(), to.clone());
            (
                Some(sender),
                NewStream {
                    headers: Vec::new(),
                    reader,
                    writer,
                },
            )
        })
        .unzip();
    let idle = IdleTimer::default();
    let reading = read_frames(read, senders, closing, &idle);
    let writing = write_frames(write, outgoing, &idle);
    connection::run_until_closed(serve(streams), to, (reading, writing), &idle).await;
}

async fn read_frames<Io: AsyncRead + AsyncWrite + Unpin>(
    mut from: SplitStream<WebSocketStream<Io>>,
    mut senders: Vec<Option<mpsc::Sender<Vec<u8>>>>,
    closing: StreamClose,
    idle: &IdleTimer,
) {
    while let Some(Ok(message)) = from.next().await {
        idle.restart();
        let bytes = match message {
            Message::Binary(bytes) => bytes,
            Message::Text(text) => text.into(),
            Message::Close(_) => return,
            Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => continue,
        };
        match bytes.split_first() {
            None => {}
            Some((&CLOSE_MESSAGE, rest)) if closing == StreamClose::Single => {
                let named = rest
                    .first()
                    .and_then(|id| senders.get_mut(usize::from(*id)));
                let Some(sender) = named.filter(|_| rest.len() == 1) else {
                    return;
                };
                *sender = None;
            }
            Some((id, data)) => {
                // Data of a stream that is not read, or does not exist, is dropped.
                if let Some(Some(sender)) = senders.get(usize::from(*id)) {
                    drop(sender.send(data.to_vec()).await);
                }
            }
        }
    }
}

async fn write_frames<Io: AsyncRead + AsyncWrite + Unpin>(
    mut to: SplitSink<WebSocketStream<Io>, Message>,
    mut outgoing: mpsc::Receiver<OutgoingFrame>,
    idle: &IdleTimer,
) {
    while let Some(frame) = outgoing.recv().await {
        let message = match frame {
            OutgoingFrame::Data(id, bytes) => {
                let id = u8::try_from(id).unwrap_or(CLOSE_MESSAGE);
                Message::binary([&[id][..], &bytes].concat())
            }
            OutgoingFrame::End => break,
            // A server closes no single stream.
            OutgoingFrame::Reply(_)
            | OutgoingFrame::Close(_)
            | OutgoingFrame::Cancel(_)
            | OutgoingFrame::Reset(..)
            | OutgoingFrame::Pong(_) => continue,
        };
        if to.send(message).await.is_err() {
            return;
        }
        idle.restart();
    }
    let normal = CloseFrame {
        code: CloseCode::Normal,
        reason: "".into(),
    };
    drop(to.send(Message::Close(Some(normal))).await);
}

/// Serves the connection that is tunnelled through a WebSocket: its bytes are those of the binary messages.
pub(super) async fn serve_tunnel<Io, F>(io: Io, serve: impl FnOnce(DuplexStream) -> F)
where
    Io: AsyncRead + AsyncWrite + Unpin,
    F: Future<Output = ()>,
{
    let (near, far) = tokio::io::duplex(TUNNEL_BYTES);
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
        Either::Left(((), inwards)) => {
            drop(tokio::time::timeout(connection::LINGER_TIMEOUT, inwards).await)
        }
        Either::Right(((), served)) => served.await,
    }
}
