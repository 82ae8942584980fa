//! Watching the manifests' folder with inotify: it says when to read, never what.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{FutureExt, StreamExt};
use inotify::{EventMask, EventOwned, EventStream, Inotify, WatchMask};
use kernel::Addr;

use super::Msg;
use super::scan::Place;

/// A burst ends when it was quiet for this long: files dropped together are read together.
const QUIET: Duration = Duration::from_millis(1);
/// Rounds of quiet that a burst is given before it is read in parts: latency counts too.
const ROUNDS: usize = 2;
/// Room for a few hundred events; what does not fit waits in the kernel.
const BUFFER: usize = 16 * 1024;
/// How long one message may wait for room; the watch is begun anew then.
const PATIENCE: Duration = Duration::from_secs(5);

/// Why a watch ended.
#[derive(Debug, thiserror::Error)]
pub enum WatchEnded {
    #[error("{path} is not there yet")]
    Missing { path: String },
    #[error("cannot watch {path}")]
    Inotify { path: String, source: io::Error },
    #[error("{path} was moved or removed")]
    Moved { path: String },
    #[error("the watch on {path} is not heard: the mailbox is full")]
    Unheard { path: String },
}

impl WatchEnded {
    /// Whether another attempt is as good as the first: otherwise attempts become rare.
    pub(super) fn transient(&self) -> bool {
        match self {
            WatchEnded::Missing { .. } | WatchEnded::Moved { .. } | WatchEnded::Unheard { .. } => {
                true
            }
            WatchEnded::Inotify { .. } => false,
        }
    }
}

/// Tells the actor when to read, until that is no longer possible.
pub(super) async fn watch(path: Arc<Path>, addr: Addr<Msg>) -> WatchEnded {
    let name = path.display().to_string();
    let begun = tokio::task::spawn_blocking(move || Watch::begin(&path)).await;
    let watch = match begun.unwrap_or_else(|panicked| Err(io::Error::other(panicked))) {
        Ok(watch) => watch,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return WatchEnded::Missing { path: name };
        }
        Err(source) => return WatchEnded::Inotify { path: name, source },
    };
    if addr
        .send(Msg::Watching(watch.place), PATIENCE)
        .await
        .is_err()
    {
        return WatchEnded::Unheard { path: name };
    }
    let Watch { inotify, only, .. } = watch;
    let mut events = match inotify.into_event_stream([0_u8; BUFFER].to_vec()) {
        Ok(events) => events,
        Err(source) => return WatchEnded::Inotify { path: name, source },
    };
    loop {
        match burst(&mut events, only.as_deref()).await {
            Ok(true) => {}
            Ok(false) => return WatchEnded::Moved { path: name },
            Err(source) => return WatchEnded::Inotify { path: name, source },
        }
        if addr.send(Msg::Changed, PATIENCE).await.is_err() {
            return WatchEnded::Unheard { path: name };
        }
    }
}

/// The watch on a folder, for one name or for all.
#[derive(Debug)]
struct Watch {
    inotify: Inotify,
    only: Option<OsString>,
    place: Place,
}

impl Watch {
    /// A single file is watched through its folder: what replaces it has another inode.
    fn begin(path: &Path) -> io::Result<Watch> {
        let (folder, only) = if fs::metadata(path)?.is_dir() {
            (path, None)
        } else {
            let folder = path.parent().unwrap_or(Path::new("/"));
            (folder, path.file_name().map(OsStr::to_owned))
        };
        let inotify = Inotify::init()?;
        let appears =
            WatchMask::CREATE | WatchMask::CLOSE_WRITE | WatchMask::MOVED_TO | WatchMask::ATTRIB;
        let disappears = WatchMask::MOVED_FROM
            | WatchMask::DELETE
            | WatchMask::DELETE_SELF
            | WatchMask::MOVE_SELF;
        inotify
            .watches()
            .add(folder, appears | disappears | WatchMask::ONLYDIR)?;
        let place = Place::from(&fs::metadata(folder)?);
        Ok(Watch {
            inotify,
            only,
            place,
        })
    }
}

/// Waits for a change and then for quiet; false when the folder itself went away.
async fn burst(events: &mut EventStream<Vec<u8>>, only: Option<&OsStr>) -> io::Result<bool> {
    loop {
        let Some(event) = events.next().await.transpose()? else {
            return Ok(false);
        };
        if is_end(&event) {
            return Ok(false);
        }
        if concerns(&event, only) {
            break;
        }
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

/// Hidden files are none of ours, but for `..data`, through which Kubernetes swaps a whole folder.
fn concerns(event: &EventOwned, only: Option<&OsStr>) -> bool {
    let Some(name) = event.name.as_deref() else {
        return true;
    };
    let bytes = name.as_encoded_bytes();
    let hidden = bytes.starts_with(b".") && !bytes.starts_with(b"..");
    match only {
        Some(only) => name == only || bytes.starts_with(b".."),
        None => !hidden,
    }
}
