//! The lock by which one agent runs on a node at a time (`--lock-file`), and the end of the one that holds it when
//! another wants it (`--exit-on-lock-contention`).
//!
//! Upstream: pkg/util/flock/flock_unix.go, `watchForLockfileContention` of cmd/kubelet/app/server_linux.go (1.36).

use std::fs::File;
use std::future::pending;
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use futures_util::StreamExt;
use inotify::{EventMask, EventStream, Inotify, WatchMask};

/// Room for a few events, whose names are empty: one file is watched.
const EVENTS: usize = 512;

/// The lock cannot be had, or not be watched.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    #[error("unable to acquire file lock on {path:?}")]
    Acquire { path: PathBuf, source: io::Error },
    #[error("unable to watch lockfile {path:?}")]
    Watch { path: PathBuf, source: io::Error },
}

/// Whether the agent ends when another process wants its lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnContention {
    Exit,
    Stay,
}

/// The lock, held until the process ends or this is dropped.
#[derive(Debug)]
pub struct LockFile {
    /// None where no lock is configured.
    held: Option<File>,
    /// None where nothing is watched.
    contention: Option<EventStream<[u8; EVENTS]>>,
}

impl LockFile {
    /// No lock, which nobody wants.
    pub fn none() -> LockFile {
        LockFile {
            held: None,
            contention: None,
        }
    }

    /// Waits until no other process holds the lock, and then for nothing: what opens the file from now on is a
    /// contention. The file is made where there is none. Needs a runtime.
    ///
    /// # Errors
    /// [`LockError`] with the file that cannot be opened, locked or watched.
    pub async fn acquire(path: &Path, on_contention: OnContention) -> Result<LockFile, LockError> {
        let acquire = |source| LockError::Acquire {
            path: path.to_owned(),
            source,
        };
        tracing::info!(path = %path.display(), "acquiring file lock");
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)
            .map_err(acquire)?;
        // Not on this thread, which must beat: another agent may hold the lock for ever.
        let locking = kernel::spawn_blocking(move || file.lock().map(|()| file));
        let locked = locking.await.map_err(io::Error::other).flatten();
        let file = locked.map_err(acquire)?;
        let contention = match on_contention {
            OnContention::Exit => Some(watch(path).map_err(|source| LockError::Watch {
                path: path.to_owned(),
                source,
            })?),
            OnContention::Stay => None,
        };
        Ok(LockFile {
            held: Some(file),
            contention,
        })
    }

    /// Ends when another process opens the file or removes it; never where nothing is watched. Cancel-safe: an event
    /// stays until it is read.
    pub async fn contended(&mut self) {
        let Some(events) = &mut self.contention else {
            return pending().await;
        };
        loop {
            match events.next().await {
                Some(Ok(event))
                    if event.mask == EventMask::ATTRIB && is_linked(self.held.as_ref()) => {}
                Some(Ok(event)) => {
                    return tracing::info!(mask = ?event.mask, "another process wants the lock file");
                }
                Some(Err(error)) => {
                    return tracing::error!(%error, "the lock file cannot be watched any longer");
                }
                None => return tracing::error!("the lock file cannot be watched any longer"),
            }
        }
    }
}

/// Whether the locked file still has a name: the kernel tells of the end of a file only when nobody holds it.
fn is_linked(held: Option<&File>) -> bool {
    let metadata = held.and_then(|file| file.metadata().ok());
    metadata.is_some_and(|metadata| metadata.nlink() > 0)
}

fn watch(path: &Path) -> io::Result<EventStream<[u8; EVENTS]>> {
    let inotify = Inotify::init()?;
    let wanted = WatchMask::OPEN | WatchMask::ATTRIB | WatchMask::DELETE_SELF;
    inotify.watches().add(path, wanted)?;
    inotify.into_event_stream([0; EVENTS])
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;
    use std::time::Duration;

    use kernel::testing::run_paused;
    use tokio::time::timeout;

    use super::*;

    const MOMENT: Duration = Duration::from_millis(1);

    #[test]
    fn one_process_at_a_time_has_the_lock_and_leaves_the_file_as_it_is() {
        run_paused(|| async {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("lock");
            std::fs::write(&path, "before").unwrap();
            let mut lock = LockFile::acquire(&path, OnContention::Stay).await.unwrap();
            let other = File::open(&path).unwrap();
            assert!(other.try_lock().is_err());
            assert!(
                timeout(MOMENT, lock.contended()).await.is_err(),
                "nothing is watched"
            );
            drop(lock);
            other.try_lock().unwrap();
            assert_eq!(std::fs::read(&path).unwrap(), b"before");
        });
    }

    #[test]
    fn a_lock_that_another_opens_or_removes_is_contended() {
        run_paused(|| async {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("lock");
            for wanting in [
                (|path: &Path| drop(File::open(path).unwrap())) as fn(&Path),
                |path: &Path| std::fs::remove_file(path).unwrap(),
            ] {
                let mut lock = LockFile::acquire(&path, OnContention::Exit).await.unwrap();
                std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
                assert!(timeout(MOMENT, lock.contended()).await.is_err());
                wanting(&path);
                lock.contended().await;
            }
        });
    }

    #[test]
    fn a_file_that_cannot_be_locked_is_named() {
        run_paused(|| async {
            let path = Path::new("/nowhere/lock");
            let error = LockFile::acquire(path, OnContention::Exit)
                .await
                .unwrap_err();
            assert_eq!(
                error.to_string(),
                "unable to acquire file lock on \"/nowhere/lock\""
            );
        });
    }
}
