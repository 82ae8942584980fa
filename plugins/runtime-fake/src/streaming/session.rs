//! What a connection is to those who serve it, whichever protocol carries it: streams of bytes in, streams
//! of bytes out, and an end.

use std::pin::pin;
use std::time::Duration;

use tokio::sync::{Notify, mpsc};

use super::spdy::headers::Headers;

/// Pieces of up to 32 KiB that wait for a reader of one stream; then the connection waits.
pub(super) const INLET: usize = 4;
/// Pieces that wait for the network.
const OUTLET: usize = 16;
/// A connection ends on which nothing is said so long; upstream's value.
const IDLE: Duration = Duration::from_secs(4 * 60 * 60);
/// How long the client has to read the last words before the socket is closed under it.
pub(super) const LINGER: Duration = Duration::from_secs(5);

/// What is to be sent.
#[derive(Debug)]
pub(super) enum Outgoing {
    Reply(u32),
    Data(u32, Vec<u8>),
    Close(u32),
    Cancel(u32),
    Reset(u32, u32),
    Pong(u32),
    End,
}

/// The client is gone.
#[derive(Debug, thiserror::Error)]
#[error("the client is gone")]
pub(super) struct Gone;

/// The way out of one stream.
#[derive(Clone, Debug)]
pub(super) struct Outlet {
    id: u32,
    to: mpsc::Sender<Outgoing>,
}

impl Outlet {
    pub(super) fn new(id: u32, to: mpsc::Sender<Outgoing>) -> Outlet {
        Outlet { id, to }
    }

    /// Returns the number of the stream.
    pub(super) fn id(&self) -> u32 {
        self.id
    }

    pub(super) async fn write(&self, bytes: impl Into<Vec<u8>>) -> Result<(), Gone> {
        self.say(Outgoing::Data(self.id, bytes.into())).await
    }

    /// Says that no more will come.
    pub(super) async fn close(&self) {
        drop(self.say(Outgoing::Close(self.id)).await);
    }

    /// Accepts the stream.
    pub(super) async fn reply(&self) {
        drop(self.say(Outgoing::Reply(self.id)).await);
    }

    /// Ends both ways of the stream.
    pub(super) async fn cancel(&self) {
        drop(self.say(Outgoing::Cancel(self.id)).await);
    }

    async fn say(&self, what: Outgoing) -> Result<(), Gone> {
        self.to.send(what).await.map_err(|_| Gone)
    }
}

/// A stream that the client has opened, and that is not accepted yet.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) headers: Headers,
    pub(super) inlet: Inlet,
    pub(super) outlet: Outlet,
}

/// The way in of one stream; closed when the client says no more.
pub(super) type Inlet = mpsc::Receiver<Vec<u8>>;

pub(super) fn outgoing() -> (mpsc::Sender<Outgoing>, mpsc::Receiver<Outgoing>) {
    mpsc::channel(OUTLET)
}

/// When anything was last said on a connection.
#[derive(Debug, Default)]
pub(super) struct Activity(Notify);

impl Activity {
    pub(super) fn seen(&self) {
        self.0.notify_one();
    }

    async fn idle(&self) {
        while tokio::time::timeout(IDLE, self.0.notified()).await.is_ok() {}
    }
}

/// Holds a connection until it has been served and everything is sent, the client is gone, or nothing
/// happens any more.
pub(super) async fn hold(
    serving: impl Future<Output = ()>,
    to: mpsc::Sender<Outgoing>,
    (reading, writing): (impl Future<Output = ()>, impl Future<Output = ()>),
    activity: &Activity,
) {
    let served = async {
        serving.await;
        drop(to.send(Outgoing::End).await);
        std::future::pending().await
    };
    let mut reading = pin!(reading);
    // Everything is dropped when one arm wins, and nothing is owed to a client that is gone.
    tokio::select! {
        () = served => {}
        () = activity.idle() => {}
        () = &mut reading => {}
        () = writing => {
            // What the client still sends is read: a socket closed over unread bytes takes back its last words.
            drop(tokio::time::timeout(LINGER, reading).await);
        }
    }
}
