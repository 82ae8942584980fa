//! The root directory as one agent's: two on it would each work on its pods, and each remove what the other one has made.
//!
//! The kubelet has no such lock; a second one ends when it finds its port taken (`ListenAndServeKubeletServer` of
//! pkg/kubelet/server/server.go, 1.36). Ours tries ports again, so it must not come so far.

use std::fs::{DirBuilder, File, TryLockError};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Another process has the directory.
#[derive(Debug, thiserror::Error)]
#[error("another agent works in {}, expected one alone", path.display())]
pub struct RootDirTaken {
    path: PathBuf,
}

/// The root directory, this process's until it ends or this is dropped.
#[derive(Debug)]
pub struct RootDirLock {
    /// None where the disk gives no lock.
    _held: Option<File>,
}

impl RootDirLock {
    /// Takes the directory, which is made where there is none. A disk that gives no lock, as a read-only one, is no reason
    /// not to start.
    ///
    /// # Errors
    /// [`RootDirTaken`] while another process has it.
    pub fn take(root: &Path) -> Result<RootDirLock, RootDirTaken> {
        let locked = open(&root.join("oxlet"))
            .map_err(TryLockError::Error)
            .and_then(|folder| folder.try_lock().map(|()| folder));
        match locked {
            Ok(folder) => Ok(RootDirLock {
                _held: Some(folder),
            }),
            Err(TryLockError::WouldBlock) => Err(RootDirTaken {
                path: root.to_owned(),
            }),
            Err(TryLockError::Error(error)) => {
                tracing::warn!(root = %root.display(), %error, "no lock keeps a second agent away from the root directory");
                Ok(RootDirLock { _held: None })
            }
        }
    }
}

/// The folder of what the agent keeps, with the rights that its checkpoints would give it.
fn open(folder: &Path) -> io::Result<File> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)?;
    File::open(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_root_directory_is_one_agents_until_that_ends() {
        let root = tempfile::tempdir().unwrap();
        let first = RootDirLock::take(root.path()).unwrap();
        let refused = RootDirLock::take(root.path()).unwrap_err().to_string();
        let expected = format!("another agent works in {}", root.path().display());
        assert!(refused.starts_with(&expected), "{refused}");
        drop(first);
        RootDirLock::take(root.path()).unwrap();
    }

    #[test]
    fn a_disk_that_gives_no_lock_stops_no_start() {
        let root = tempfile::tempdir().unwrap();
        std::fs::write(root.path().join("oxlet"), "").unwrap();
        RootDirLock::take(root.path()).unwrap();
    }
}
