//! A kubelet's folder of one test, with whatever is mounted in it: all gone at its end.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use mounts::mount::{How, unmount_with};
use mounts::table::{MountInfo, MountTable};

use crate::state::place::{Place, VOLUMES, folder};

pub(crate) struct Node {
    folder: tempfile::TempDir,
    loops: Vec<PathBuf>,
}

impl Node {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("pods")).unwrap();
        Self {
            folder,
            loops: Vec::new(),
        }
    }

    pub(crate) fn root(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn path(&self, relative: &str) -> PathBuf {
        self.folder.path().join(relative)
    }

    /// A new folder beside the pods.
    pub(crate) fn folder(&self, relative: &str) -> PathBuf {
        let path = self.path(relative);
        fs::create_dir_all(&path).unwrap();
        path
    }

    pub(crate) fn place(&self, uid: &str, kind: &str, name: &str) -> Place {
        self.place_in(VOLUMES, uid, kind, name)
    }

    pub(crate) fn place_in(&self, base: &str, uid: &str, kind: &str, name: &str) -> Place {
        let target = self.path(&format!("pods/{uid}/{base}/{}/{name}", folder(kind)));
        Place::new(self.root(), base, kind, target.to_str().unwrap()).unwrap()
    }

    /// A new disk of 16 MB, without a file system.
    pub(crate) fn disk(&mut self, name: &str) -> PathBuf {
        let image = self.path(name);
        fs::File::create(&image).unwrap().set_len(16 << 20).unwrap();
        let made = Command::new("losetup")
            .args(["--find", "--show"])
            .arg(&image)
            .output()
            .unwrap();
        assert!(made.status.success(), "{made:?}");
        let device = PathBuf::from(String::from_utf8(made.stdout).unwrap().trim());
        self.loops.push(device.clone());
        device
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let table = MountTable::read().unwrap();
        let below = table.below(self.folder.path()).into_iter().rev();
        let own = table.layers(self.folder.path());
        for entry in below.chain(own) {
            drop(unmount_with(&entry.mount_point, How::Detach));
        }
        for device in &self.loops {
            let freed = Command::new("losetup").arg("-d").arg(device).status();
            assert!(freed.is_ok_and(|status| status.success()) || std::thread::panicking());
        }
    }
}

/// What is mounted at a path, the topmost last.
pub(crate) fn mounted(path: &Path) -> Vec<MountInfo> {
    let table = MountTable::read().unwrap();
    table.layers(path).into_iter().cloned().collect()
}

/// Permissions, owner and group.
pub(crate) fn facts(path: &Path) -> (u32, u32, u32) {
    let found = fs::metadata(path).unwrap();
    (
        found.permissions().mode() & 0o7777,
        found.uid(),
        found.gid(),
    )
}
