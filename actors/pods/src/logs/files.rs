//! Operations on a log's files. Every function here blocks.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use flate2::Compression;
use flate2::write::GzEncoder;
use jiff::Timestamp;
use logic_pods::logs::{self, LogFiles, LogRotationPolicy};
use rustix::fs::{CWD, OFlags, RenameFlags, renameat_with};
use rustix::io::Errno;

/// A folder with more names than this is not the agent's; the rest is left alone.
const MAX_NAMES: usize = 10_000;
/// Bytes read at a time while compressing.
const CHUNK_SIZE: usize = 64 * 1024;

/// Renames a log before its rotation; returns its new name.
pub(super) fn set_aside(path: &Path, now: Timestamp) -> io::Result<String> {
    let (folder, log) = split(path)?;
    let name = logs::rotated(log, &names(folder)?, now);
    rename(path, &folder.join(&name))?;
    Ok(name)
}

/// Renames a log back; returns false if there is a new log already.
pub(super) fn put_back(path: &Path, name: &str) -> io::Result<bool> {
    match rename(&path.with_file_name(name), path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
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
    let (folder, log) = split(path)?;
    let names = names(folder)?;
    let files = LogFiles {
        log,
        names: &names,
        fresh,
        compressing,
    };
    let clean_up = logs::tidy(&files, policy);
    for name in &clean_up.remove {
        absent(fs::remove_file(folder.join(name)))?;
    }
    Ok(clean_up.compress)
}

/// Compresses a rotated log, whose name and mode the result takes. A log that was removed
/// meanwhile, or whose compression is called off, leaves nothing.
pub(super) fn compress(source: &Path, off: &AtomicBool) -> io::Result<()> {
    let (folder, name) = split(source)?;
    let temporary = folder.join(logs::temporary(name));
    let done = write_compressed(source, &temporary, off).and_then(|whole| {
        // The source was removed as excess meanwhile, so its compressed copy must not stay.
        if whole && fs::symlink_metadata(source).is_ok() {
            fs::rename(&temporary, folder.join(logs::compressed(name)))?;
            absent(fs::remove_file(source))?;
        }
        Ok(())
    });
    absent(fs::remove_file(&temporary))?;
    absent(done)
}

/// Returns false if it was called off.
fn write_compressed(source: &Path, target: &Path, off: &AtomicBool) -> io::Result<bool> {
    let no_surprises = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let mut from = OpenOptions::new()
        .read(true)
        .custom_flags(no_surprises)
        .open(source)?;
    let meta = from.metadata()?;
    if !meta.is_file() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "not a regular file",
        ));
    }
    absent(fs::remove_file(target))?;
    let to = File::create_new(target)?;
    to.set_permissions(fs::Permissions::from_mode(
        meta.permissions().mode() & 0o777,
    ))?;
    let mut encoder = GzEncoder::new(to, Compression::default());
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

/// Never replaces an existing file.
fn rename(from: &Path, to: &Path) -> io::Result<()> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // The file system does not support `RENAME_NOREPLACE`.
        Err(Errno::INVAL | Errno::NOSYS) => match to.symlink_metadata() {
            Ok(_) => Err(io::ErrorKind::AlreadyExists.into()),
            Err(_) => fs::rename(from, to),
        },
        result => result.map_err(io::Error::from),
    }
}

fn split(path: &Path) -> io::Result<(&Path, &str)> {
    let name = path.file_name().and_then(|name| name.to_str());
    path.parent()
        .zip(name)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "not the path of a log"))
}

fn names(folder: &Path) -> io::Result<Vec<String>> {
    let entries = fs::read_dir(folder)?.take(MAX_NAMES);
    let names = entries.map(|entry| Ok(entry?.file_name().into_string().ok()));
    names.filter_map(Result::transpose).collect()
}

fn absent(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}
