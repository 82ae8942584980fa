//! A mount that gets stuck on demand, as one of a dead file server does: a FUSE file system, empty but for one folder,
//! that reads every request and, while it blocks, answers none. SIGKILL does not end the process that asked: the
//! kernel waits for the answer to a request which was read.

mod file_system;

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use fuser::{BackgroundSession, Config, MountOption, Session, SessionACL};
use nix::mount::{MntFlags, umount2};

use self::file_system::{EmptyFileSystem, Replies};

/// A mounted file system. Dropped, it fails all blocked requests and is unmounted.
#[derive(Debug)]
pub struct StuckMount {
    path: PathBuf,
    replies: Arc<Replies>,
    session: Option<BackgroundSession>,
}

impl StuckMount {
    /// Mounts it at a folder; that takes root and `/dev/fuse`, but no `fusermount`.
    pub fn mount(path: &Path) -> Result<Self> {
        let replies = Arc::new(Replies::default());
        let mut config = Config::default();
        config.acl = SessionACL::All;
        config.mount_options = vec![
            MountOption::FSName("stuck".to_owned()),
            MountOption::Subtype("stuck".to_owned()),
        ];
        let session = Session::new(EmptyFileSystem(Arc::clone(&replies)), path, &config)
            .and_then(Session::spawn)
            .with_context(|| format!("cannot mount a FUSE at {}", path.display()))?;
        Ok(Self {
            path: path.to_owned(),
            replies,
            session: Some(session),
        })
    }

    /// Returns its mount point.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the one folder in it.
    pub fn folder(&self) -> PathBuf {
        self.path.join(file_system::FOLDER_NAME)
    }

    /// Leaves every request unanswered from now on.
    pub fn block(&self) {
        self.replies.block();
    }

    /// Answers the blocked requests, and all that follow.
    pub fn unblock(&self) {
        self.replies.unblock();
    }

    /// Returns how many requests are blocked.
    pub fn blocked(&self) -> usize {
        self.replies.blocked()
    }
}

impl Drop for StuckMount {
    fn drop(&mut self) {
        // Forced: the kernel ends every request with an error, and the session's next read, too.
        let flags = MntFlags::MNT_FORCE | MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW;
        match umount2(&self.path, flags) {
            Ok(()) => {
                if let Some(Err(error)) = self.session.take().map(BackgroundSession::join) {
                    eprintln!("the file system at {} failed: {error}", self.path.display());
                }
            }
            Err(error) => {
                eprintln!("cannot unmount {}: {error}", self.path.display());
                self.unblock();
            }
        }
    }
}
