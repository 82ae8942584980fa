//! Reading files that may be large, be no files at all, or hang: each with a bound, and not by links.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use tokio::sync::mpsc;

/// What a thread that reads has found.
#[derive(Debug)]
pub(super) enum Found {
    File {
        name: String,
        text: String,
    },
    /// What is known to be a secret.
    Secret(String),
    /// Of a process of a container.
    Variable {
        name: String,
        value: String,
    },
    Missing {
        what: String,
        why: String,
    },
}

/// Where a reading thread puts what it finds; who does not want it any more ends the thread at its next find.
#[derive(Debug)]
pub(super) struct Finder(pub(super) mpsc::Sender<Found>);

/// Nobody waits for more.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unwanted;

impl Finder {
    pub(super) fn file(&self, name: impl Into<String>, text: String) -> Result<(), Unwanted> {
        let name = name.into();
        self.put(Found::File { name, text })
    }

    pub(super) fn secret(&self, text: String) -> Result<(), Unwanted> {
        self.put(Found::Secret(text))
    }

    pub(super) fn variable(&self, name: &str, value: &str) -> Result<(), Unwanted> {
        let (name, value) = (name.to_owned(), value.to_owned());
        self.put(Found::Variable { name, value })
    }

    pub(super) fn missing(&self, what: impl Into<String>, why: &io::Error) -> Result<(), Unwanted> {
        let (what, why) = (what.into(), why.to_string());
        self.put(Found::Missing { what, why })
    }

    fn put(&self, found: Found) -> Result<(), Unwanted> {
        self.0.blocking_send(found).map_err(|_| Unwanted)
    }
}

/// The first bytes of a regular file, at most `max`, as text. A link is refused.
pub(super) fn head(path: &Path, max: u64) -> io::Result<String> {
    let mut bytes = Vec::new();
    regular(path)?.take(max).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The last lines of a regular file, whole ones within `max` bytes. A link is refused.
pub(super) fn tail(path: &Path, max: u64) -> io::Result<String> {
    let mut file = regular(path)?;
    let from = file.metadata()?.len().saturating_sub(max);
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    file.take(max).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    Ok(match (from, text.split_once('\n')) {
        // A part of a line may be a part of a secret.
        (1.., Some((_, whole))) => whole.to_owned(),
        (1.., None) => String::new(),
        (0, _) => text,
    })
}

/// The entries of a folder by their names, `max` of them.
pub(super) fn entries(folder: &Path, max: usize) -> io::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder)?.take(max);
    let paths = entries.map(|entry| entry.map(|entry| entry.path()));
    let mut paths = paths.collect::<io::Result<Vec<PathBuf>>>()?;
    paths.sort();
    Ok(paths)
}

/// Whether it is a folder itself, and no link to one.
pub(super) fn is_folder(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|file| file.is_dir())
}

pub(super) fn name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// Opens a regular file; a pipe or device is not waited for.
fn regular(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("it is no regular file")),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_tail_has_whole_lines_of_a_regular_file_alone() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a");
        fs::write(&file, "first\nsecond\nthird\n").unwrap();
        assert_eq!(tail(&file, 100).unwrap(), "first\nsecond\nthird\n");
        assert_eq!(tail(&file, 9).unwrap(), "third\n");
        assert_eq!(tail(&file, 3).unwrap(), "");
        assert_eq!(head(&file, 3).unwrap(), "fir");
        let link = folder.path().join("link");
        symlink(&file, &link).unwrap();
        assert!(tail(&link, 9).is_err() && head(&link, 9).is_err());
        let pipe = folder.path().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, Mode::RUSR).unwrap();
        assert!(head(&pipe, 9).is_err());
        assert_eq!(entries(folder.path(), 2).unwrap().len(), 2);
    }
}
