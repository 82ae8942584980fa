//! One side of a SPDY/3.1 connection: streams that the client opens, each with a way in and a way out.
//!
//! There is no flow control beside the transport's own: Go's implementation has none either, and drops
//! window updates. A slow reader holds up its connection, so that no queue grows.

mod dictionary;
pub(crate) mod frames;
pub(crate) mod headers;
#[cfg(test)]
mod tests;

use std::collections::HashMap;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::mpsc;

use self::frames::{Decoder, Encoder, SpdyFrame};
use super::connection::{self, IdleTimer, NewStream, OutgoingFrame, READ_QUEUE, StreamWriter};

/// Streams that a client may have open; kubectl's port-forward has two a connection.
const STREAMS: usize = 2048;
const PROTOCOL_ERROR: u32 = 1;
const REFUSED: u32 = 3;
const CANCEL: u32 = 5;

/// Serves a connection: `serve` gets the streams as the client opens them. Ends when `serve` has, or the client.
pub(super) async fn serve_streams<Io, F>(io: Io, serve: impl FnOnce(mpsc::Receiver<NewStream>) -> F)
where
    Io: AsyncRead + AsyncWrite,
    F: Future<Output = ()>,
{
    let (read, write) = tokio::io::split(io);
    let (to, outgoing) = connection::outgoing();
    let (opens, opened) = mpsc::channel(8);
    let idle = IdleTimer::default();
    let reading = FrameReader {
        opens: Some(opens),
        to: to.clone(),
        streams: HashMap::new(),
        latest: 0,
    };
    let reading = reading.run(read, &idle);
    let writing = write_frames(write, outgoing, &idle);
    connection::run_until_closed(serve(opened), to, (reading, writing), &idle).await;
}

struct FrameReader {
    opens: Option<mpsc::Sender<NewStream>>,
    to: mpsc::Sender<OutgoingFrame>,
    streams: HashMap<u32, mpsc::Sender<Vec<u8>>>,
    latest: u32,
}

impl FrameReader {
    /// Hands out what the client sends, until it says no more.
    async fn run<Io: AsyncRead>(mut self, mut from: ReadHalf<Io>, idle: &IdleTimer) {
        let mut decoder = Decoder::new();
        let mut bytes = vec![0; 32 << 10];
        loop {
            match from.read(&mut bytes).await {
                Ok(0) | Err(_) => return,
                Ok(count) => decoder.take(&bytes[..count]),
            }
            idle.restart();
            loop {
                match decoder.next_frame() {
                    Ok(Some(frame)) => self.handle(frame).await,
                    Ok(None) => break,
                    Err(error) => {
                        tracing::warn!(%error, "a streaming client does not speak SPDY/3.1");
                        return;
                    }
                }
            }
        }
    }

    async fn handle(&mut self, frame: SpdyFrame) {
        match frame {
            SpdyFrame::Open { id, last, headers } => self.open(id, last, headers).await,
            SpdyFrame::Data { id, last, bytes } => {
                // Data of a stream that is not read is dropped.
                if let Some(stream) = self.streams.get(&id).filter(|_| !bytes.is_empty()) {
                    drop(stream.send(bytes).await);
                }
                if last {
                    self.streams.remove(&id);
                }
            }
            SpdyFrame::Reset { id, .. } => {
                self.streams.remove(&id);
            }
            SpdyFrame::Ping(id) if id % 2 == 1 => self.send(OutgoingFrame::Pong(id)).await,
            SpdyFrame::GoAway { .. } => self.opens = None,
            SpdyFrame::Headers { id, last: true, .. } => {
                self.streams.remove(&id);
            }
            SpdyFrame::Ping(_)
            | SpdyFrame::Reply { .. }
            | SpdyFrame::Headers { .. }
            | SpdyFrame::Ignored => {}
        }
    }

    async fn open(&mut self, id: u32, last: bool, headers: headers::SpdyHeaders) {
        if id.is_multiple_of(2) || id <= self.latest {
            return self.send(OutgoingFrame::Reset(id, PROTOCOL_ERROR)).await;
        }
        self.latest = id;
        let Some(opens) = self.opens.clone().filter(|_| self.streams.len() < STREAMS) else {
            return self.send(OutgoingFrame::Reset(id, REFUSED)).await;
        };
        let (sender, reader) = mpsc::channel(READ_QUEUE);
        if !last {
            self.streams.insert(id, sender);
        }
        let writer = StreamWriter::new(id, self.to.clone());
        let opened = NewStream {
            headers,
            reader,
            writer,
        };
        // The receiver is closed when the backend takes no more streams: the connection is about to end.
        drop(opens.send(opened).await);
    }

    async fn send(&self, frame: OutgoingFrame) {
        drop(self.to.send(frame).await);
    }
}

/// Sends what there is to be sent, until the end.
async fn write_frames<Io: AsyncWrite>(
    mut to: WriteHalf<Io>,
    mut outgoing: mpsc::Receiver<OutgoingFrame>,
    idle: &IdleTimer,
) {
    let mut encoder = Encoder::default();
    let mut bytes = Vec::new();
    while let Some(outgoing_frame) = outgoing.recv().await {
        let over = matches!(outgoing_frame, OutgoingFrame::End);
        bytes.clear();
        encoder.encode(&frame(outgoing_frame), &mut bytes);
        if to.write_all(&bytes).await.is_err() {
            return;
        }
        idle.restart();
        if over {
            break;
        }
    }
    // The client may be gone: then there is nothing to finish.
    drop(to.shutdown().await);
}

fn frame(outgoing: OutgoingFrame) -> SpdyFrame {
    match outgoing {
        OutgoingFrame::Reply(id) => SpdyFrame::Reply {
            id,
            last: false,
            headers: Vec::new(),
        },
        OutgoingFrame::Data(id, bytes) => SpdyFrame::Data {
            id,
            last: false,
            bytes,
        },
        OutgoingFrame::Close(id) => SpdyFrame::Data {
            id,
            last: true,
            bytes: Vec::new(),
        },
        OutgoingFrame::Cancel(id) => SpdyFrame::Reset { id, status: CANCEL },
        OutgoingFrame::Reset(id, status) => SpdyFrame::Reset { id, status },
        OutgoingFrame::Pong(id) => SpdyFrame::Ping(id),
        OutgoingFrame::End => SpdyFrame::GoAway {
            last_id: 0,
            status: 0,
        },
    }
}
