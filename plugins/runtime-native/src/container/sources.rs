//! What the mounts of a configuration stand for on the node.
//!
//! The kernel's table of mounts has some ten lines for each pod of the node. It is read only for a container with a mount
//! that asks how the node's own mount spreads, so that a container's start costs the same on a full node.

use std::cell::OnceCell;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use proto::cri::{Mount, MountPropagation};

use crate::error::CallError;
use crate::spec::{HostPropagation, MountSource};

const MOUNTINFO: &str = "/proc/self/mountinfo";

/// `/proc/self/mountinfo`, read when it is first asked for.
#[derive(Debug, Default)]
pub(crate) struct Mountinfo(OnceCell<String>);

impl Mountinfo {
    fn text(&self) -> Result<&str, CallError> {
        if let Some(text) = self.0.get() {
            return Ok(text);
        }
        let text = fs::read_to_string(MOUNTINFO).map_err(CallError::file("read", MOUNTINFO))?;
        Ok(self.0.get_or_init(|| text))
    }
}

/// Returns the source of a mount of the node's files. A folder that is missing is made, as containerd makes it.
pub(crate) fn of_node(mount: &Mount, mountinfo: &Mountinfo) -> Result<MountSource, CallError> {
    let asked = Path::new(&mount.host_path);
    if !asked.is_absolute() {
        return Err(CallError::Invalid {
            field: "mount.host_path",
            found: mount.host_path.clone(),
            expected: "an absolute path",
        });
    }
    let found = match fs::canonicalize(asked) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            fs::create_dir_all(asked).map_err(CallError::file("make", asked))?;
            fs::canonicalize(asked)
        }
        found => found,
    };
    let found = found.map_err(CallError::file("find", asked))?;
    let path = found
        .to_str()
        .ok_or_else(|| CallError::Invalid {
            field: "mount.host_path",
            found: found.to_string_lossy().into_owned(),
            expected: "UTF-8",
        })?
        .to_owned();
    let propagation = match mount.propagation() {
        MountPropagation::PropagationPrivate => HostPropagation::Private,
        MountPropagation::PropagationHostToContainer
        | MountPropagation::PropagationBidirectional => propagation(&found, mountinfo.text()?),
    };
    Ok(MountSource {
        path,
        propagation,
        kept: Vec::new(),
    })
}

/// Returns how the mount that a path lies on spreads; `mountinfo` is `/proc/self/mountinfo`.
fn propagation(path: &Path, mountinfo: &str) -> HostPropagation {
    // Of several mounts over one another the last one is seen.
    let mut best: (usize, HostPropagation) = (0, HostPropagation::Private);
    for line in mountinfo.lines() {
        let fields: Vec<_> = line.split(' ').collect();
        let [_, _, _, _, point, _, rest @ ..] = fields.as_slice() else {
            continue;
        };
        let point = unescaped(point);
        let point = Path::new(std::ffi::OsStr::from_bytes(&point));
        let length = point.as_os_str().len();
        if path.starts_with(point) && length >= best.0 {
            best = (length, spread(rest));
        }
    }
    best.1
}

/// The optional fields of a line, up to its dash.
fn spread(fields: &[&str]) -> HostPropagation {
    let mut optional = fields.iter().take_while(|field| **field != "-");
    let mut found = HostPropagation::Private;
    for field in &mut optional {
        if field.starts_with("shared:") {
            return HostPropagation::Shared;
        }
        if field.starts_with("master:") {
            found = HostPropagation::Slave;
        }
    }
    found
}

/// Mount points have white space and backslashes as three octal digits.
fn unescaped(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let digits = bytes.get(at + 1..at + 4).filter(|_| *byte == b'\\');
        let octal = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        match octal.and_then(|octal| u8::from_str_radix(octal, 8).ok()) {
            Some(escaped) => {
                out.push(escaped);
                at += 4;
            }
            None => {
                out.push(*byte);
                at += 1;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
1 0 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
2 1 0:5 / /mnt/a\\040b rw shared:2 master:1 - tmpfs t rw
3 1 0:6 / /slave rw master:3 - tmpfs t rw
4 1 0:7 / /private rw - tmpfs t rw
5 4 0:8 / /private/over rw shared:9 - tmpfs t rw
6 4 0:9 / /private/over rw - tmpfs t rw
";

    #[test]
    fn the_table_is_read_for_a_mount_that_spreads_alone() {
        let (read, mut mount) = (Mountinfo::default(), Mount::default());
        mount.host_path = "/proc".to_owned();
        assert_eq!(of_node(&mount, &read).unwrap().path, "/proc");
        assert!(read.0.get().is_none());
        mount.set_propagation(MountPropagation::PropagationHostToContainer);
        of_node(&mount, &read).unwrap();
        assert!(read.0.get().is_some_and(|text| text.contains(" /proc ")));
    }

    #[test]
    fn the_nearest_and_last_mount_of_a_path_says_how_it_spreads() {
        for (path, expected) in [
            ("/etc", HostPropagation::Shared),
            ("/mnt/a b/c", HostPropagation::Shared),
            ("/slave/x", HostPropagation::Slave),
            ("/private", HostPropagation::Private),
            ("/privately", HostPropagation::Shared),
            ("/private/over/x", HostPropagation::Private),
        ] {
            assert_eq!(propagation(Path::new(path), TABLE), expected, "{path}");
        }
    }
}
