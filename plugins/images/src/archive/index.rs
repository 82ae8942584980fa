//! Where in an archive the files lie: it is read twice, once for this, and nothing of it is copied.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::ArchiveError;
use crate::layer::{Archive, Kind, LayerError};
use crate::limits::Limits;

/// Entries of an archive: layers and documents of many images.
const FILES_MAX: usize = 20_000;
const LINKS_MAX: usize = 8;
/// Bytes of their names.
const NAME_BYTES_MAX: usize = 16 << 20;

/// The files of an archive by name.
pub(super) struct Index {
    path: PathBuf,
    file: Arc<File>,
    files: HashMap<String, Located>,
    /// Older `docker save` has a layer once, and links to it.
    links: HashMap<String, String>,
}

/// A file within the archive.
#[derive(Clone, Copy, Debug)]
pub(super) struct Located {
    offset: u64,
    pub(super) size: u64,
}

impl Index {
    pub(super) fn read(path: &Path, limits: &Limits) -> Result<Self, ArchiveError> {
        let opened = File::open(path);
        let file = opened.map_err(|source| ArchiveError::Read {
            path: path.to_owned(),
            source,
        })?;
        Self::of(path, file, limits)
    }

    /// Reads what is in `file`; `path` is its name in errors.
    pub(super) fn of(path: &Path, file: File, limits: &Limits) -> Result<Self, ArchiveError> {
        let failed = |source| ArchiveError::Read {
            path: path.to_owned(),
            source,
        };
        if !file.metadata().map_err(failed)?.is_file() {
            return Err(failed(io::Error::other("it is no file")));
        }
        let mut index = Self {
            path: path.to_owned(),
            file: Arc::new(file),
            files: HashMap::new(),
            links: HashMap::new(),
        };
        let tar = |source| ArchiveError::Tar {
            path: path.to_owned(),
            source,
        };
        index.fill(limits).map_err(tar)?;
        Ok(index)
    }

    fn fill(&mut self, limits: &Limits) -> Result<(), LayerError> {
        let whole = Section {
            file: self.file.clone(),
            at: 0,
            left: u64::MAX,
        };
        let mut archive = Archive::new(BufReader::new(whole), limits.header_bytes.min(64 << 10));
        let too_large = |what, limit: usize| LayerError::TooLarge {
            what,
            limit: u64::try_from(limit).unwrap_or(u64::MAX),
        };
        let (mut entries, mut name_bytes) = (0, 0);
        while let Some(entry) = archive.next_entry()? {
            entries += 1;
            name_bytes += entry.path.len() + entry.link.len();
            if entries > FILES_MAX {
                return Err(too_large("entries in the archive", FILES_MAX));
            }
            if name_bytes > NAME_BYTES_MAX {
                return Err(too_large("bytes of names in the archive", NAME_BYTES_MAX));
            }
            let name = normal("", &String::from_utf8_lossy(&entry.path));
            match entry.kind {
                Kind::File if entry.sparse.is_some() => {
                    return Err(LayerError::Refused {
                        entry: name,
                        reason: "a file with holes, which archives of images don't have",
                    });
                }
                Kind::File => {
                    let located = Located {
                        offset: archive.position(),
                        size: entry.size,
                    };
                    self.files.insert(name, located);
                }
                Kind::Symlink | Kind::HardLink => {
                    let folder = match entry.kind == Kind::Symlink {
                        true => name.rsplit_once('/').map_or("", |(folder, _)| folder),
                        false => "",
                    };
                    let target = normal(folder, &String::from_utf8_lossy(&entry.link));
                    self.links.insert(name, target);
                }
                Kind::Folder | Kind::CharDevice | Kind::BlockDevice | Kind::Fifo => {}
            }
        }
        Ok(())
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn find(&self, name: &str) -> Option<Located> {
        let mut name = normal("", name);
        for _ in 0..LINKS_MAX {
            if let Some(located) = self.files.get(&name) {
                return Some(*located);
            }
            name = self.links.get(&name)?.clone();
        }
        None
    }

    /// Reads a file of at most `max` bytes; none if it isn't there.
    pub(super) fn document(&self, name: &str, max: usize) -> Result<Option<Vec<u8>>, ArchiveError> {
        let Some(located) = self.find(name) else {
            return Ok(None);
        };
        if usize::try_from(located.size).is_ok_and(|size| size <= max) {
            let mut content = Vec::new();
            let read = self.section(located).read_to_end(&mut content);
            return match read {
                Ok(_) => Ok(Some(content)),
                Err(source) => Err(ArchiveError::Read {
                    path: self.path.clone(),
                    source,
                }),
            };
        }
        Err(self.refused(format!("{name:?} in it has more than {max} bytes")))
    }

    pub(super) fn section(&self, located: Located) -> Section {
        Section {
            file: self.file.clone(),
            at: located.offset,
            left: located.size,
        }
    }

    pub(super) fn refused(&self, reason: String) -> ArchiveError {
        ArchiveError::Refused {
            path: self.path.clone(),
            reason,
        }
    }
}

/// A part of the archive as a reader; the file's own position isn't moved.
pub(super) struct Section {
    file: Arc<File>,
    at: u64,
    left: u64,
}

impl Read for Section {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.left).unwrap_or(usize::MAX);
        let wanted = buffer.len().min(left);
        let count = self.file.read_at(&mut buffer[..wanted], self.at)?;
        let bytes = u64::try_from(count).expect("a buffer's length fits");
        self.at += bytes;
        self.left -= bytes;
        Ok(count)
    }
}

/// Returns `name`, seen from `folder`, without dots: they are keys of a map, and never paths of the node.
fn normal(folder: &str, name: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').collect();
    if name.starts_with('/') {
        parts.clear();
    }
    for part in name.split('/') {
        match part {
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.retain(|part| !matches!(*part, "" | "."));
    parts.join("/")
}
