//! One write of a checkpoint: to a file beside the old one, which it then replaces atomically.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::hash::{DefaultHasher, Hasher};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// The next content of a checkpoint file, encoded and not yet on the disk.
#[derive(Debug)]
pub(super) struct PendingWrite {
    path: PathBuf,
    bytes: Vec<u8>,
    /// Pending writes of one process are ordered, so that a late one never replaces a newer file.
    ticket: u64,
}

static TICKETS: AtomicU64 = AtomicU64::new(1);

/// The newest pending write that reached each file. An actor that died may have left a write behind in the
/// blocking pool, beside those of its successor.
static NEWEST: Mutex<BTreeMap<PathBuf, u64>> = Mutex::new(BTreeMap::new());

impl PendingWrite {
    pub(super) fn new(path: PathBuf, bytes: Vec<u8>) -> PendingWrite {
        let ticket = TICKETS.fetch_add(1, Ordering::Relaxed);
        PendingWrite {
            path,
            bytes,
            ticket,
        }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn write(&self) -> io::Result<()> {
        let temporary = beside(&self.path, &format!(".tmp-{}", self.ticket));
        let written = self
            .fill(&temporary)
            .and_then(|()| self.put_in_place(&temporary));
        if written.is_err() {
            drop(fs::remove_file(&temporary));
        }
        written
    }

    fn fill(&self, temporary: &Path) -> io::Result<()> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(self.folder())?;
        // An earlier process may have died over a file of this name.
        drop(fs::remove_file(temporary));
        let mut options = OpenOptions::new();
        let mut file = options
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(temporary)?;
        file.write_all(&self.bytes)?;
        file.sync_all()
    }

    fn put_in_place(&self, temporary: &Path) -> io::Result<()> {
        let mut newest = NEWEST.lock().unwrap_or_else(PoisonError::into_inner);
        if newest
            .get(&self.path)
            .is_some_and(|other| *other > self.ticket)
        {
            return fs::remove_file(temporary);
        }
        fs::rename(temporary, &self.path)?;
        newest.insert(self.path.clone(), self.ticket);
        drop(newest);
        File::open(self.folder())?.sync_all()
    }

    fn folder(&self) -> &Path {
        match self.path.parent() {
            Some(folder) if folder.as_os_str().is_empty() => Path::new("."),
            Some(folder) => folder,
            None => Path::new("/"),
        }
    }
}

/// Returns the path of a file with a longer name in the same directory.
pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.file_name().map(OsString::from).unwrap_or_default();
    name.push(suffix);
    path.with_file_name(name)
}

/// Enough of a file's content to tell whether another content is the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fingerprint {
    length: usize,
    hash: u64,
}

impl Fingerprint {
    pub(super) fn of(bytes: &[u8]) -> Fingerprint {
        let mut hasher = DefaultHasher::new();
        hasher.write(bytes);
        Fingerprint {
            length: bytes.len(),
            hash: hasher.finish(),
        }
    }
}
