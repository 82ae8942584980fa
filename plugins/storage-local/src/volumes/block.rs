//! Raw disks of the node: a link in the pod's folder, and the device bound to a place of the plugin's own as upstream
//! has it (pkg/volume/util/volumepathhandler, 1.36).
//!
//! Upstream keeps a loop device on top so that the disk stays in use. Here the plugin's process holds the device
//! open; a loop device that a kubelet left is released.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use mounts::answer::failed;
use mounts::mount::{self, Depth};
use proto::storage::{Access, Local};
use rustix::fs::OFlags;
use tonic::Status;

use crate::command;
use crate::state::place::{self, Place};
use crate::volumes::host_path::{self, Found};

const FOLDER_MODE: u32 = 0o750;
const LOOPS: &str = "/sys/block";

/// Devices in use, by the pod's link.
#[derive(Debug, Default)]
pub(crate) struct Held {
    devices: Mutex<HashMap<PathBuf, File>>,
}

impl Held {
    fn keep_open(&self, target: &Path, device: File) {
        let mut devices = self.devices.lock().unwrap_or_else(PoisonError::into_inner);
        devices.insert(target.to_owned(), device);
    }

    fn release(&self, target: &Path) {
        let mut devices = self.devices.lock().unwrap_or_else(PoisonError::into_inner);
        devices.remove(target);
    }
}

/// Brings the device to the pod; answers what a container's device entry names.
pub(crate) fn map(
    root: &Path,
    place: &Place,
    local: &Local,
    held: &Held,
) -> Result<PathBuf, Status> {
    let device = Path::new("/").join(&local.path);
    let what = |error| failed(format!("stat {}", device.display()), error);
    if host_path::probe(&device).map_err(what)? != Found::BlockDevice {
        return Err(Status::failed_precondition(format!(
            "{} is not a block device",
            device.display()
        )));
    }
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
        .open(&device)
        .map_err(|error| failed(format!("open {}", device.display()), error))?;
    bind(root, place, &device)?;
    link(place, &device)?;
    held.keep_open(&place.target, opened);
    Ok(place.target.clone())
}

/// Takes the device from the pod.
pub(crate) fn unmap(root: &Path, place: &Place, held: &Held) -> Result<(), Status> {
    held.release(&place.target);
    let global = global(root, place);
    release_loop(&global)?;
    mount::clean_up(&global)?;
    if let Some(folder) = global.parent() {
        // Other pods may have theirs in it.
        drop(fs::remove_dir(folder));
    }
    match fs::symlink_metadata(&place.target) {
        Ok(found) if found.is_symlink() => gone(fs::remove_file(&place.target)),
        Ok(_) => Err(io::Error::other("it is no link")),
        Err(error) => gone(Err(error)),
    }
    .map_err(|error| failed(format!("cannot remove {}", place.target.display()), error))
}

/// `ROOT/plugins/kubernetes.io~local-volume/volumeDevices/NAME/UID`
fn global(root: &Path, place: &Place) -> PathBuf {
    root.join("plugins")
        .join(place::folder("local-volume"))
        .join(place::DEVICES)
        .join(&place.name)
        .join(&place.uid)
}

fn bind(root: &Path, place: &Place, device: &Path) -> Result<(), Status> {
    let global = global(root, place);
    if let Some(folder) = global.parent() {
        place::make(folder, FOLDER_MODE)?;
    }
    let made = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(FOLDER_MODE)
        .open(&global);
    match made {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(failed(
                format!("failed to open file {}", global.display()),
                error,
            ));
        }
        Ok(_) | Err(_) => {}
    }
    mount::bind(device, &global, Access::ReadWrite, Depth::Single)
}

fn link(place: &Place, device: &Path) -> Result<(), Status> {
    place.make_parents()?;
    let target = &place.target;
    let what = |error| failed(format!("symlink {}", target.display()), error);
    match fs::read_link(target) {
        Ok(to) if to == device => return Ok(()),
        // After a reboot the device may have another name.
        Ok(_) => fs::remove_file(target).map_err(what)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(what(error)),
    }
    symlink(device, target).map_err(what)
}

