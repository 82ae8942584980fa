//! Who says that a log was written: inotify, once, until it is asked again.
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

/// Room for a thousand events; what does not fit waits in the kernel.
const BUFFER_SIZE: usize = 16 * 1024;
/// How long one message may wait for room; the watch is begun anew then.
const DELIVERY_TIMEOUT: Duration = Duration::from_secs(5);

/// What one check at a log found.
#[derive(Debug)]
pub struct LogCheck {
    pub(super) id: ContainerId,
    pub(super) path: Arc<Path>,
    /// The watch that reports its next write; none if there is no room for one.
    pub(super) watch: Option<WatchDescriptor>,
    pub(super) found: LogFileState,
}

/// What stands at a log's path.
#[derive(Debug)]
pub(super) enum LogFileState {
    Log {
        size: u64,
    },
    Missing,
    /// No regular file, or none that can be looked at: not ours to rotate.
    Other(String),
}

/// Begins to watch, with no log yet.
pub(super) fn begin() -> io::Result<(Inotify, Watches)> {
    let inotify = Inotify::init()?;
    let watches = inotify.watches();
    Ok((inotify, watches))
}

/// Tells the actor which watches have reported, gathered for `pause`, until that is no longer possible.
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

/// A watch's number; a negative one stands for every watch: events were lost.
fn number(event: &EventOwned) -> i32 {
    event.wd.get_watch_descriptor_id()
}

/// Looks at logs: first has their next write reported, then reads their size. Blocks.
pub(super) fn check(
    logs: Vec<(ContainerId, Arc<Path>)>,
    mut watches: Option<Watches>,
) -> Vec<LogCheck> {
    let check = |(id, path): (ContainerId, Arc<Path>)| {
        // Moved or removed: somebody else rotates, or the container is being removed.
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
