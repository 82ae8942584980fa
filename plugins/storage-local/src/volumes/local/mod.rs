//! Folders and formatted disks of the node that a persistent volume names (upstream's pkg/volume/local/local.go, 1.36).
//!
//! A disk is mounted once for the node, at `ROOT/plugins/kubernetes.io/local-volume/mounts/NAME`, and bound from there
//! to each pod. The owner's group is set before the bind, so that a target that is mounted is complete.

#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use mounts::answer::failed;
use mounts::mount::{self, Depth};
use mounts::ownership;
use mounts::table::{self, MountTable};
use proto::storage::{Access, Local, Ownership};
use rustix::fs::{Mode, OFlags, open};
use rustix::mount::{MountFlags, mount_remount};
use tokio::time::Instant;
use tonic::Status;

use crate::request::MountParameters;
use crate::state::place::{self, Place};
use crate::volumes::disk;
use crate::volumes::host_path::{self, Found};

const FOLDER_MODE: u32 = 0o750;
const FS_TYPE: &str = "ext4";

/// Where disks are mounted for the node.
pub(crate) fn global(root: &Path, name: &str) -> PathBuf {
    root.join("plugins/kubernetes.io/local-volume/mounts")
        .join(name)
}

/// Mounts the volume at its target; returns warnings for the user.
pub(crate) fn set_up(
    root: &Path,
    place: &Place,
    local: &Local,
    parameters: &MountParameters,
) -> Result<Vec<String>, Status> {
    let source = match checked(place, local)? {
        (path, Found::Folder) => path,
        (device, Found::BlockDevice) => {
            let global = global(root, &place.name);
            mount_disk(&device, &global, local, parameters)?;
            global
        }
        (_, Found::File | Found::Socket | Found::CharDevice | Found::Other) => {
            return Err(Status::failed_precondition(
                "only directory and block device are supported",
            ));
        }
    };
    if is_mounted(&place.target)? {
        bind(&source, place, parameters)?;
        return Ok(Vec::new());
    }
    let others = other_pods(root, place, &source)?;
    let mut warnings = Vec::new();
    if let Some(ownership) = &parameters.ownership {
        if others {
            warnings.extend(other_group(place, &source, ownership)?);
        } else if parameters.access == Access::ReadWrite {
            warnings.extend(own(place, &source, ownership)?);
        }
    }
    place.make_parents()?;
    place::make(&place.target, FOLDER_MODE)?;
    bind(&source, place, parameters)?;
    Ok(warnings)
}

fn bind(source: &Path, place: &Place, parameters: &MountParameters) -> Result<(), Status> {
    mount::bind(source, &place.target, parameters.access, Depth::Single)?;
    restrict(&place.target, &parameters.options)
}

/// Takes the volume from its target; a disk is unmounted when the last pod has let it go.
pub(crate) fn tear_down(root: &Path, place: &Place) -> Result<(), Status> {
    mount::unmount(&place.target)?;
    let global = global(root, &place.name);
    if is_mounted(&global)? && !other_pods(root, place, &global)? {
        mount::unmount(&global)?;
    }
    if !is_mounted(&global)? {
        mount::clean_up(&global)?;
    }
    // Last: as long as the folder is there, List tells of it, and this is done again.
    mount::clean_up(&place.target)
}

