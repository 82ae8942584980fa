//! Watching the folder with inotify: it says when to read, never what.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{FutureExt, StreamExt};
use inotify::{EventMask, EventOwned, EventStream, Inotify, WatchMask};
use kernel::Addr;

use super::Msg;
use super::reading::Place;

/// A burst ends when it was quiet for this long: files put there together are read together.
const QUIET: Duration = Duration::from_millis(25);
/// Rounds of quiet that a burst is given before it is read in parts.
const ROUNDS: usize = 4;
/// Room for a few hundred events; what does not fit waits in the kernel.
const BUFFER: usize = 16 * 1024;
/// How long one message may wait for room; the watch is begun anew then.
const PATIENCE: Duration = Duration::from_secs(5);

/// Why a watch ended.
#[derive(Debug, thiserror::Error)]
pub enum WatchEnded {
    #[error("cannot watch {path}")]
    Inotify { path: String, source: io::Error },
    #[error("{path} was moved or removed")]
    Moved { path: String },
    #[error("the watch on {path} is not heard: the mailbox is full")]
    Unheard { path: String },
}

/// Tells the actor when to read, until that is no longer possible.
pub(super) async fn watch(folder: Arc<Path>, addr: Addr<Msg>) -> WatchEnded {
    let path = folder.display().to_string();
    let begun = tokio::task::spawn_blocking(move || begin(&folder)).await;
    let (inotify, place) = match begun.unwrap_or_else(|panicked| Err(io::Error::other(panicked))) {
        Ok(begun) => begun,
        Err(source) => return WatchEnded::Inotify { path, source },
    };
    let mut events = match inotify.into_event_stream(vec![0_u8; BUFFER]) {
        Ok(events) => events,
        Err(source) => return WatchEnded::Inotify { path, source },
    };
    if addr.send(Msg::Watching(place), PATIENCE).await.is_err() {
        return WatchEnded::Unheard { path };
    }
    loop {
        match burst(&mut events).await {
            Ok(true) => {}
            Ok(false) => return WatchEnded::Moved { path },
            Err(source) => return WatchEnded::Inotify { path, source },
        }
        if addr.send(Msg::Changed, PATIENCE).await.is_err() {
            return WatchEnded::Unheard { path };
        }
    }
}

fn begin(folder: &Path) -> io::Result<(Inotify, Place)> {
    let inotify = Inotify::init()?;
    let appears =
        WatchMask::CREATE | WatchMask::CLOSE_WRITE | WatchMask::MOVED_TO | WatchMask::ATTRIB;
    let disappears =
        WatchMask::MOVED_FROM | WatchMask::DELETE | WatchMask::DELETE_SELF | WatchMask::MOVE_SELF;
    inotify
        .watches()
        .add(folder, appears | disappears | WatchMask::ONLYDIR)?;
    let place = Place::from(&fs::metadata(folder)?);
    Ok((inotify, place))
}

/// Waits for a change and then for quiet; false when the folder itself went away.
async fn burst(events: &mut EventStream<Vec<u8>>) -> io::Result<bool> {
    let Some(first) = events.next().await.transpose()? else {
        return Ok(false);
    };
    if is_end(&first) {
        return Ok(false);
    }
    for _ in 0..ROUNDS {
        tokio::time::sleep(QUIET).await;
        let mut quiet = true;
        while let Some(Some(event)) = events.next().now_or_never() {
            quiet = false;
            if is_end(&event?) {
                return Ok(false);
            }
        }
        if quiet {
            break;
        }
    }
    Ok(true)
}

fn is_end(event: &EventOwned) -> bool {
    let ends =
        EventMask::DELETE_SELF | EventMask::MOVE_SELF | EventMask::IGNORED | EventMask::UNMOUNT;
    event.mask.intersects(ends)
}
