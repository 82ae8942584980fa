//! Figures of file systems, each read in a thread of its own: one that hangs costs its own figures and no others.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use jiff::Timestamp;
use logic_resources::summary::FsStats;

use super::bounded_io::{BoundedIo, BoundedIoError};

/// What one file system says.
#[derive(Debug, Default)]
pub(super) struct FileSystemFigures {
    /// None where there is no such file system.
    pub(super) stats: Option<FsStats>,
    /// The device that the path is on.
    pub(super) device: Option<u64>,
}

/// Reads file systems by a path on each.
#[derive(Debug, Default)]
pub(super) struct FileSystemReader {
    /// Paths that are being read, some of them for ever.
    reading: RefCell<BTreeMap<PathBuf, Rc<BoundedIo>>>,
}

impl FileSystemReader {
    /// Fails where the file system does not answer in time; at once while an earlier read of it hangs.
    pub(super) async fn read(&self, path: &Path) -> Result<FileSystemFigures, BoundedIoError> {
        let at = Timestamp::try_from(kernel::wall()).ok();
        let own = path.to_owned();
        let figures = move || FileSystemFigures {
            stats: stats(&own, at),
            device: std::fs::metadata(&own).ok().map(|folder| folder.dev()),
        };
        self.io(path).run(figures).await
    }

    pub(super) fn io(&self, path: &Path) -> Rc<BoundedIo> {
        let mut reading = self.reading.borrow_mut();
        reading.retain(|_, io| Rc::strong_count(io) > 1 || !io.is_idle());
        reading.entry(path.to_owned()).or_default().clone()
    }
}

fn stats(path: &Path, at: Option<Timestamp>) -> Option<FsStats> {
    let stat = match rustix::fs::statvfs(path) {
        Ok(stat) => stat,
        Err(error) => {
            tracing::debug!("{}: {error}", path.display());
            return None;
        }
    };
    let bytes = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
    Some(FsStats {
        time: at,
        available_bytes: Some(bytes(stat.f_bavail)),
        capacity_bytes: Some(bytes(stat.f_blocks)),
        used_bytes: Some(bytes(stat.f_blocks.saturating_sub(stat.f_bfree))),
        inodes_free: Some(stat.f_ffree),
        inodes: Some(stat.f_files),
        inodes_used: Some(stat.f_files.saturating_sub(stat.f_ffree)),
    })
}
