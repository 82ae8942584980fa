//! The adapter's end of its keeper: started with the first call that creates, gone soon after the last one.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::process::Command;

use super::keep;

/// How long a keeper without calls stays: pods that start one after the other share it.
const IDLE_PERIOD: Duration = Duration::from_secs(10);

/// The program that is started as a keeper, with one argument that [`is_keeper`](super::is_keeper) knows.
#[derive(Clone, Debug)]
pub struct KeeperProgram(PathBuf);

impl KeeperProgram {
    /// The running program: its `main` must look for the argument.
    pub fn own() -> Self {
        Self("/proc/self/exe".into())
    }
}

/// Gives connections to a keeper's process; clones share it.
#[derive(Clone, Debug)]
pub(crate) struct CallKeeper {
    /// None where calls are not kept.
    program: Option<KeeperProgram>,
    running: Arc<Mutex<Weak<UnixStream>>>,
    /// The number of the last call that was kept.
    last: Arc<AtomicU32>,
}

/// Keeps the keeper: it ends when there is no call for a while.
type KeeperHandle = Arc<UnixStream>;

/// A call whose connection a keeper holds.
#[derive(Debug)]
pub(super) struct KeptCall {
    keeper: KeeperHandle,
    number: u32,
}

impl KeptCall {
    /// Has the keeper let go of the connection, whose call is through.
    pub(super) async fn release(self) {
        let message = KeeperMessage::Release(self.number);
        let send = || send(self.keeper.as_fd(), message, None);
        if let Err(error) = self.keeper.async_io(Interest::WRITABLE, send).await {
            // It was killed, and holds nothing any more.
            tracing::debug!(%error, "no keeper");
        }
    }
}

/// What the adapter says to its keeper. Each message is a kind and the number of a call, little endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeeperMessage {
    /// Hold the connection that comes with this message.
    Keep(u32),
    /// Let go of it.
    Release(u32),
}

impl KeeperMessage {
    pub(super) const BYTES: usize = 5;

    fn encode(self) -> [u8; Self::BYTES] {
        let (kind, number) = match self {
            KeeperMessage::Keep(number) => (0, number),
            KeeperMessage::Release(number) => (1, number),
        };
        let [a, b, c, d] = number.to_le_bytes();
        [kind, a, b, c, d]
    }

    pub(super) fn decode([kind, number @ ..]: [u8; Self::BYTES]) -> Option<KeeperMessage> {
        let number = u32::from_le_bytes(number);
        match kind {
            0 => Some(KeeperMessage::Keep(number)),
            1 => Some(KeeperMessage::Release(number)),
            _ => None,
        }
    }
}

impl CallKeeper {
    pub(crate) fn new(program: Option<KeeperProgram>) -> Self {
        Self {
            program,
            running: Arc::default(),
            last: Arc::default(),
        }
    }

    /// Has the keeper hold a connection from now on. Without a keeper the call is made all the same.
    pub(super) async fn keep(&self, connection: &OwnedFd) -> Option<KeptCall> {
        let program = self.program.as_ref()?;
        let number = self.last.fetch_add(1, Ordering::Relaxed);
        // A keeper that was killed shows at the next connection, and another one follows.
        for _ in 0..2 {
            let kept = async {
                let keeper = self.running(program)?;
                let message = KeeperMessage::Keep(number);
                let send = || send(keeper.as_fd(), message, Some(connection.as_fd()));
                keeper.async_io(Interest::WRITABLE, send).await?;
                Ok::<_, io::Error>(keeper)
            };
            match kept.await {
                Ok(keeper) => return Some(KeptCall { keeper, number }),
                Err(error) => {
                    tracing::debug!(%error, "no keeper");
                    *self.slot() = Weak::new();
                }
            }
        }
        tracing::warn!("a call that creates has no keeper: it ends with this process");
        None
    }

    fn slot(&self) -> std::sync::MutexGuard<'_, Weak<UnixStream>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn running(&self, program: &KeeperProgram) -> io::Result<KeeperHandle> {
        let mut slot = self.slot();
        if let Some(keeper) = slot.upgrade() {
            return Ok(keeper);
        }
        let keeper = Arc::new(start(program)?);
        *slot = Arc::downgrade(&keeper);
        tokio::spawn(linger(Arc::clone(&keeper)));
        Ok(keeper)
    }
}

fn start(program: &KeeperProgram) -> io::Result<UnixStream> {
    let (ours, theirs) = StdUnixStream::pair()?;
    ours.set_nonblocking(true)?;
    let mut child = Command::new(&program.0)
        .arg(keep::NAME)
        .env_clear()
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        // Whatever is sent to the adapter's group is not meant for it: it outlives the adapter.
        .process_group(0)
        .spawn()?;
    // Reaped, whatever its end.
    tokio::spawn(async move { child.wait().await });
    UnixStream::from_std(ours)
}

/// Holds the keeper until it has had no call for a while.
async fn linger(keeper: KeeperHandle) {
    loop {
        tokio::time::sleep(IDLE_PERIOD).await;
        if Arc::strong_count(&keeper) == 1 {
            return;
        }
    }
}

/// Sends a message, with a copy of a connection if there is one.
pub(super) fn send(
    keeper: BorrowedFd<'_>,
    message: KeeperMessage,
    connection: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let descriptors: Vec<_> = connection.into_iter().collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    sendmsg(
        keeper,
        &[IoSlice::new(&message.encode())],
        &mut ancillary,
        flags,
    )?;
    Ok(())
}
