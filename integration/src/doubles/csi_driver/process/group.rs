//! The group of a volume's files, for a driver that sets it itself.

use std::fs;
use std::os::unix::fs::{PermissionsExt, lchown};
use std::path::Path;

use anyhow::{Context, Result};
use proto::csi::VolumeCapability;
use proto::csi::volume_capability::AccessType;

use super::record::DriverVolume;

/// Readable and writable for the group, and inherited by what is made later.
const SHARED: u32 = 0o2770;

/// Gives the volume's files to the group that the capability names.
pub(super) fn apply(data: &DriverVolume, capability: Option<&VolumeCapability>) -> Result<()> {
    let wanted = capability.and_then(|capability| capability.access_type.as_ref());
    let Some(AccessType::Mount(mount)) = wanted else {
        return Ok(());
    };
    let DriverVolume::Folder(folder) = data else {
        return Ok(());
    };
    if mount.volume_mount_group.is_empty() {
        return Ok(());
    }
    let group = mount
        .volume_mount_group
        .parse()
        .context("volume_mount_group")?;
    give(folder, group)
}

fn give(path: &Path, group: u32) -> Result<()> {
    lchown(path, None, Some(group)).with_context(|| path.display().to_string())?;
    if !path.is_dir() || path.is_symlink() {
        return Ok(());
    }
    let mode = fs::metadata(path)?.permissions().mode() | SHARED;
    fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    for entry in fs::read_dir(path)? {
        give(&entry?.path(), group)?;
    }
    Ok(())
}
