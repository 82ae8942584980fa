//! Device nodes of the machine that containers are given.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use proto::cri::Device;

use crate::error::CallError;
use crate::spec::DeviceNode;

/// Folders and files of `/dev` that are no devices of the machine, but a container's own.
const NOT_SHARED: [&str; 8] = [
    "pts",
    "shm",
    "fd",
    "mqueue",
    ".lxc",
    ".lxd-mounts",
    ".udev",
    "console",
];
/// Devices of one container.
const MAX_DEVICES: usize = 4096;
/// How deep folders of devices are searched: the node's own /dev has two or three levels.
const MAX_DEVICE_DEPTH: usize = 8;

/// Returns the nodes that a configuration asks for; a folder means all devices in it.
pub(crate) fn asked(devices: &[Device]) -> Result<Vec<DeviceNode>, CallError> {
    let mut nodes = Vec::new();
    for device in devices {
        if let Some(wrong) = device
            .permissions
            .chars()
            .find(|letter| !"rwm".contains(*letter))
        {
            return Err(CallError::Invalid {
                field: "device.permissions",
                found: wrong.to_string(),
                expected: "letters of rwm",
            });
        }
        let host = Path::new(&device.host_path);
        let found = fs::canonicalize(host).map_err(CallError::file("find device", host))?;
        let permissions = match device.permissions.as_str() {
            "" => "rwm",
            named => named,
        };
        let before = nodes.len();
        collect(&found, &device.container_path, permissions, 0, &mut nodes)?;
        if nodes.len() == before {
            let none = io::Error::other("neither a device nor a folder with devices");
            return Err(CallError::file("use device", host)(none));
        }
    }
    Ok(nodes)
}

/// A device of a container in a user namespace is the node's own node, mounted: an OCI runtime has but one name for both.
pub(crate) fn check_names(devices: &[Device]) -> Result<(), CallError> {
    let same = |device: &Device| device.host_path == device.container_path;
    match devices.iter().all(same) {
        true => Ok(()),
        false => Err(CallError::Unsupported(
            "devices by another name, in a user namespace, are",
        )),
    }
}

/// Returns every device of the machine, for privileged containers.
pub(crate) fn all() -> Result<Vec<DeviceNode>, CallError> {
    let mut nodes = Vec::new();
    collect(Path::new("/dev"), "/dev", "rwm", 0, &mut nodes)?;
    Ok(nodes)
}

fn collect(
    host: &Path,
    inside: &str,
    permissions: &str,
    depth: usize,
    nodes: &mut Vec<DeviceNode>,
) -> Result<(), CallError> {
    let meta = match fs::symlink_metadata(host) {
        Ok(meta) => meta,
        // Devices come and go.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(CallError::file("look at device", host)(error)),
    };
    if meta.is_dir() && depth < MAX_DEVICE_DEPTH {
        let entries = fs::read_dir(host).map_err(CallError::file("read", host))?;
        for entry in entries.flatten() {
            let name = entry.file_name();
            let Some(name) = name.to_str() else { continue };
            if !NOT_SHARED.contains(&name) {
                let inside = format!("{inside}/{name}");
                collect(&entry.path(), &inside, permissions, depth + 1, nodes)?;
            }
        }
        return Ok(());
    }
    let kind = match meta.file_type() {
        kind if kind.is_char_device() => 'c',
        kind if kind.is_block_device() => 'b',
        _ => return Ok(()),
    };
    if nodes.len() >= MAX_DEVICES {
        return Err(CallError::Invalid {
            field: "devices",
            found: format!("more than {MAX_DEVICES}"),
            expected: "fewer",
        });
    }
    nodes.push(DeviceNode {
        path: inside.to_owned(),
        kind,
        major: rustix::fs::major(meta.rdev()),
        minor: rustix::fs::minor(meta.rdev()),
        mode: meta.mode() & 0o777,
        uid: meta.uid(),
        gid: meta.gid(),
        permissions: permissions.to_owned(),
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(host_path: &str, permissions: &str) -> Device {
        Device {
            container_path: "/dev/x".to_owned(),
            host_path: host_path.to_owned(),
            permissions: permissions.to_owned(),
        }
    }

    #[test]
    fn a_device_has_its_number_and_what_may_be_done_with_it() {
        let nodes = asked(&[device("/dev/null", "r")]).unwrap();
        let [node] = &nodes[..] else {
            panic!("{nodes:?}")
        };
        assert_eq!((node.kind, node.major, node.minor), ('c', 1, 3));
        assert_eq!(
            (node.path.as_str(), node.permissions.as_str()),
            ("/dev/x", "r")
        );
    }

    #[test]
    fn what_is_no_device_is_refused() {
        for (path, permissions) in [
            ("/etc/passwd", ""),
            ("/no/such/device", ""),
            ("/dev/null", "x"),
        ] {
            assert!(asked(&[device(path, permissions)]).is_err(), "{path}");
        }
    }

    #[test]
    fn a_privileged_container_gets_the_nodes_devices_and_no_terminals() {
        let nodes = all().unwrap();
        assert!(nodes.iter().any(|node| node.path == "/dev/null"));
        assert!(!nodes.iter().any(|node| node.path.starts_with("/dev/pts")));
    }
}
