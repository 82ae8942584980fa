//! Follows the folder of networks: read anew when the kernel tells of a change in it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use blocking_pool::BlockingPool;
use futures_util::StreamExt;
use inotify::{EventStream, Inotify, WatchMask};
use tokio::sync::watch;
use tokio::time::timeout;

use super::Folder;

/// A file is written and renamed in several steps: one look for all of them.
const SETTLE: Duration = Duration::from_millis(50);
const SETTLE_MAX: Duration = Duration::from_secs(1);
/// How often a folder that is not there, or cannot be watched, is looked at.
const RETRY: Duration = Duration::from_secs(5);
/// The look at a folder of a disk that hangs is given up, and repeated.
const READ_TIMEOUT: Duration = Duration::from_secs(2);

/// Reads `dir` into `folder` at once, and at every change. Ends with the last receiver.
pub(crate) async fn follow(dir: PathBuf, pool: BlockingPool, folder: watch::Sender<Folder>) {
    let mut buffer = [0; 4096];
    loop {
        // Watched first, so that no change falls between the look and the watch.
        let own = own_folders(&dir, &folder.borrow());
        let changes = watched(&dir, &own);
        read(&dir, &pool, &folder).await;
        if own_folders(&dir, &folder.borrow()) != own {
            continue;
        }
        let changed = async {
            match changes.map(|changes| changes.into_event_stream(&mut buffer)) {
                Some(Ok(mut events)) => settled(&mut events).await,
                Some(Err(_)) | None => tokio::time::sleep(RETRY).await,
            }
        };
        tokio::select! {
            () = changed => {}
            () = folder.closed() => return,
        }
    }
}

/// Reads the folder; a look that takes too long changes nothing.
pub(crate) async fn read(dir: &Path, pool: &BlockingPool, folder: &watch::Sender<Folder>) {
    let (what, before) = (
        format!("reading {}", dir.display()),
        folder.borrow().clone(),
    );
    let dir = dir.to_owned();
    let read = pool.run(&what, READ_TIMEOUT, move || Ok(Folder::read(&dir, &before)));
    match read.await {
        Ok(now) => {
            folder.send_if_modified(|folder| {
                let changed = *folder != now;
                if changed {
                    tell(&now);
                    *folder = now;
                }
                changed
            });
        }
        Err(status) => tracing::warn!("{}", status.message()),
    }
}

fn tell(folder: &Folder) {
    for file in &folder.files {
        let name = file.network.as_ref().map_or("", |network| &network.name);
        match &file.problem {
            None => tracing::info!(network = name, "{} is read", file.path.display()),
            Some(problem) => tracing::warn!(network = name, "{}: {problem}", file.path.display()),
        }
    }
}

/// Watches the folder, and the own folders of its networks; none if it cannot be watched.
fn watched(dir: &Path, own: &[PathBuf]) -> Option<Inotify> {
    let mask = WatchMask::CREATE
        | WatchMask::CLOSE_WRITE
        | WatchMask::DELETE
        | WatchMask::DELETE_SELF
        | WatchMask::MOVE
        | WatchMask::MOVE_SELF;
    let inotify = Inotify::init().ok()?;
    inotify.watches().add(dir, mask).ok()?;
    for own in own {
        // It may go at any time, which the folder above tells.
        drop(inotify.watches().add(own, mask));
    }
    Some(inotify)
}

fn own_folders(dir: &Path, folder: &Folder) -> Vec<PathBuf> {
    let networks = folder.files.iter().filter_map(|file| file.network.as_ref());
    let open = networks.filter(|network| !network.only_inlined);
    open.map(|network| dir.join(&network.name)).collect()
}

/// Waits for an event and for the quiet after it, which a folder that is always written to must not put off.
async fn settled<T: AsMut<[u8]> + AsRef<[u8]> + Unpin>(events: &mut EventStream<T>) {
    drop(events.next().await);
    let quiet = async { while let Ok(Some(_)) = timeout(SETTLE, events.next()).await {} };
    drop(timeout(SETTLE_MAX, quiet).await);
}
