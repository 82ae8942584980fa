//! The folders that drivers are given: made before they are called, removed after, never across a mount. All of it
//! blocks.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use mounts::table::{self, MountTable};
use mounts::{answer, requests};
use tonic::Status;

use crate::data;

/// What is left of a folder that was to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cleaned {
    /// Nothing.
    Gone,
    /// Everything: it is still mounted.
    Mounted,
}

/// Makes a folder and those above it, as upstream does.
pub(super) fn make(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o750).create(path)
}

/// Tells whether something is mounted at a path, without looking at what is.
pub(super) fn is_mounted(path: &Path) -> Result<bool, Status> {
    match table::is_mount_point(path) {
        Ok(mounted) => Ok(mounted),
        // A folder above it is missing.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(answer::failed("cannot tell what is mounted", error)),
    }
}

/// Removes a driver's folder, `vol_data.json` beside it, and the folder of both, in that order, so that what is known
/// of a volume goes last. Nothing is removed if it is mounted, and no folder that holds anything.
pub(super) fn clean(mount: &Path) -> Result<Cleaned, Status> {
    if is_mounted(mount)? {
        return Ok(Cleaned::Mounted);
    }
    let Some(folder) = mount.parent() else {
        return Err(requests::invalid(format!(
            "{} has no folder",
            mount.display()
        )));
    };
    let failed = |what: &str, path: &Path, error| {
        answer::failed(
            format!("kubernetes.io/csi: failed to {what} [{}]", path.display()),
            error,
        )
    };
    remove(mount).map_err(|error| failed("remove dir", mount, error))?;
    data::remove(folder).map_err(|error| failed("delete volume data file in", folder, error))?;
    remove(folder).map_err(|error| failed("delete volume path", folder, error))?;
    Ok(Cleaned::Gone)
}

/// Removes an empty folder, or whatever else is there that is no folder. Nothing there is fine.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    let removed = match fs::remove_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => fs::remove_file(path),
        removed => removed,
    };
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Refuses what no driver should leave at a target path: a link, for it leads elsewhere, and nothing, for a runtime
/// would make a folder there and let the pod write into it.
pub(super) fn check_published(target: &Path) -> Result<(), Status> {
    // What is mounted is better not looked at.
    if is_mounted(target)? {
        return Ok(());
    }
    let found = match fs::symlink_metadata(target) {
        Ok(metadata) if metadata.is_symlink() => "a link",
        Ok(_) => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => "missing",
        Err(error) => return Err(answer::failed(format!("lstat {}", target.display()), error)),
    };
    Err(Status::failed_precondition(format!(
        "kubernetes.io/csi: {} is {found} after NodePublishVolume, expected a folder made by the driver",
        target.display()
    )))
}

/// Where else a staged volume is mounted, as upstream counts it: outside the folder of its staging path.
pub(super) fn other_mounts(staging: &Path) -> Result<Vec<String>, Status> {
    let failed = |error| answer::failed("cannot tell what is mounted", error);
    let real = match table::real(staging) {
        Ok(real) => real,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(error)),
    };
    let table = MountTable::read().map_err(failed)?;
    let Some(own) = table.at(&real) else {
        return Ok(Vec::new());
    };
    let folder = real.parent().unwrap_or(&real);
    let others = table.entries().iter().filter(|entry| {
        entry.device == own.device
            && entry.root == own.root
            && !entry.mount_point.starts_with(folder)
    });
    Ok(others
        .map(|entry| entry.mount_point.display().to_string())
        .collect())
}
