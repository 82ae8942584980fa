//! Reading a folder of manifests, or one file: blocking work, done in the pool for it.
//!
//! Nothing here waits for a manifest: what is not a regular file is refused before it is opened, and
//! what turns into something else between the look and the opening is opened without waiting.

use std::collections::BTreeMap;
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use logic::manifest::{Ground, MAX_MANIFEST_BYTES, ManifestError, Source};
use rustix::fs::{Mode, OFlags, open};

use crate::sources::manifest::{Manifest, Refused};

/// A file changed this recently may change again and keep its times: clocks of file systems are coarse.
const COARSE: Duration = Duration::from_millis(100);
/// Bad and changed this recently: perhaps somebody is still writing it.
pub(super) const SETTLED_AFTER: Duration = Duration::from_millis(300);

/// What to read.
#[derive(Debug)]
pub(super) struct Scanner {
    pub(super) path: Arc<Path>,
    pub(super) ground: Ground,
    /// The versions that need no second reading.
    pub(super) known: BTreeMap<String, Stamp>,
    pub(super) now: SystemTime,
}

/// What was read.
#[derive(Debug)]
pub(super) enum Scan {
    /// Nothing is there.
    Missing,
    /// Something is there that cannot be read at all: nothing is known of any manifest.
    Unreadable(Refused),
    /// The manifests by their places, in lexical order.
    Found {
        watched: Place,
        looks: BTreeMap<String, Look>,
    },
}

/// One manifest.
#[derive(Debug)]
pub(super) enum Look {
    /// The version that is known.
    Unchanged,
    /// A version of a regular file; `telling` if the next one will have another stamp.
    Read {
        stamp: Stamp,
        telling: bool,
        manifest: Manifest,
    },
    /// Something else.
    Refused(Refused),
}

/// Which file on which disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    device: u64,
    inode: u64,
}

impl From<&Metadata> for Place {
    fn from(metadata: &Metadata) -> Self {
        Place {
            device: metadata.dev(),
            inode: metadata.ino(),
        }
    }
}

/// One version of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    place: Place,
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
    /// Whether the next version will have another stamp.
    fn is_telling(&self, now: SystemTime) -> bool {
        self.distance(now) > COARSE
    }

    /// Whether nobody seems to be writing it any more.
    pub(super) fn is_settled(&self, now: SystemTime) -> bool {
        self.distance(now) > SETTLED_AFTER
    }

    /// A number for this version.
    pub(super) fn version(&self) -> u64 {
        let (seconds, nanoseconds) = self.modified;
        let time = seconds
            .wrapping_mul(1_000_000_000)
            .wrapping_add(nanoseconds);
        time.cast_unsigned() ^ self.place.inode.rotate_left(32) ^ self.bytes.rotate_left(16)
    }

    /// From its last change, forwards or backwards: the clock may have stepped.
    fn distance(&self, now: SystemTime) -> Duration {
        let (seconds, nanoseconds) = self.changed;
        let nanoseconds = i32::try_from(nanoseconds).unwrap_or(0);
        let changed = Timestamp::new(seconds, nanoseconds).unwrap_or(Timestamp::UNIX_EPOCH);
        let now = Timestamp::try_from(now).unwrap_or(Timestamp::UNIX_EPOCH);
        now.duration_since(changed).unsigned_abs()
    }
}

