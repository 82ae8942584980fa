//! Operations on a log's files. Every function here blocks.
//!
//! A pod with a hostPath volume at or above the folder of all logs can put links there. So each operation opens the
//! log's folder beneath that one without following links, and works on the entries of the open folder.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use flate2::Compression;
use flate2::write::GzEncoder;
use jiff::Timestamp;
use logic_api::pod::labels;
use logic_pods::logs::{self, LogFiles, LogRotationPolicy};
use rustix::fs::{
    AtFlags, Dir, Mode, OFlags, RenameFlags, fchmod, openat, renameat, renameat_with, statat,
    unlinkat,
};
use rustix::io::Errno;

/// A folder with more names than this is not the agent's; the rest is left alone.
const MAX_NAMES: usize = 10_000;
/// Bytes read at a time while compressing.
const CHUNK_SIZE: usize = 64 * 1024;

/// Renames a log before its rotation; returns its new name.
pub(super) fn set_aside(path: &Path, now: Timestamp) -> io::Result<String> {
    let (folder, log) = LogFolder::of(path)?;
    let name = logs::rotated(log, &folder.names()?, now);
    folder.rename(log, &name)?;
    Ok(name)
}

/// Renames a log back; returns false if there is a new log already.
pub(super) fn put_back(path: &Path, name: &str) -> io::Result<bool> {
    let (folder, log) = LogFolder::of(path)?;
    match folder.rename(name, log) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
        result => result.map(|()| true),
    }
}

/// Removes leftovers and excess logs; returns the ones to compress.
pub(super) fn clean_up(
    path: &Path,
    fresh: &BTreeSet<String>,
    compressing: Option<&str>,
    policy: &LogRotationPolicy,
) -> io::Result<Vec<String>> {
    let (folder, log) = LogFolder::of(path)?;
    let names = folder.names()?;
    let files = LogFiles {
        log,
        names: &names,
        fresh,
        compressing,
    };
    let clean_up = logs::tidy(&files, policy);
    for name in &clean_up.remove {
        folder.remove(name)?;
    }
    Ok(clean_up.compress)
}

/// Compresses a rotated log, whose name and mode the result takes. A log that was removed
/// meanwhile is no error, and neither is `off`, which ends the work early.
pub(super) fn compress(source: &Path, off: &AtomicBool) -> io::Result<()> {
    let (folder, name) = LogFolder::of(source)?;
    let temporary = logs::temporary(name);
    let done = folder
        .write_compressed(name, &temporary, off)
        .and_then(|is_whole| {
            // The source was removed as excess meanwhile, so its compressed copy must not stay.
            if is_whole && folder.has(name) {
                let (from, to) = (temporary.as_str(), logs::compressed(name));
                renameat(&folder.folder, from, &folder.folder, to.as_str())?;
                folder.remove(name)?;
            }
            Ok(())
        });
    folder.remove(&temporary)?;
    absent(done)
}

/// The open folder of a container's logs.
struct LogFolder {
    folder: OwnedFd,
}

impl LogFolder {
    /// The folder of a log, and the log's name.
    fn of(path: &Path) -> io::Result<(LogFolder, &str)> {
        let invalid = || io::Error::new(ErrorKind::InvalidInput, "not the path of a log");
        let (root, log) = labels::split_log_path(path).ok_or_else(invalid)?;
        let name = log.file_name().and_then(OsStr::to_str);
        let (name, folder) = name.zip(log.parent()).ok_or_else(invalid)?;
        let folder = files::open_folder(root, folder)?;
        Ok((LogFolder { folder }, name))
    }

    /// The names in the folder, those that are UTF-8.
    fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.folder)? {
            let entry = entry?;
            if let Ok(name) = entry.file_name().to_str()
                && ![".", ".."].contains(&name)
            {
                names.push(name.to_owned());
            }
            if names.len() == MAX_NAMES {
                break;
            }
        }
        Ok(names)
    }

    fn has(&self, name: &str) -> bool {
        statat(&self.folder, name, AtFlags::SYMLINK_NOFOLLOW).is_ok()
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        absent(unlinkat(&self.folder, name, AtFlags::empty()).map_err(io::Error::from))
    }

    /// Never replaces a file: the runtime may have begun a new log.
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let folder = &self.folder;
        match renameat_with(folder, from, folder, to, RenameFlags::NOREPLACE) {
            // The file system does not support `RENAME_NOREPLACE`.
            Err(Errno::INVAL | Errno::NOSYS) if self.has(to) => {
                Err(ErrorKind::AlreadyExists.into())
            }
            Err(Errno::INVAL | Errno::NOSYS) => Ok(renameat(folder, from, folder, to)?),
            result => result.map_err(io::Error::from),
        }
    }

    /// False if it was called off.
    fn write_compressed(&self, source: &str, target: &str, off: &AtomicBool) -> io::Result<bool> {
        let mut from = files::open_owned_at(self.folder.as_fd(), OsStr::new(source))?;
        let mode = Mode::from_raw_mode(from.metadata()?.mode() & 0o777);
        self.remove(target)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let to = openat(&self.folder, target, flags, Mode::RUSR | Mode::WUSR)?;
        fchmod(&to, mode)?;
        let mut encoder = GzEncoder::new(File::from(to), Compression::default());
        let mut chunk = vec![0; CHUNK_SIZE];
        loop {
            if off.load(Ordering::Relaxed) {
                return Ok(false);
            }
            match from.read(&mut chunk)? {
                0 => break,
                length => encoder.write_all(&chunk[..length])?,
            }
        }
        encoder.finish()?;
        Ok(true)
    }
}

fn absent(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        result => result,
    }
}
