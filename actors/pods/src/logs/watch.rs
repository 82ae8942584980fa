//! Reports written logs: an inotify watch for each log, which reports one write and must then be set again.
//!
//! A watch reports one write and is gone, so a flood of writes is one event. It is set anew, and the size read
//! after that, when the log is next checked: nothing written in between stays unseen.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use std::{fs, io};

use futures_util::{FutureExt, StreamExt};
use inotify::{EventOwned, Inotify, WatchDescriptor, WatchMask, Watches};
use kernel::Addr;
use logic_api::types::ContainerId;

use super::Msg;

/// Bytes: room for a thousand events; what does not fit waits in the kernel.
const BUFFER_SIZE: usize = 16 * 1024;
/// How long one message may wait for room; then inotify is begun anew.
const DELIVERY_TIMEOUT: Duration = Duration::from_secs(5);

/// The result of checking one log.
#[derive(Debug)]
pub struct LogCheck {
    pub(super) id: ContainerId,
    pub(super) path: Arc<Path>,
    /// The watch that reports its next write; none if the kernel has no room for one.
    pub(super) watch: Option<WatchDescriptor>,
    pub(super) found: LogFileState,
}

/// What the path of a log refers to.
#[derive(Debug)]
pub(super) enum LogFileState {
    Log {
        size: u64,
    },
    Missing,
    /// No regular file, or one that cannot be read: not rotated.
    Other(String),
}

/// Begins inotify, with no log watched yet.
pub(super) fn begin() -> io::Result<(Inotify, Watches)> {
    let inotify = Inotify::init()?;
    let watches = inotify.watches();
    Ok((inotify, watches))
}

/// Sends the actor the watches that have reported, batched over `pause`, until inotify or the actor fails.
pub(super) async fn report(inotify: Inotify, pause: Duration, addr: Addr<Msg>) -> io::Error {
    let mut events = match inotify.into_event_stream(vec![0_u8; BUFFER_SIZE]) {
        Ok(events) => events,
        Err(error) => return error,
    };
    loop {
        let mut watches = BTreeSet::new();
        let Some(first) = events.next().await else {
            return io::ErrorKind::UnexpectedEof.into();
        };
        let mut next = Some(first);
        while let Some(event) = next {
            match event {
                Ok(event) => watches.insert(number(&event)),
                Err(error) => return error,
            };
            next = events.next().now_or_never().flatten();
        }
        if addr
            .send(Msg::Written { watches }, DELIVERY_TIMEOUT)
            .await
            .is_err()
        {
            return io::Error::new(io::ErrorKind::TimedOut, "the mailbox is full");
        }
        tokio::time::sleep(pause).await;
    }
}

/// The watch's number; negative for an overflow, where events of any watch were lost.
fn number(event: &EventOwned) -> i32 {
    event.wd.get_watch_descriptor_id()
}

/// Checks logs: sets the watch for the next write first, then reads the size. Blocks.
pub(super) fn check(
    logs: Vec<(ContainerId, Arc<Path>)>,
    mut watches: Option<Watches>,
) -> Vec<LogCheck> {
    let check = |(id, path): (ContainerId, Arc<Path>)| {
        // Moved or removed: another program rotates, or the container is being removed.
        let mask = WatchMask::MODIFY
            | WatchMask::ATTRIB
            | WatchMask::MOVE_SELF
            | WatchMask::DELETE_SELF
            | WatchMask::ONESHOT
            | WatchMask::DONT_FOLLOW;
        let watch = watches
            .as_mut()
            .and_then(|watches| watches.add(&path, mask).ok());
        let found = match fs::symlink_metadata(&path) {
            Ok(meta) if meta.is_file() => LogFileState::Log { size: meta.len() },
            Ok(_) => LogFileState::Other("not a regular file".to_owned()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => LogFileState::Missing,
            Err(error) => LogFileState::Other(error.to_string()),
        };
        LogCheck {
            id,
            path,
            watch,
            found,
        }
    };
    logs.into_iter().map(check).collect()
}