fn release_loop(global: &Path) -> Result<(), Status> {
    let Ok(devices) = fs::read_dir(LOOPS) else {
        return Ok(());
    };
    for device in devices.flatten() {
        let backing = device.path().join("loop/backing_file");
        let Ok(text) = fs::read_to_string(backing) else {
            continue;
        };
        let file = text.trim().trim_end_matches("(deleted)").trim();
        if Path::new(file) == global {
            let device = Path::new("/dev").join(device.file_name());
            command::run(
                "losetup".as_ref(),
                &[OsStr::new("-d"), device.as_os_str()],
                None,
            )?;
        }
    }
    Ok(())
}

fn gone(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use tonic::Code;

    use super::*;
    use crate::testing::{Node, mounted};

    const KIND: &str = "local-volume";

    fn local(path: &Path) -> Local {
        Local {
            path: path.to_str().unwrap().to_owned(),
            ..Local::default()
        }
    }

    /// Upstream's TestMapUnmap of local volumes.
    #[test]
    fn a_disk_is_linked_and_bound_and_held_until_it_is_unmapped() {
        let mut node = Node::new();
        let device = node.disk("image");
        let held = Held::default();
        let place = |uid| node.place_in(place::DEVICES, uid, KIND, "pv");
        let (first, second) = (place("u1"), place("u2"));
        let folder = node.path("plugins/kubernetes.io~local-volume/volumeDevices/pv");
        for _ in 0..2 {
            for place in [&first, &second] {
                let answered = map(node.root(), place, &local(&device), &held).unwrap();
                assert_eq!(answered, place.target);
                assert_eq!(fs::read_link(&place.target).unwrap(), device);
                assert_eq!(mounted(&folder.join(&place.uid)).len(), 1);
            }
        }
        assert_eq!(held.devices.lock().unwrap().len(), 2);
        for _ in 0..2 {
            unmap(node.root(), &first, &held).unwrap();
            assert!(!first.target.is_symlink() && !folder.join("u1").exists());
            assert!(second.target.is_symlink() && folder.join("u2").exists());
        }
        unmap(node.root(), &second, &held).unwrap();
        assert!(!folder.exists() && held.devices.lock().unwrap().is_empty());
    }

    #[test]
    fn what_is_no_disk_is_not_mapped() {
        let node = Node::new();
        let place = node.place_in(place::DEVICES, "u", KIND, "pv");
        let file = node.path("file");
        fs::write(&file, "").unwrap();
        for path in [file.as_path(), node.root(), Path::new("/dev/null")] {
            let refused = map(node.root(), &place, &local(path), &Held::default()).unwrap_err();
            assert_eq!(refused.code(), Code::FailedPrecondition);
            assert!(refused.message().ends_with("is not a block device"));
        }
        let missing = map(
            node.root(),
            &place,
            &local(Path::new("/no/disk")),
            &Held::default(),
        );
        assert_eq!(missing.unwrap_err().code(), Code::NotFound);
        assert!(!place.target.is_symlink());
    }

    #[test]
    fn a_link_to_an_older_name_of_the_disk_is_replaced() {
        let mut node = Node::new();
        let device = node.disk("image");
        let place = node.place_in(place::DEVICES, "u", KIND, "pv");
        place.make_parents().unwrap();
        symlink("/dev/gone", &place.target).unwrap();
        map(node.root(), &place, &local(&device), &Held::default()).unwrap();
        assert_eq!(fs::read_link(&place.target).unwrap(), device);
    }

    #[test]
    fn the_loop_device_that_a_kubelet_left_is_released() {
        let mut node = Node::new();
        let device = node.disk("image");
        let (place, held) = (
            node.place_in(place::DEVICES, "u", KIND, "pv"),
            Held::default(),
        );
        map(node.root(), &place, &local(&device), &held).unwrap();
        let global = global(node.root(), &place);
        let made = Command::new("losetup")
            .arg("-f")
            .arg(&global)
            .status()
            .unwrap();
        assert!(made.success());
        let backed = || {
            let devices = fs::read_dir(LOOPS).unwrap().flatten();
            let files = devices.filter_map(|device| {
                fs::read_to_string(device.path().join("loop/backing_file")).ok()
            });
            files
                .filter(|file| Path::new(file.trim()) == global)
                .count()
        };
        assert_eq!(backed(), 1);
        unmap(node.root(), &place, &held).unwrap();
        assert_eq!(backed(), 0);
        assert!(!global.exists());
    }
}
