//! The file system below a container's writable layer.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::statvfs;

/// A container's file system.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Disk {
    /// The device's name, such as `/dev/vda`.
    pub(super) device: String,
    pub(super) limit_bytes: Option<u64>,
    pub(super) inodes: Option<u64>,
    pub(super) free_inodes: Option<u64>,
}

impl Disk {
    /// Looks at the one of the container that has this folder. Blocks.
    pub(super) fn of_container(folder: &Path) -> Disk {
        let Ok(whole) = statvfs(folder) else {
            return Disk::default();
        };
        let device = fs::metadata(folder).map(|found| found.dev());
        Disk {
            device: device.map(device_name).unwrap_or_default(),
            limit_bytes: Some(whole.f_blocks.saturating_mul(whole.f_frsize)),
            inodes: Some(whole.f_files),
            free_inodes: Some(whole.f_ffree),
        }
    }
}

/// Returns the name of a device by its number, as the kernel tells it; its number where it has none.
pub(super) fn device_name(number: u64) -> String {
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    named(major, minor).unwrap_or_else(|| format!("{major}:{minor}"))
}

pub(super) fn named(major: u32, minor: u32) -> Option<String> {
    let text = fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/uevent")).ok()?;
    let name = text
        .lines()
        .find_map(|line| line.strip_prefix("DEVNAME="))?;
    Some(format!("/dev/{name}"))
}
