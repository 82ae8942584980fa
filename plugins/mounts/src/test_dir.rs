//! A folder of one test, with whatever is mounted in it: both are gone at its end.

use std::path::{Path, PathBuf};

use crate::mount::{How, unmount_with};
use crate::table::MountTable;

pub(crate) struct TestDir {
    folder: tempfile::TempDir,
}

impl TestDir {
    pub(crate) fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    /// A path in it, whose folders exist.
    pub(crate) fn path(&self, relative: &str) -> PathBuf {
        let path = self.folder.path().join(relative);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        path
    }

    /// A new folder in it.
    pub(crate) fn folder(&self, relative: &str) -> PathBuf {
        let path = self.path(relative);
        std::fs::create_dir_all(&path).unwrap();
        path
    }

    /// A new file in it.
    pub(crate) fn file(&self, relative: &str, content: &str) -> PathBuf {
        let path = self.path(relative);
        std::fs::write(&path, content).unwrap();
        path
    }

    /// A new folder with a small tmpfs on it.
    pub(crate) fn tmpfs(&self, relative: &str) -> PathBuf {
        let path = self.folder(relative);
        crate::mount::file_system("tmpfs", &path, "tmpfs", &["size=4m".to_owned()]).unwrap();
        path
    }

    pub(crate) fn root(&self) -> &Path {
        self.folder.path()
    }
}

impl Drop for TestDir {
    fn drop(&mut self) {
        let table = MountTable::read().unwrap();
        for entry in table.below(self.folder.path()).into_iter().rev() {
            drop(unmount_with(&entry.mount_point, How::Detach));
        }
    }
}

/// Returns the number of mounts at exactly this path.
pub(crate) fn layers(path: &Path) -> usize {
    MountTable::read().unwrap().layers(path).len()
}

/// Exchanges two things in one step, so that both names are there all the time.
pub(crate) fn exchange(one: &Path, other: &Path) {
    let (here, how) = (rustix::fs::CWD, rustix::fs::RenameFlags::EXCHANGE);
    rustix::fs::renameat_with(here, one, here, other, how).unwrap();
}