fn checked(place: &Place, local: &Local) -> Result<(PathBuf, Found), Status> {
    if local.path.is_empty() {
        return Err(Status::invalid_argument(format!(
            "LocalVolume volume {:?} path is empty",
            place.name
        )));
    }
    if local.path.split('/').any(|part| part == "..") {
        return Err(Status::invalid_argument(format!(
            "invalid path: {} must not contain '..'",
            local.path
        )));
    }
    let path = Path::new("/").join(&local.path);
    match host_path::probe(&path) {
        Ok(found) => Ok((path, found)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(Status::not_found(format!(
            "path {:?} does not exist",
            local.path
        ))),
        Err(error) => Err(failed(format!("stat {}", local.path), error)),
    }
}

fn mount_disk(
    device: &Path,
    global: &Path,
    local: &Local,
    parameters: &MountParameters,
) -> Result<(), Status> {
    if is_mounted(global)? {
        return Ok(());
    }
    place::make(global, FOLDER_MODE)?;
    let fs_type = match local.fs_type.as_str() {
        "" => FS_TYPE,
        fs_type => fs_type,
    };
    let mut options = parameters.options.clone();
    if parameters.access == Access::ReadOnly {
        options.push("ro".to_owned());
    }
    disk::format_and_mount(device, global, fs_type, &options).map_err(|status| {
        // The folder is empty: nothing was mounted on it.
        drop(mount::clean_up(global));
        Status::new(
            status.code(),
            format!(
                "local: failed to mount device {} at {} (fstype: {fs_type}), error {}",
                device.display(),
                global.display(),
                status.message()
            ),
        )
    })
}

fn is_mounted(path: &Path) -> Result<bool, Status> {
    match table::is_mount_point(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        result => result.map_err(|error| failed(format!("stat {}", path.display()), error)),
    }
}

/// Tells whether another pod has something of the same file system mounted that `source` shows.
fn other_pods(root: &Path, place: &Place, source: &Path) -> Result<bool, Status> {
    let what = |error| {
        failed(
            format!("cannot collect mounting information: {}", source.display()),
            error,
        )
    };
    let (source, pods) = (
        source.canonicalize().map_err(what)?,
        root.canonicalize().map_err(what)?.join("pods"),
    );
    let own = pods.join(&place.uid);
    let table = MountTable::read().map_err(what)?;
    let Some(holding) = table.holding(&source) else {
        return Ok(false);
    };
    let within = source
        .strip_prefix(&holding.mount_point)
        .unwrap_or(Path::new(""));
    let shown = holding.root.join(within);
    Ok(table.below(&pods).into_iter().any(|entry| {
        entry.device == holding.device
            && entry.root.starts_with(&shown)
            && !entry.mount_point.starts_with(&own)
    }))
}

/// Gives it to the group; says so when that took long.
fn own(place: &Place, source: &Path, ownership: &Ownership) -> Result<Option<String>, Status> {
    let begun = Instant::now();
    ownership::apply(source, ownership, false)?;
    let slow = begun.elapsed() > ownership::SLOW;
    Ok(slow.then(|| ownership::slow(&place.target, &place.uid)))
}

fn other_group(
    place: &Place,
    source: &Path,
    ownership: &Ownership,
) -> Result<Option<String>, Status> {
    let found = std::fs::metadata(source).map_err(|error| {
        failed(
            format!("failed to check fsGroup for {}", source.display()),
            error,
        )
    })?;
    Ok((found.gid() != ownership.fs_group).then(|| {
        format!(
            "The requested fsGroup is {}, but the volume {} has GID {}. The volume may not be shareable.",
            ownership.fs_group,
            place.name,
            found.gid()
        )
    }))
}

/// Applies the options that a bind can have. Others are the file system's, and a folder has none of its own.
fn restrict(target: &Path, options: &[String]) -> Result<(), Status> {
    let words = options.iter().flat_map(|option| option.split(','));
    let wanted = words
        .filter_map(flag)
        .fold(MountFlags::empty(), |all, one| all | one);
    if wanted.is_empty() {
        return Ok(());
    }
    let what = |error: io::Error| failed(format!("cannot remount {}", target.display()), error);
    let real = table::real(target).map_err(what)?;
    let table = MountTable::read().map_err(what)?;
    let has = table
        .at(&real)
        .map(|entry| entry.options.as_slice())
        .unwrap_or_default();
    let kept = has.iter().filter_map(|word| flag(word));
    let flags = kept.fold(wanted | MountFlags::BIND, |all, one| all | one);
    let top = open(
        target,
        OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::empty(),
    )
    .map_err(|error| what(error.into()))?;
    let path = format!("/proc/self/fd/{}", top.as_raw_fd());
    mount_remount(path, flags, c"").map_err(|error| what(error.into()))
}

fn flag(word: &str) -> Option<MountFlags> {
    Some(match word {
        "ro" => MountFlags::RDONLY,
        "nosuid" => MountFlags::NOSUID,
        "nodev" => MountFlags::NODEV,
        "noexec" => MountFlags::NOEXEC,
        "noatime" => MountFlags::NOATIME,
        "nodiratime" => MountFlags::NODIRATIME,
        "relatime" => MountFlags::RELATIME,
        "strictatime" => MountFlags::STRICTATIME,
        "nosymfollow" => MountFlags::NOSYMFOLLOW,
        _ => return None,
    })
}
