//! Watching a folder with inotify: it reports when to read, never what.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use std::{fs, io};

use futures_util::{FutureExt, StreamExt};
use inotify::{EventMask, EventOwned, EventStream, Inotify, WatchMask};
use kernel::{Addr, Context, Message, TaskId};

use super::file::FileId;

/// Between attempts to watch; it doubles while they fail.
const AGAIN: Duration = Duration::from_secs(1);
/// Room for a few hundred events; what does not fit waits in the kernel.
const BUFFER: usize = 16 * 1024;
/// How long one message may wait for room; the watch is then set up anew.
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
    /// Whether another attempt may succeed; otherwise the operator should know.
    pub fn transient(&self) -> bool {
        match self {
            WatchEnded::Missing { .. } | WatchEnded::Moved { .. } | WatchEnded::Unheard { .. } => {
                true
            }
            WatchEnded::Inotify { .. } => false,
        }
    }
}

/// A watch's message to its owner, which hands it to [`FolderWatch::hear`].
#[derive(Debug)]
pub enum WatchNotice {
    /// The watch is to begin now.
    Due,
    /// The watch is established; `watch` counts from the first.
    Stands { watch: u64, place: FileId },
    /// Something has changed.
    Changed(FolderChange),
    /// The watch broke.
    Ended { watch: u64, ended: WatchEnded },
}

/// What a burst of events was about.
#[derive(Debug, Default)]
pub struct FolderChange {
    /// The names of files that were removed or moved away, also of those that are there again.
    pub removed: BTreeSet<OsString>,
}

/// The delays of a watch.
#[derive(Debug, Clone, Copy)]
pub struct WatchPacing {
    /// A burst ends when it was quiet for this long: files dropped together are read together.
    pub quiet: Duration,
    /// Rounds of quiet that a burst is given before it is read in parts.
    pub rounds: usize,
    /// The longest pause between attempts to watch what is not there yet.
    pub missing: Duration,
    /// The longest pause where the system refuses the watch.
    pub refused: Duration,
}

/// The watch on a folder, or on one file in its folder. It begins anew when it breaks.
#[derive(Debug)]
pub struct FolderWatch {
    path: Arc<Path>,
    pace: WatchPacing,

    stands: Option<FileId>,
    task: Option<TaskId>,
    count: u64,
    pause: Duration,
}

impl FolderWatch {
    /// A watch that has not begun.
    pub fn new(path: Arc<Path>, pace: WatchPacing) -> Self {
        FolderWatch {
            path,
            pace,
            stands: None,
            task: None,
            count: 0,
            pause: AGAIN,
        }
    }

    /// Returns whether the watch is established.
    pub fn stands(&self) -> bool {
        self.stands.is_some()
    }

    /// Sets up the watch, also after it broke.
    pub fn begin<M: Message + From<WatchNotice>>(&mut self, ctx: &mut Context<M>) {
        if let Some(task) = self.task.take() {
            ctx.abort(task);
        }
        self.stands = None;
        self.count += 1;
        let (path, pace, watch) = (self.path.clone(), self.pace, self.count);
        let addr = ctx.addr().clone();
        self.task = Some(ctx.run(async move {
            let ended = watched(path, pace, watch, addr).await;
            WatchNotice::Ended { watch, ended }.into()
        }));
    }

    /// Sets up the watch anew if the folder that was read is not the watched one.
    pub fn found<M: Message + From<WatchNotice>>(&mut self, place: FileId, ctx: &mut Context<M>) {
        if self.stands.is_some_and(|stands| stands != place) {
            self.begin(ctx);
        }
    }

    /// Returns what has changed, if the folder is to be read.
    #[must_use]
    pub fn on_notice<M: Message + From<WatchNotice>>(
        &mut self,
        sight: WatchNotice,
        ctx: &mut Context<M>,
    ) -> Option<FolderChange> {
        match sight {
            WatchNotice::Due => {
                self.begin(ctx);
                None
            }
            WatchNotice::Stands { watch, place } => {
                // Changes before the watch was set up are not seen.
                let current = watch == self.count;
                if current {
                    (self.stands, self.pause) = (Some(place), AGAIN);
                }
                current.then(FolderChange::default)
            }
            WatchNotice::Changed(change) => Some(change),
            WatchNotice::Ended { watch, ended } => {
                let is_read = watch == self.count && self.ended(ended, ctx);
                is_read.then(FolderChange::default)
            }
        }
    }

