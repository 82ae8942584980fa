//! Where everything lies in the plugin's folder.
//!
//! ```text
//! images/                    the image store
//! sandboxes/ID/record.json   a sandbox, with ns/{net,ipc,uts}, shm/, hosts, hostname, resolv.conf beside it
//! containers/ID/record.json  a container, with bundle/config.json and its root beside it
//! m/ID20/                    the monitor of a sandbox; a short name, because a socket's path has 107 bytes
//! oci/HANDLER/               the state of an OCI runtime
//! damaged/                   records that could not be read
//! ```
//!
//! What containers in user namespaces are made of is mounted elsewhere (`staging`), a folder a container and a sandbox.
//!
//! All of it is root's alone (0700): no process of a container reaches the store or another container by a path.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The part of a sandbox's id that names its monitor's folder.
const SHORT: usize = 20;

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
        for folder in ["sandboxes", "containers", "m", "oci", "damaged"] {
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
        let short = sandbox.get(..SHORT).unwrap_or(sandbox);
        self.root.join("m").join(short)
    }

    pub(crate) fn oci(&self, handler: &str) -> PathBuf {
        self.root.join("oci").join(handler)
    }
}

/// Makes a folder for root alone, or takes it from everybody else. Fails as `mkdir` and `chmod` fail.
pub(crate) fn private_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o700))
}
