//! Where everything lies in the plugin's folder.
//!
//! ```text
//! images/                    the image store
//! sandboxes/ID/record.json   a sandbox, with ns/{net,ipc,uts}, shm/, hosts, hostname, resolv.conf beside it
//! containers/ID/record.json  a container, with bundle/config.json and its root beside it
//! m/ID20/                    the monitor of a sandbox; a short name, because a socket's path has 107 bytes
//! oci/HANDLER/               the state of an OCI runtime
//! damaged/                   records that could not be read, the latest of them
//! removing/                  trees of what is gone, which are removed in the background
//! ```
//!
//! What containers in user namespaces are made of is mounted elsewhere (`staging`), a folder a container and a sandbox.
//!
//! All of it is root's alone (0700): no process of a container reaches the store or another container by a path.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

/// The part of a sandbox's id that names its monitor's folder.
const SHORT: usize = 20;
/// A container's OCI document in its bundle.
pub(crate) const BUNDLE_FILE: &str = "config.json";
/// The longest OCI document, in bytes: a request of CRI is no longer than gRPC's messages.
pub(crate) const MAX_SPEC_BYTES: u64 = 32 << 20;
/// How many trees of one name are removed at a time: a container is checkpointed again while the parts of its last
/// checkpoint are being removed.
const MAX_SAME_NAMES: usize = 1000;

/// The folders of one plugin. Clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    root: PathBuf,
    stages: PathBuf,
}

impl Layout {
    /// Makes the folders, as far as they are missing; `stages` is where containers in user namespaces are set up. Fails
    /// as `mkdir` and `chmod` fail.
    pub(crate) fn make(root: &Path, stages: &Path) -> io::Result<Layout> {
        let layout = Layout {
            root: root.to_owned(),
            stages: stages.to_owned(),
        };
        // Other plugins may share it.
        DirBuilder::new()
            .recursive(true)
            .mode(0o711)
            .create(stages)?;
        private_dir(root)?;
        for folder in ["sandboxes", "containers", "m", "oci", "damaged", "removing"] {
            private_dir(&root.join(folder))?;
        }
        Ok(layout)
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn images(&self) -> PathBuf {
        self.root.join("images")
    }

    pub(crate) fn sandboxes(&self) -> PathBuf {
        self.root.join("sandboxes")
    }

    pub(crate) fn containers(&self) -> PathBuf {
        self.root.join("containers")
    }

    pub(crate) fn damaged(&self) -> PathBuf {
        self.root.join("damaged")
    }

    pub(crate) fn monitors(&self) -> PathBuf {
        self.root.join("m")
    }

    pub(crate) fn removing(&self) -> PathBuf {
        self.root.join("removing")
    }

    /// Moves a tree to where trees are removed, durably: to its owner it is gone then, however long its removal takes.
    /// Returns its new path; `None` if there is no such tree. It holds no mounts.
    ///
    /// # Errors
    /// Those of `rename` and `fsync`.
    pub(crate) fn discard(&self, tree: &Path, name: &str) -> io::Result<Option<PathBuf>> {
        let removing = self.removing();
        for number in 0..MAX_SAME_NAMES {
            let to = removing.join(format!("{name}.{number}"));
            match renameat_with(CWD, tree, CWD, &to, RenameFlags::NOREPLACE) {
                Ok(()) => {
                    if let Some(parent) = tree.parent() {
                        File::open(parent)?.sync_all()?;
                    }
                    File::open(&removing)?.sync_all()?;
                    return Ok(Some(to));
                }
                Err(Errno::NOENT) => return Ok(None),
                Err(Errno::EXIST | Errno::NOTEMPTY) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let why = format!("{MAX_SAME_NAMES} trees of its name are being removed");
        Err(io::Error::other(why))
    }

    pub(crate) fn sandbox(&self, id: &str) -> PathBuf {
        self.sandboxes().join(id)
    }

    pub(crate) fn container(&self, id: &str) -> PathBuf {
        self.containers().join(id)
    }

    pub(crate) fn bundle(&self, container: &str) -> PathBuf {
        self.container(container).join("bundle")
    }

    /// Where a container or a sandbox in a user namespace is set up.
    pub(crate) fn stage(&self, id: &str) -> PathBuf {
        self.stages.join(id)
    }

    pub(crate) fn stages(&self) -> &Path {
        &self.stages
    }

    pub(crate) fn monitor(&self, sandbox: &str) -> PathBuf {
        self.monitors().join(short(sandbox))
    }

    /// The `--root` folder of each handler's OCI runtime, which holds one folder per container.
    pub(crate) fn oci_states(&self) -> Vec<PathBuf> {
        let handlers = fs::read_dir(self.root.join("oci")).into_iter().flatten();
        handlers.flatten().map(|handler| handler.path()).collect()
    }

    pub(crate) fn oci(&self, handler: &str) -> PathBuf {
        self.root.join("oci").join(handler)
    }
}

/// The name of a sandbox's monitor's folder.
pub(crate) fn short(sandbox: &str) -> &str {
    sandbox.get(..SHORT).unwrap_or(sandbox)
}

/// Makes a folder for root alone, or takes it from everybody else. Fails as `mkdir` and `chmod` fail.
pub(crate) fn private_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o700))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_discarded_tree_is_gone_from_its_place_and_one_of_its_name_may_follow() {
        let home = tempfile::tempdir().unwrap();
        let layout = Layout::make(&home.path().join("root"), &home.path().join("stages")).unwrap();
        let tree = layout.container("c");
        for number in 0..2 {
            fs::create_dir_all(tree.join("upper")).unwrap();
            let to = layout.discard(&tree, "c").unwrap().unwrap();
            assert_eq!(to, layout.removing().join(format!("c.{number}")));
            assert!(!tree.exists() && to.join("upper").exists());
        }
        assert_eq!(layout.discard(&tree, "c").unwrap(), None);
    }
}
