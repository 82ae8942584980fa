//! One file of a folder: which version it is, and its bytes.
//!
//! Nothing here waits for a file: what is not a regular file is refused before it is opened, and what turns into
//! something else between the look and the opening is opened without waiting.

use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use rustix::fs::{Mode, OFlags};

/// A file that changed this recently is perhaps being written.
pub const SETTLED_AFTER: Duration = Duration::from_millis(300);

/// Why a file is not read.
#[derive(Debug, thiserror::Error)]
pub enum FileReadError {
    /// It went away since its folder was listed.
    #[error("the file is gone")]
    Gone,
    #[error("found a link whose target is missing, expected a regular file")]
    Dangling,
    #[error("found {found}, expected a regular file")]
    WrongType { found: &'static str },
    #[error("the file cannot be read")]
    Unreadable(#[from] io::Error),
}

/// Device and inode of a file or folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileId {
    device: u64,
    inode: u64,
}

impl From<&Metadata> for FileId {
    fn from(metadata: &Metadata) -> Self {
        FileId {
            device: metadata.dev(),
            inode: metadata.ino(),
        }
    }
}

/// One version of a file, by its metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    place: FileId,
    bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl From<&Metadata> for Stamp {
    fn from(metadata: &Metadata) -> Self {
        Stamp {
            place: metadata.into(),
            bytes: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

impl Stamp {
    /// Returns the length of the file in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether the last change is long enough ago that the file is probably complete.
    pub fn is_settled(&self, now: SystemTime) -> bool {
        self.distance(now) > SETTLED_AFTER
    }

    /// Returns a number for this version.
    pub fn version(&self) -> u64 {
        let (seconds, nanoseconds) = self.modified;
        let time = seconds
            .wrapping_mul(1_000_000_000)
            .wrapping_add(nanoseconds);
        time.cast_unsigned() ^ self.place.inode.rotate_left(32) ^ self.bytes.rotate_left(16)
    }

    /// Returns how far its last change is away, forwards or backwards: the clock may have stepped.
    pub fn distance(&self, now: SystemTime) -> Duration {
        let (seconds, nanoseconds) = self.changed;
        let nanoseconds = i32::try_from(nanoseconds).unwrap_or(0);
        let changed = Timestamp::new(seconds, nanoseconds).unwrap_or(Timestamp::UNIX_EPOCH);
        let now = kernel::timestamp_of(now);
        now.duration_since(changed).unsigned_abs()
    }
}

/// Looks at a file without opening it.
pub fn stat(path: &Path) -> Result<Stamp, FileReadError> {
    let metadata = fs::metadata(path).map_err(|error| unread(path, error))?;
    regular(&metadata)
}

/// Opens a regular file; returns it with its version.
pub fn open(path: &Path) -> Result<(File, Stamp), FileReadError> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let opened = rustix::fs::open(path, flags, Mode::empty());
    let file = File::from(opened.map_err(|error| unread(path, error.into()))?);
    let stamp = regular(&file.metadata()?)?;
    Ok((file, stamp))
}

/// Reads a file, but one byte more than `most` at most: that shows that it is too long.
pub fn contents(file: File, most: usize) -> io::Result<Vec<u8>> {
    let bound = u64::try_from(most).unwrap_or(u64::MAX).saturating_add(1);
    let mut data = Vec::new();
    file.take(bound).read_to_end(&mut data)?;
    Ok(data)
}

fn unread(path: &Path, error: io::Error) -> FileReadError {
    match error.kind() == io::ErrorKind::NotFound {
        true if path.is_symlink() => FileReadError::Dangling,
        true => FileReadError::Gone,
        false => FileReadError::Unreadable(error),
    }
}

fn regular(metadata: &Metadata) -> Result<Stamp, FileReadError> {
    let kind = metadata.file_type();
    if kind.is_file() {
        return Ok(metadata.into());
    }
    let found = match () {
        () if kind.is_dir() => "a folder",
        () if kind.is_fifo() => "a named pipe",
        () if kind.is_socket() => "a socket",
        () if kind.is_char_device() || kind.is_block_device() => "a device",
        () => "something else",
    };
    Err(FileReadError::WrongType { found })
}
