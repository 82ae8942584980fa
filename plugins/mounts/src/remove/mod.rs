//! Removing, never across a mount point, never through a link.

mod pod;
#[cfg(test)]
mod tests;
mod tree;

use std::path::{Path, PathBuf};
use std::{fs, io};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use tonic::Status;

pub use self::pod::pod;
use crate::answer;
use crate::table;

/// Of a volume that is being removed; no volume's name has such a letter in it.
const REMAINS: &str = "deleted~";

/// Tells whether a name in a folder of volumes is what an interrupted removal left: no volume, and not to be listed
/// as one.
pub fn is_remains(name: &str) -> bool {
    name.starts_with(REMAINS)
}

/// Removes a volume's own folder with its data. Nothing there is fine.
///
/// It is renamed first, so that no half of it is ever taken for the volume; what an earlier call left under such a
/// name is removed too. Where something is mounted on it or in it, nothing is removed.
pub fn empty_dir(path: &Path) -> Result<(), Status> {
    if let Some(old) = remains(path).map_err(|error| failed(path, error))? {
        whole(&old)?;
    }
    // What its mount alone held, and what was never used, is empty; the kernel tells whether anything is mounted on it.
    if fs::remove_dir(path).is_ok() {
        return Ok(());
    }
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => {}
        Ok(_) => {
            let path = path.display();
            return Err(Status::failed_precondition(format!(
                "{path} is not a folder"
            )));
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(path, error)),
    }
    nothing_mounted(path)?;
    let aside = aside(path);
    match renameat_with(CWD, path, CWD, &aside, RenameFlags::NOREPLACE) {
        Ok(()) => whole(&aside),
        Err(Errno::NOENT) => Ok(()),
        Err(Errno::BUSY) => Err(mounted(path)),
        // A name too long, no space for another, a file system without this call: it goes where it is.
        Err(_) => whole(path),
    }
}

fn aside(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default();
    let mut aside = std::ffi::OsString::from(REMAINS);
    aside.push(name);
    path.with_file_name(aside)
}

fn remains(path: &Path) -> io::Result<Option<PathBuf>> {
    let old = aside(path);
    match fs::symlink_metadata(&old) {
        Ok(_) => Ok(Some(old)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        // Then the path itself has no such name either, and will say so.
        Err(error) if error.kind() == io::ErrorKind::InvalidFilename => Ok(None),
        Err(error) => Err(error),
    }
}

/// Removes a path with all below it; the answer names what stayed.
fn whole(path: &Path) -> Result<(), Status> {
    nothing_mounted(path)?;
    let mut kept = tree::Kept::default();
    tree::remove(path, &mut kept)?;
    match kept.into_lines().first() {
        None => Ok(()),
        Some(first) => Err(Status::failed_precondition(format!(
            "cannot remove {first}"
        ))),
    }
}

fn nothing_mounted(path: &Path) -> Result<(), Status> {
    let points = mount_points(path).map_err(|error| failed(path, error))?;
    match points.first() {
        Some(point) => Err(mounted(point)),
        None => Ok(()),
    }
}

/// Returns the mounts at a path or below it.
fn mount_points(path: &Path) -> io::Result<Vec<PathBuf>> {
    let real = match table::real(path) {
        Ok(real) => real,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    Ok(table::at_or_below(&real)?.into_iter().collect())
}

fn mounted(path: &Path) -> Status {
    let path = path.display();
    Status::failed_precondition(format!("cannot remove {path}: {MOUNT_POINT}"))
}

fn failed(path: &Path, error: impl Into<io::Error>) -> Status {
    answer::failed(format!("cannot remove {}", path.display()), error)
}

const MOUNT_POINT: &str = "is a mount point";
const NOT_EMPTY: &str = "not empty";