impl Scanner {
    pub(super) fn scan(&self) -> Scan {
        let metadata = match fs::metadata(&self.path) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Scan::Missing,
            Err(error) => return Scan::Unreadable(Refused::Unreadable(error)),
        };
        let found = if metadata.is_dir() {
            self.folder(&metadata)
        } else {
            self.single()
        };
        found.unwrap_or_else(|error| Scan::Unreadable(Refused::Unreadable(error)))
    }

    fn folder(&self, metadata: &Metadata) -> io::Result<Scan> {
        let mut looks = BTreeMap::new();
        for entry in fs::read_dir(&self.path)? {
            let path = self.path.join(entry?.file_name());
            let hidden = path
                .file_name()
                .is_none_or(|name| name.as_encoded_bytes().starts_with(b"."));
            if let Some(look) = (!hidden).then(|| self.look(&path)).flatten() {
                looks.insert(path.to_string_lossy().into_owned(), look);
            }
        }
        let watched = metadata.into();
        Ok(Scan::Found { watched, looks })
    }

    fn single(&self) -> io::Result<Scan> {
        let folder = self.path.parent().unwrap_or(Path::new("/"));
        let watched = Place::from(&fs::metadata(folder)?);
        let look = self
            .look(&self.path)
            .map(|look| (self.path.to_string_lossy().into_owned(), look));
        Ok(Scan::Found {
            watched,
            looks: look.into_iter().collect(),
        })
    }

    /// None for a file that went away since its folder was listed.
    fn look(&self, path: &Path) -> Option<Look> {
        let Some(place) = path.to_str() else {
            return Some(Look::Refused(Refused::Unspeakable));
        };
        match self.read(path, place) {
            Ok(look) => Some(look),
            Err(Refused::Unreadable(error)) if error.kind() == io::ErrorKind::NotFound => {
                let is_link =
                    fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_symlink());
                is_link.then_some(Look::Refused(Refused::Dangling))
            }
            Err(refused) => Some(Look::Refused(refused)),
        }
    }

    fn read(&self, path: &Path, place: &str) -> Result<Look, Refused> {
        let metadata = fs::metadata(path).map_err(Refused::Unreadable)?;
        let stamp = regular(&metadata)?;
        if self.known.get(place) == Some(&stamp) {
            return Ok(Look::Unchanged);
        }
        if let Err(too_long) = within_limit(metadata.len()) {
            return Ok(self.have_read(stamp, too_long.into()));
        }
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let descriptor =
            open(path, flags, Mode::empty()).map_err(|error| Refused::Unreadable(error.into()))?;
        let file = File::from(descriptor);
        let metadata = file.metadata().map_err(Refused::Unreadable)?;
        let stamp = regular(&metadata)?;
        let manifest = match contents(file, metadata.len()) {
            Ok(data) => {
                let seen = Timestamp::try_from(self.now).unwrap_or(Timestamp::UNIX_EPOCH);
                Manifest::read(&data, &Source::File(place.to_owned()), &self.ground, seen)
            }
            Err(refused) => refused.into(),
        };
        Ok(self.have_read(stamp, manifest))
    }

    fn have_read(&self, stamp: Stamp, manifest: Manifest) -> Look {
        // As of before the reading: it may have been changed since.
        let telling = stamp.is_telling(self.now);
        Look::Read {
            stamp,
            telling,
            manifest,
        }
    }
}

fn contents(file: File, bytes: u64) -> Result<Vec<u8>, Refused> {
    within_limit(bytes)?;
    let mut data = Vec::with_capacity(usize::try_from(bytes).unwrap_or(0) + 1);
    // One byte more than is allowed shows that it grew meanwhile.
    let limit = MAX_MANIFEST_BYTES as u64 + 1;
    file.take(limit)
        .read_to_end(&mut data)
        .map_err(Refused::Unreadable)?;
    within_limit(data.len() as u64)?;
    Ok(data)
}

fn within_limit(bytes: u64) -> Result<(), Refused> {
    if bytes <= MAX_MANIFEST_BYTES as u64 {
        return Ok(());
    }
    let found = usize::try_from(bytes).unwrap_or(usize::MAX);
    Err(ManifestError::TooLong {
        found,
        limit: MAX_MANIFEST_BYTES,
    }
    .into())
}

fn regular(metadata: &Metadata) -> Result<Stamp, Refused> {
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
    Err(Refused::WrongType { found })
}

/// The path as upstream spells it, because static pods' UIDs are made of it: no trailing, doubled or
/// dotted parts (Go's `filepath.Clean`).
pub(super) fn cleaned(path: &Path) -> PathBuf {
    let mut clean = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir if clean.file_name().is_some() => drop(clean.pop()),
            Component::ParentDir if clean.has_root() => {}
            Component::ParentDir
            | Component::Prefix(_)
            | Component::RootDir
            | Component::Normal(_) => clean.push(part),
        }
    }
    clean
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_spelt_as_upstream_spells_them() {
        let cases = [
            ("/etc/kubernetes/manifests/", "/etc/kubernetes/manifests"),
            ("/etc//kubernetes/./manifests", "/etc/kubernetes/manifests"),
            ("/etc/x/../kubernetes", "/etc/kubernetes"),
            ("/../etc", "/etc"),
            ("manifests/", "manifests"),
            ("../m", "../m"),
        ];
        for (given, expected) in cases {
            assert_eq!(
                cleaned(Path::new(given)).to_str(),
                Some(expected),
                "{given}"
            );
        }
    }
}
