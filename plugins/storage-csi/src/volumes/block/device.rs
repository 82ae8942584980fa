//! The folders and links of a raw device. All of it blocks.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, symlink};
use std::path::Path;
use std::time::Duration;

use blocking_pool::Cancel;
use mounts::answer;
use mounts::mount::{self, Depth};
use proto::storage::Access;
use tonic::Status;

use super::PLUGIN;
use crate::data::{DataError, VolumeData};
use crate::layout::Block;
use crate::volumes::folder;
use crate::volumes::loops::{self, Released};
use crate::volumes::stage::still_mounted;

/// Between tries to unmount what was held open until now.
const PAUSE_FIRST: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// Binds the device below the volume's own folder, links the pod to it and has it held open.
pub(super) fn map(device: &Path, bound: &Path, link: &Path) -> Result<(), Status> {
    let failed = |what: &str, path: &Path, error| {
        answer::failed(
            format!("blkUtil.MapDevice failed. cannot {what} {}", path.display()),
            error,
        )
    };
    match fs::metadata(device) {
        Ok(metadata) if metadata.is_dir() => {
            return Err(Status::failed_precondition(format!(
                "{} is a folder, expected a device put there by the driver",
                device.display()
            )));
        }
        Ok(_) => {}
        Err(error) => return Err(failed("look at", device, error)),
    }
    if let Some(folder) = bound.parent() {
        folder::make(folder).map_err(|error| failed("make", folder, error))?;
    }
    if !folder::is_mounted(bound)? {
        let mut file = OpenOptions::new();
        let made = file
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o750)
            .open(bound);
        made.map(drop)
            .map_err(|error| failed("make", bound, error))?;
        mount::bind(device, bound, Access::ReadWrite, Depth::Single)?;
    }
    if let Some(folder) = link.parent() {
        folder::make(folder).map_err(|error| failed("make", folder, error))?;
    }
    if fs::read_link(link).is_ok_and(|leads| leads == device) {
        return loops::attach_loop_device(bound);
    }
    folder::remove(link).map_err(|error| failed("remove", link, error))?;
    symlink(device, link).map_err(|error| failed("link", link, error))?;
    loops::attach_loop_device(bound)
}

/// Undoes it, in upstream's order.
pub(super) fn unmap(bound: &Path, link: &Path) -> Result<(), Status> {
    let failed = |path: &Path, error| {
        answer::failed(
            format!(
                "blkUtil.UnmapDevice failed. cannot remove {}",
                path.display()
            ),
            error,
        )
    };
    let released = loops::release(bound)?;
    match fs::symlink_metadata(link) {
        Ok(metadata) if metadata.is_symlink() => {
            fs::remove_file(link).map_err(|error| failed(link, error))?;
        }
        // Nothing, or nothing of ours.
        Ok(_) | Err(_) => {}
    }
    if folder::is_mounted(bound)? {
        unmount(bound, released)?;
    }
    remove_trace(bound)
}

/// Unmounts what may still be busy for a moment, because it has only just been let go.
fn unmount(bound: &Path, released: Released) -> Result<(), Status> {
    let mut pause = PAUSE_FIRST;
    loop {
        match mount::unmount(bound) {
            Err(_) if released == Released::JustNow && pause < PAUSE_MAX => {
                Cancel::current().sleep(pause)?;
                pause *= 2;
            }
            unmounted => return unmounted,
        }
    }
}

/// Whose device is published for a pod; `None` if none is.
pub(super) fn published(block: &Block, device: &Path) -> Result<Option<VolumeData>, Status> {
    let damaged = match VolumeData::load(&block.data) {
        Ok(data) => return Ok(Some(data)),
        Err(damaged) => damaged,
    };
    let nothing = matches!(damaged, DataError::Missing { .. })
        && !folder::is_mounted(device)?
        && fs::symlink_metadata(device).is_err();
    match nothing {
        true => Ok(None),
        false => Err(unknown(block, &damaged)),
    }
}

/// Whose device is staged; `None` if none is.
pub(super) fn staged(block: &Block) -> Result<Option<VolumeData>, Status> {
    let pods: Vec<String> = match fs::read_dir(&block.publish) {
        Ok(entries) => entries
            .filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned()))
            .collect(),
        Err(_) => Vec::new(),
    };
    if !pods.is_empty() {
        return Err(Status::failed_precondition(format!(
            "the block volume {} is still published for the pods [{}]",
            block.own.display(),
            pods.join(" ")
        )));
    }
    let mounted = folder::is_mounted(&block.staging)?;
    // Upstream's: what has been unstaged is not unstaged again.
    if !mounted && fs::symlink_metadata(&block.staging).is_err() {
        return Ok(None);
    }
    match VolumeData::load(&block.data) {
        Ok(data) => Ok(Some(data)),
        Err(DataError::Missing { .. }) if !mounted => Ok(None),
        Err(damaged) => Err(unknown(block, &damaged)),
    }
}

fn unknown(block: &Block, damaged: &DataError) -> Status {
    let data = block.data.display();
    Status::failed_precondition(format!(
        "{PLUGIN} unmapper failed to load volume data file [{data}]: {damaged}"
    ))
}

/// Removes what a driver left in its staging folder, as far as it holds nothing.
pub(super) fn empty(staging: &Path) -> Result<(), Status> {
    let failed = |error| answer::failed(format!("cannot read {}", staging.display()), error);
    let entries = match fs::read_dir(staging) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error)),
    };
    for entry in entries {
        let path = entry.map_err(failed)?.path();
        if folder::is_mounted(&path)? {
            return Err(still_mounted(&path, "NodeUnstageVolume"));
        }
        remove_trace(&path)?;
    }
    Ok(())
}

/// Removes a place where a device was: an empty file or folder, a link, a device's file. Nothing there is fine.
pub(super) fn remove_trace(path: &Path) -> Result<(), Status> {
    let failed = |error| answer::failed(format!("cannot remove {}", path.display()), error);
    match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_file() && metadata.len() > 0 => {
            Err(Status::failed_precondition(format!(
                "{} is a file of {} bytes, expected what a device leaves",
                path.display(),
                metadata.len()
            )))
        }
        Ok(_) => folder::remove(path).map_err(failed),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(failed(error)),
    }
}
