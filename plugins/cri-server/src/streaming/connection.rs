//! A client's connection, whichever protocol carries it: streams of bytes in, streams of bytes out, and an end.

use std::pin::pin;
use std::time::Duration;

use tokio::sync::{Notify, mpsc};

use super::spdy::headers::SpdyHeaders;

/// Chunks of up to 32 KiB that wait for the reader of one stream; then the connection waits.
pub(super) const READ_QUEUE: usize = 4;
/// Frames of all streams that wait for the network; then the writers wait.
const WRITE_QUEUE: usize = 16;
/// A connection without traffic ends after this time; upstream's value.
const IDLE_TIMEOUT: Duration = Duration::from_secs(4 * 60 * 60);
/// How long the client has to read the last bytes before the socket is closed.
pub(super) const LINGER_TIMEOUT: Duration = Duration::from_secs(5);

/// A frame to send; the first number is the stream's, a reset's second its status code.
#[derive(Debug)]
pub(super) enum OutgoingFrame {
    Reply(u32),
    Data(u32, Vec<u8>),
    Close(u32),
    Cancel(u32),
    Reset(u32, u32),
    Pong(u32),
    End,
}

/// The connection has ended: nothing can be written to the client.
#[derive(Debug, thiserror::Error)]
#[error("the client is gone")]
pub struct ClientGone;

/// The writing half of one stream; clones write to the same stream.
#[derive(Clone, Debug)]
pub struct StreamWriter {
    id: u32,
    to: mpsc::Sender<OutgoingFrame>,
}

impl StreamWriter {
    pub(super) fn new(id: u32, to: mpsc::Sender<OutgoingFrame>) -> StreamWriter {
        StreamWriter { id, to }
    }

    /// Returns the number of the stream.
    pub(super) fn id(&self) -> u32 {
        self.id
    }

    /// Queues bytes for the client; waits while the queue is full. The chunk is one frame.
    pub async fn write(&self, bytes: impl Into<Vec<u8>>) -> Result<(), ClientGone> {
        self.send(OutgoingFrame::Data(self.id, bytes.into())).await
    }

    /// Ends this half: the client reads no more from the stream.
    pub async fn close(&self) {
        drop(self.send(OutgoingFrame::Close(self.id)).await);
    }

    /// Accepts the stream: answers SYN_REPLY where SPDY carries it.
    pub(super) async fn reply(&self) {
        drop(self.send(OutgoingFrame::Reply(self.id)).await);
    }

    /// Resets the stream: both halves end.
    pub(super) async fn cancel(&self) {
        drop(self.send(OutgoingFrame::Cancel(self.id)).await);
    }

    async fn send(&self, frame: OutgoingFrame) -> Result<(), ClientGone> {
        self.to.send(frame).await.map_err(|_| ClientGone)
    }
}

/// A stream that the client has opened and the server has not accepted yet.
#[derive(Debug)]
pub(super) struct NewStream {
    pub(super) headers: SpdyHeaders,
    pub(super) reader: StreamReader,
    pub(super) writer: StreamWriter,
}

/// The reading half of one stream: chunks of bytes; closed when the client has ended its half.
pub type StreamReader = mpsc::Receiver<Vec<u8>>;

pub(super) fn outgoing() -> (mpsc::Sender<OutgoingFrame>, mpsc::Receiver<OutgoingFrame>) {
    mpsc::channel(WRITE_QUEUE)
}

/// Restarts the idle timeout of a connection with its traffic.
#[derive(Debug, Default)]
pub(super) struct IdleTimer(Notify);

impl IdleTimer {
    pub(super) fn restart(&self) {
        self.0.notify_one();
    }

    async fn expired(&self) {
        while tokio::time::timeout(IDLE_TIMEOUT, self.0.notified())
            .await
            .is_ok()
        {}
    }
}

/// Runs a connection until it has been served and everything is sent, the client is gone, or the idle timeout passes.
pub(super) async fn run_until_closed(
    serving: impl Future<Output = ()>,
    to: mpsc::Sender<OutgoingFrame>,
    (reading, writing): (impl Future<Output = ()>, impl Future<Output = ()>),
    idle: &IdleTimer,
) {
    let served = async {
        serving.await;
        drop(to.send(OutgoingFrame::End).await);
        std::future::pending().await
    };
    let mut reading = pin!(reading);
    // Cancel-safe: everything is dropped when one arm wins, and a client that is gone needs no answer.
    tokio::select! {
        () = served => {}
        () = idle.expired() => {}
        () = &mut reading => {}
        () = writing => {
            // What the client still sends is read: a socket closed over unread bytes takes back its last bytes.
            drop(tokio::time::timeout(LINGER_TIMEOUT, reading).await);
        }
    }
}
