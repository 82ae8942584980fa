//! One side of a SPDY/3.1 connection: streams that the client opens, each with a way in and a way out.
//!
//! There is no flow control beside the transport's own: Go's implementation has none either, and drops
//! window updates. A reader that is slow holds up the connection, and nobody's memory grows.

mod dictionary;
pub(crate) mod frames;
pub(crate) mod headers;
#[cfg(test)]
mod tests;

use std::collections::HashMap;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::mpsc;

use self::frames::{Decoder, Encoder, Frame};
use super::session::{self, Activity, INLET, Opened, Outgoing, Outlet};

/// Streams that a client may have open; kubectl's port-forward has two a connection.
const STREAMS: usize = 2048;
const PROTOCOL_ERROR: u32 = 1;
const REFUSED: u32 = 3;
const CANCEL: u32 = 5;

/// Serves a connection: `serve` gets the streams as the client opens them. Ends when `serve` has, or the client.
pub(crate) async fn converse<Io, F>(io: Io, serve: impl FnOnce(mpsc::Receiver<Opened>) -> F)
where
    Io: AsyncRead + AsyncWrite,
    F: Future<Output = ()>,
{
    let (read, write) = tokio::io::split(io);
    let (to, outgoing) = session::outgoing();
    let (opens, opened) = mpsc::channel(8);
    let activity = Activity::default();
    let reading = Reading {
        opens: Some(opens),
        to: to.clone(),
        streams: HashMap::new(),
        latest: 0,
    };
    let reading = reading.run(read, &activity);
    let writing = run(write, outgoing, &activity);
    session::hold(serve(opened), to, (reading, writing), &activity).await;
}

struct Reading {
    opens: Option<mpsc::Sender<Opened>>,
    to: mpsc::Sender<Outgoing>,
    streams: HashMap<u32, mpsc::Sender<Vec<u8>>>,
    latest: u32,
}

impl Reading {
    /// Hands out what the client sends, until it says no more.
    async fn run<Io: AsyncRead>(mut self, mut from: ReadHalf<Io>, activity: &Activity) {
        let mut decoder = Decoder::new();
        let mut bytes = vec![0; 32 << 10];
        loop {
            match from.read(&mut bytes).await {
                Ok(0) | Err(_) => return,
                Ok(count) => decoder.take(&bytes[..count]),
            }
            activity.seen();
            loop {
                match decoder.next() {
                    Ok(Some(frame)) => self.hear(frame).await,
                    Ok(None) => break,
                    Err(error) => {
                        tracing::warn!(%error, "a streaming client does not speak SPDY/3.1");
                        return;
                    }
                }
            }
        }
    }

    async fn hear(&mut self, frame: Frame) {
        match frame {
            Frame::Open { id, last, headers } => self.open(id, last, headers).await,
            Frame::Data { id, last, bytes } => {
                // Data for a stream that nobody reads is dropped.
                if let Some(stream) = self.streams.get(&id).filter(|_| !bytes.is_empty()) {
                    drop(stream.send(bytes).await);
                }
                if last {
                    self.streams.remove(&id);
                }
            }
            Frame::Reset { id, .. } => {
                self.streams.remove(&id);
            }
            Frame::Ping(id) if id % 2 == 1 => self.say(Outgoing::Pong(id)).await,
            Frame::GoAway { .. } => self.opens = None,
            Frame::Headers { id, last: true, .. } => {
                self.streams.remove(&id);
            }
            Frame::Ping(_) | Frame::Reply { .. } | Frame::Headers { .. } | Frame::Ignored => {}
        }
    }

    async fn open(&mut self, id: u32, last: bool, headers: headers::Headers) {
        if id.is_multiple_of(2) || id <= self.latest {
            return self.say(Outgoing::Reset(id, PROTOCOL_ERROR)).await;
        }
        self.latest = id;
        let Some(opens) = self.opens.clone().filter(|_| self.streams.len() < STREAMS) else {
            return self.say(Outgoing::Reset(id, REFUSED)).await;
        };
        let (inlet, from) = mpsc::channel(INLET);
        if !last {
            self.streams.insert(id, inlet);
        }
        let outlet = Outlet::new(id, self.to.clone());
        let opened = Opened {
            headers,
            inlet: from,
            outlet,
        };
        // Nobody waits for streams any more: the connection is about to end.
        drop(opens.send(opened).await);
    }

    async fn say(&self, what: Outgoing) {
        drop(self.to.send(what).await);
    }
}

/// Sends what there is to be sent, until the end.
async fn run<Io: AsyncWrite>(
    mut to: WriteHalf<Io>,
    mut outgoing: mpsc::Receiver<Outgoing>,
    activity: &Activity,
) {
    let mut encoder = Encoder::default();
    let mut bytes = Vec::new();
    while let Some(what) = outgoing.recv().await {
        let over = matches!(what, Outgoing::End);
        bytes.clear();
        encoder.encode(&frame(what), &mut bytes);
        if to.write_all(&bytes).await.is_err() {
            return;
        }
        activity.seen();
        if over {
            break;
        }
    }
    // The client may be gone: then there is nothing to finish.
    drop(to.shutdown().await);
}

fn frame(what: Outgoing) -> Frame {
    match what {
        Outgoing::Reply(id) => Frame::Reply {
            id,
            last: false,
            headers: Vec::new(),
        },
        Outgoing::Data(id, bytes) => Frame::Data {
            id,
            last: false,
            bytes,
        },
        Outgoing::Close(id) => Frame::Data {
            id,
            last: true,
            bytes: Vec::new(),
        },
        Outgoing::Cancel(id) => Frame::Reset { id, status: CANCEL },
        Outgoing::Reset(id, status) => Frame::Reset { id, status },
        Outgoing::Pong(id) => Frame::Ping(id),
        Outgoing::End => Frame::GoAway {
            last_id: 0,
            status: 0,
        },
    }
}