    fn ended<M: Message + From<WatchNotice>>(
        &mut self,
        ended: WatchEnded,
        ctx: &mut Context<M>,
    ) -> bool {
        self.task = None;
        let stood = self.stands.take().is_some();
        if !stood {
            let longest = match ended.transient() {
                true => self.pace.missing,
                false => self.pace.refused,
            };
            self.pause = (self.pause * 2).min(longest);
        }
        let transient = ended.transient();
        let why = kernel::error_chain(&ended);
        match (stood, transient) {
            (true, _) => tracing::warn!("{why}"),
            (false, true) => tracing::debug!("{why}"),
            (false, false) => tracing::error!("{why}: it is read every so often"),
        }
        ctx.after(self.pause, WatchNotice::Due.into());
        stood
    }
}

/// Tells the actor when to read, until that is no longer possible.
async fn watched<M: Message + From<WatchNotice>>(
    path: Arc<Path>,
    pace: WatchPacing,
    watch: u64,
    addr: Addr<M>,
) -> WatchEnded {
    let name = path.display().to_string();
    let begun = kernel::spawn_blocking(move || begin(&path)).await;
    let (inotify, only, place) =
        match begun.unwrap_or_else(|panicked| Err(io::Error::other(panicked))) {
            Ok(begun) => begun,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return WatchEnded::Missing { path: name };
            }
            Err(source) => return WatchEnded::Inotify { path: name, source },
        };
    let mut events = match inotify.into_event_stream(vec![0_u8; BUFFER]) {
        Ok(events) => events,
        Err(source) => return WatchEnded::Inotify { path: name, source },
    };
    let stands = WatchNotice::Stands { watch, place };
    if addr.send(stands.into(), PATIENCE).await.is_err() {
        return WatchEnded::Unheard { path: name };
    }
    loop {
        let change = match burst(&mut events, only.as_deref(), pace).await {
            Ok(Some(change)) => change,
            Ok(None) => return WatchEnded::Moved { path: name },
            Err(source) => return WatchEnded::Inotify { path: name, source },
        };
        let changed = WatchNotice::Changed(change);
        if addr.send(changed.into(), PATIENCE).await.is_err() {
            return WatchEnded::Unheard { path: name };
        }
    }
}

/// A single file is watched through its folder: what replaces it has another inode.
fn begin(path: &Path) -> io::Result<(Inotify, Option<OsString>, FileId)> {
    let (folder, only) = if fs::metadata(path)?.is_dir() {
        (path, None)
    } else {
        let folder = path.parent().unwrap_or(Path::new("/"));
        (folder, path.file_name().map(OsStr::to_owned))
    };
    let inotify = Inotify::init()?;
    let appears =
        WatchMask::CREATE | WatchMask::CLOSE_WRITE | WatchMask::MOVED_TO | WatchMask::ATTRIB;
    let disappears =
        WatchMask::MOVED_FROM | WatchMask::DELETE | WatchMask::DELETE_SELF | WatchMask::MOVE_SELF;
    inotify
        .watches()
        .add(folder, appears | disappears | WatchMask::ONLYDIR)?;
    let place = FileId::from(&fs::metadata(folder)?);
    Ok((inotify, only, place))
}

/// Waits for a change and then for quiet; none when the folder itself went away.
async fn burst(
    events: &mut EventStream<Vec<u8>>,
    only: Option<&OsStr>,
    pace: WatchPacing,
) -> io::Result<Option<FolderChange>> {
    let mut change = FolderChange::default();
    loop {
        let Some(event) = events.next().await.transpose()? else {
            return Ok(None);
        };
        if is_end(&event) {
            return Ok(None);
        }
        if concerns(&event, only) {
            change.note(event);
            break;
        }
    }
    for _ in 0..pace.rounds {
        tokio::time::sleep(pace.quiet).await;
        let mut quiet = true;
        while let Some(Some(event)) = events.next().now_or_never() {
            quiet = false;
            let event = event?;
            if is_end(&event) {
                return Ok(None);
            }
            if concerns(&event, only) {
                change.note(event);
            }
        }
        if quiet {
            break;
        }
    }
    Ok(Some(change))
}

impl FolderChange {
    fn note(&mut self, event: EventOwned) {
        let disappears = EventMask::MOVED_FROM | EventMask::DELETE;
        if let Some(name) = event.name.filter(|_| event.mask.intersects(disappears)) {
            self.removed.insert(name);
        }
    }
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
