//! Reports that a log was written: one inotify for all followers.
//!
//! It only makes things faster: every follower checks its log each second anyway.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::rc::{Rc, Weak};
use std::{fmt, io};

use futures_util::StreamExt;
use inotify::{EventStream, Inotify, WatchDescriptor, WatchMask, Watches};
use tokio::sync::Notify;
use tokio::task::AbortHandle;

/// Room for a few hundred events; what does not fit waits in the kernel.
const BUFFER: usize = 8 * 1024;

/// The folders of followed logs.
#[derive(Clone, Default)]
pub(crate) struct LogWatches(Rc<RefCell<LogWatchState>>);

#[derive(Default)]
struct LogWatchState {
    watches: Option<Watches>,
    reading: Option<AbortHandle>,
    folders: BTreeMap<i32, WatchedFolder>,
}

struct WatchedFolder {
    descriptor: WatchDescriptor,
    told: Rc<Notify>,
    waiting: usize,
}

/// Wakes the followers of one folder, for as long as it is held.
pub(super) struct Wake {
    told: Rc<Notify>,
    number: i32,
    watching: Weak<RefCell<LogWatchState>>,
}

impl LogWatches {
    /// Begins to watch a folder.
    pub(super) fn beneath(&self, folder: &Path) -> io::Result<Wake> {
        let mut watching = self.0.borrow_mut();
        if watching.watches.is_none() {
            let inotify = Inotify::init()?;
            watching.watches = Some(inotify.watches());
            let events = inotify.into_event_stream(vec![0_u8; BUFFER])?;
            let told = Rc::downgrade(&self.0);
            let reading = tokio::task::spawn_local(tell(events, told));
            watching.reading = Some(reading.abort_handle());
        }
        let mask = WatchMask::MODIFY
            | WatchMask::CREATE
            | WatchMask::MOVED_TO
            | WatchMask::MOVED_FROM
            | WatchMask::DELETE
            | WatchMask::ONLYDIR;
        let Some(watches) = &mut watching.watches else {
            return Err(io::ErrorKind::NotFound.into());
        };
        let descriptor = watches.add(folder, mask)?;
        let number = descriptor.get_watch_descriptor_id();
        let folder = watching
            .folders
            .entry(number)
            .or_insert_with(|| WatchedFolder {
                descriptor,
                told: Rc::default(),
                waiting: 0,
            });
        folder.waiting += 1;
        Ok(Wake {
            told: Rc::clone(&folder.told),
            number,
            watching: Rc::downgrade(&self.0),
        })
    }
}

async fn tell(mut events: EventStream<Vec<u8>>, watching: Weak<RefCell<LogWatchState>>) {
    while let Some(event) = events.next().await {
        let Some(watching) = watching.upgrade() else {
            return;
        };
        let Ok(event) = event else {
            // The next follower starts it anew.
            watching.borrow_mut().watches = None;
            return;
        };
        let number = event.wd.get_watch_descriptor_id();
        let watching = watching.borrow();
        match watching.folders.get(&number) {
            Some(folder) => folder.told.notify_waiters(),
            // Events were lost: every follower checks its log.
            None if number < 0 => {
                for folder in watching.folders.values() {
                    folder.told.notify_waiters();
                }
            }
            None => {}
        }
    }
}

impl Wake {
    /// Completes when something happens in the folder after this call.
    pub(super) fn next(&self) -> impl Future<Output = ()> + '_ {
        let mut told = Box::pin(self.told.notified());
        told.as_mut().enable();
        told
    }
}

impl Drop for Wake {
    fn drop(&mut self) {
        let Some(watching) = self.watching.upgrade() else {
            return;
        };
        let mut watching = watching.borrow_mut();
        let Some(folder) = watching.folders.get_mut(&self.number) else {
            return;
        };
        folder.waiting -= 1;
        if folder.waiting > 0 {
            return;
        }
        let removed = watching.folders.remove(&self.number);
        if let (Some(folder), Some(watches)) = (removed, &mut watching.watches) {
            // It may be gone with its folder.
            drop(watches.remove(folder.descriptor));
        }
    }
}

impl Drop for LogWatchState {
    fn drop(&mut self) {
        if let Some(reading) = &self.reading {
            reading.abort();
        }
    }
}

impl fmt::Debug for LogWatches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let folders = self.0.borrow().folders.len();
        f.debug_struct("Written")
            .field("folders", &folders)
            .finish()
    }
}
