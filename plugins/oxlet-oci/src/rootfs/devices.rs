//! Device nodes and links below `/dev`.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use oci_spec::runtime::{LinuxDevice, LinuxDeviceType};
use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, Uid, chownat, fstat, makedev, mknodat, openat, symlinkat,
    unlinkat,
};
use rustix::io::Errno;

use super::Root;
use super::mounting::{MountError, attach, copy};

/// What every container has (the OCI runtime specification, "Default Devices"): name, major, minor.
const DEFAULTS: [(&str, u32, u32); 6] = [
    ("null", 1, 3),
    ("zero", 1, 5),
    ("full", 1, 7),
    ("random", 1, 8),
    ("urandom", 1, 9),
    ("tty", 5, 0),
];
const DEFAULT_MODE: u32 = 0o666;

/// The links below `/dev`, as runc has them.
const LINKS: [(&str, &str); 4] = [
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
];

/// A device node to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Node {
    path: PathBuf,
    kind: FileType,
    number: u64,
    mode: u32,
    owner: (u32, u32),
}

/// Makes the devices of a spec and those that every container has; their permissions are exact if the umask is 0. In a
/// user namespace nobody may make nodes: the node's own are bound.
pub(crate) fn make(
    root: &Root,
    devices: &[LinuxDevice],
    has_own_users: bool,
) -> Result<(), MountError> {
    for node in nodes(devices)? {
        let failed = |doing: &str| MountError::failed(&node.path, doing.to_owned());
        let (folder, name) = root
            .make_parent(&node.path)
            .map_err(failed("make the device's folder"))?;
        if has_own_users {
            bind(&folder, &name, &node)?;
            continue;
        }
        let mode = Mode::from_raw_mode(node.mode);
        match mknodat(&folder, &name, node.kind, mode, node.number) {
            Ok(()) => {
                let (user, group) = node.owner;
                let (user, group) = (Uid::from_raw(user), Gid::from_raw(group));
                let flags = AtFlags::SYMLINK_NOFOLLOW;
                chownat(&folder, &name, Some(user), Some(group), flags)
                    .map_err(|error| failed("set the device's owner")(error.into()))?;
            }
            // What is there stays, as with runc.
            Err(Errno::EXIST) => {}
            Err(Errno::PERM) => bind(&folder, &name, &node)?,
            Err(error) => return Err(failed("make the device")(error.into())),
        }
    }
    Ok(())
}

/// Makes the links below `/dev`.
pub(crate) fn link(root: &Root) -> Result<(), MountError> {
    let failed = |doing: &str| MountError::failed(Path::new("/dev"), doing.to_owned());
    let folder = root
        .make_folder(Path::new("/dev"))
        .map_err(failed("find it"))?;
    match unlinkat(&folder, "ptmx", AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(error) => return Err(failed("remove ptmx of it")(error.into())),
    }
    let core = Path::new("/proc/kcore")
        .exists()
        .then_some(("core", "/proc/kcore"));
    let all = [("ptmx", "pts/ptmx")].into_iter().chain(LINKS).chain(core);
    for (name, target) in all {
        match symlinkat(target, &folder, name) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(failed(&format!("make link {name} in it"))(error.into())),
        }
    }
    Ok(())
}

fn nodes(devices: &[LinuxDevice]) -> Result<Vec<Node>, MountError> {
    let mut all: Vec<Node> = DEFAULTS
        .iter()
        .map(|(name, major, minor)| Node {
            path: Path::new("/dev").join(name),
            kind: FileType::CharacterDevice,
            number: makedev(*major, *minor),
            mode: DEFAULT_MODE,
            owner: (0, 0),
        })
        .collect();
    for device in devices {
        // Made by the link to devpts.
        if device.path() == Path::new("/dev/ptmx") {
            continue;
        }
        let node = node(device)?;
        all.retain(|one| one.path != node.path);
        all.push(node);
    }
    Ok(all)
}

fn node(device: &LinuxDevice) -> Result<Node, MountError> {
    let path = device.path().clone();
    let wrong = |what: &str| MountError::Refused(format!("device {}: {what}", path.display()));
    let kind = match device.typ() {
        LinuxDeviceType::C | LinuxDeviceType::U => FileType::CharacterDevice,
        LinuxDeviceType::B => FileType::BlockDevice,
        LinuxDeviceType::P => FileType::Fifo,
        LinuxDeviceType::A => return Err(wrong("its type is none of a device")),
    };
    let part = |number: i64| u32::try_from(number).map_err(|_| wrong("its number is negative"));
    let number = if kind == FileType::Fifo {
        0
    } else {
        makedev(part(device.major())?, part(device.minor())?)
    };
    Ok(Node {
        kind,
        number,
        mode: device.file_mode().unwrap_or(DEFAULT_MODE) & 0o7777,
        owner: (
            device.uid().unwrap_or_default(),
            device.gid().unwrap_or_default(),
        ),
        path,
    })
}

/// Binds the node's own device of this path, which must be that device.
fn bind(folder: &OwnedFd, name: &std::ffi::OsStr, node: &Node) -> Result<(), MountError> {
    let failed = |doing: &str| MountError::failed(&node.path, doing.to_owned());
    let source = copy(&node.path, false).map_err(failed("open the node's device"))?;
    let found = fstat(&source).map_err(|error| failed("look at it")(error.into()))?;
    if FileType::from_raw_mode(found.st_mode) != node.kind || found.st_rdev != node.number {
        let path = node.path.display();
        let text = format!("the node's {path} is another device than the container's");
        return Err(MountError::Refused(text));
    }
    let flags = OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let target = openat(folder, name, flags | OFlags::RDONLY, Mode::empty())
        .map_err(|error| failed("make its mount point")(error.into()))?;
    attach(source, target).map_err(failed("attach it"))
}

/// Whether this is `/dev/null`.
pub(crate) fn is_null(descriptor: &rustix::fs::Stat) -> bool {
    FileType::from_raw_mode(descriptor.st_mode) == FileType::CharacterDevice
        && descriptor.st_rdev == makedev(1, 3)
}

/// Opens the container's `/dev/null`, which must be the device.
pub(crate) fn open_null(root: &Root) -> io::Result<OwnedFd> {
    let path = root.open(Path::new("/dev/null"), OFlags::PATH | OFlags::NOFOLLOW)?;
    if !is_null(&fstat(&path)?) {
        return Err(io::Error::other(
            "/dev/null of the container is another file",
        ));
    }
    root.open(Path::new("/dev/null"), OFlags::RDWR | OFlags::NOCTTY)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn device(path: &str, kind: &str) -> LinuxDevice {
        let device = json!({ "path": path, "type": kind, "major": 8, "minor": 1, "fileMode": 432, "uid": 7 });
        serde_json::from_value(device).unwrap()
    }

    #[test]
    fn a_spec_may_have_another_device_in_the_place_of_a_default_one() {
        let made = nodes(&[device("/dev/null", "b"), device("/dev/ptmx", "c")]).unwrap();
        assert_eq!(made.len(), DEFAULTS.len());
        let null = made.last().unwrap();
        assert_eq!(
            (null.kind, null.number, null.mode, null.owner),
            (FileType::BlockDevice, makedev(8, 1), 0o660, (7, 0))
        );
        assert!(nodes(&[device("/dev/x", "a")]).is_err());
    }
}
