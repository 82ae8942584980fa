//! Reads a folder of manifests, or one file: blocking work for the blocking pool.

use std::collections::BTreeMap;
use std::fs::{self, File, Metadata};
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use logic_api::manifest::{MAX_MANIFEST_BYTES, ManifestError, ManifestSource, StaticPodContext};
use state::folder::{self, FileId, FileReadError, Stamp};

use crate::sources::manifest::{Manifest, SourceError};

/// A file modified this recently may change again with the same times: file systems' clocks are coarse.
const TIMESTAMP_GRANULARITY: Duration = Duration::from_millis(100);

/// What a reading needs.
#[derive(Debug)]
pub(super) struct Scanner {
    pub(super) path: Arc<Path>,
    pub(super) context: StaticPodContext,
    /// The stamps of the versions that need no second reading.
    pub(super) known: BTreeMap<String, Stamp>,
    pub(super) now: SystemTime,
}

/// The result of a reading.
#[derive(Debug)]
pub(super) enum Scan {
    /// The path does not exist.
    Missing,
    /// The path cannot be read at all: no manifest's state is known.
    Unreadable(SourceError),
    /// The manifests by path, in lexical order.
    Found {
        watched: FileId,
        looks: BTreeMap<String, ManifestRead>,
    },
}

/// The result of reading one manifest.
#[derive(Debug)]
pub(super) enum ManifestRead {
    /// The stamp is the known version's.
    Unchanged,
    /// A version of a regular file; `telling` if the next version is certain to have another stamp.
    Read {
        stamp: Stamp,
        telling: bool,
        manifest: Manifest,
    },
    /// No regular file, or one that cannot be read.
    Refused(SourceError),
}

impl Scanner {
    pub(super) fn scan(&self) -> Scan {
        let metadata = match fs::metadata(&self.path) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Scan::Missing,
            Err(error) => return Scan::Unreadable(FileReadError::from(error).into()),
        };
        let found = if metadata.is_dir() {
            self.folder(&metadata)
        } else {
            self.single()
        };
        found.unwrap_or_else(|error| Scan::Unreadable(FileReadError::from(error).into()))
    }

    fn folder(&self, metadata: &Metadata) -> io::Result<Scan> {
        let mut looks = BTreeMap::new();
        for entry in fs::read_dir(&self.path)? {
            let path = self.path.join(entry?.file_name());
            let hidden = path
                .file_name()
                .is_none_or(|name| name.as_encoded_bytes().starts_with(b"."));
            if let Some(look) = (!hidden).then(|| self.read_if_changed(&path)).flatten() {
                looks.insert(path.to_string_lossy().into_owned(), look);
            }
        }
        let watched = metadata.into();
        Ok(Scan::Found { watched, looks })
    }

    fn single(&self) -> io::Result<Scan> {
        let folder = self.path.parent().unwrap_or(Path::new("/"));
        let watched = FileId::from(&fs::metadata(folder)?);
        let look = self
            .read_if_changed(&self.path)
            .map(|look| (self.path.to_string_lossy().into_owned(), look));
        Ok(Scan::Found {
            watched,
            looks: look.into_iter().collect(),
        })
    }

    /// Reads one file; none if it was removed since its folder was listed.
    fn read_if_changed(&self, path: &Path) -> Option<ManifestRead> {
        let Some(place) = path.to_str() else {
            return Some(ManifestRead::Refused(SourceError::Unspeakable));
        };
        match self.read(path, place) {
            Ok(look) => Some(look),
            Err(SourceError::Unread(FileReadError::Gone)) => None,
            Err(refused) => Some(ManifestRead::Refused(refused)),
        }
    }

    fn read(&self, path: &Path, place: &str) -> Result<ManifestRead, SourceError> {
        let stamp = folder::stat(path)?;
        if self.known.get(place) == Some(&stamp) {
            return Ok(ManifestRead::Unchanged);
        }
        if let Err(too_long) = within_limit(stamp.bytes()) {
            return Ok(self.have_read(stamp, too_long.into()));
        }
        let (file, stamp) = folder::open(path)?;
        let manifest = match contents(file, stamp.bytes()) {
            Ok(data) => {
                let seen = kernel::timestamp_of(self.now);
                Manifest::read(
                    &data,
                    &ManifestSource::File(place.to_owned()),
                    &self.context,
                    seen,
                )
            }
            Err(refused) => refused.into(),
        };
        Ok(self.have_read(stamp, manifest))
    }

    fn have_read(&self, stamp: Stamp, manifest: Manifest) -> ManifestRead {
        // The stamp is of before the reading: the file may have changed since.
        let telling = stamp.distance(self.now) > TIMESTAMP_GRANULARITY;
        ManifestRead::Read {
            stamp,
            telling,
            manifest,
        }
    }
}

fn contents(file: File, bytes: u64) -> Result<Vec<u8>, SourceError> {
    within_limit(bytes)?;
    let data = folder::contents(file, MAX_MANIFEST_BYTES).map_err(FileReadError::from)?;
    // The file may have grown meanwhile.
    within_limit(data.len() as u64)?;
    Ok(data)
}

fn within_limit(bytes: u64) -> Result<(), SourceError> {
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
