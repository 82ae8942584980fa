//! Where the store keeps what.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::digest::Digest;
use crate::disk::{Disk, DiskError};

/// The paths below the store's root.
#[derive(Debug)]
pub(crate) struct Folders {
    root: PathBuf,
    next: AtomicU64,
}

impl Folders {
    pub(super) fn new(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            next: AtomicU64::new(0),
        }
    }

    pub(super) fn create(&self, disk: &Disk) -> Result<(), DiskError> {
        let blobs = self.root.join("blobs");
        let folders = [
            self.root.clone(),
            blobs.clone(),
            blobs.join("sha256"),
            self.layers(),
            self.images(),
            self.names(),
            self.leases(),
            self.scratch(),
            self.trash(),
            self.damaged(),
            self.empty(),
        ];
        folders
            .iter()
            .try_for_each(|folder| disk.create_folder(folder))?;
        // Images have setuid programs that are no business of the machine's users.
        let private = fs::set_permissions(&self.root, fs::Permissions::from_mode(0o700));
        private.map_err(|error| DiskError::new("close to others", &self.root, error))
    }

    pub(super) fn lock(&self) -> PathBuf {
        self.root.join("lock")
    }

    /// Manifests, indexes and configs by digest.
    pub(super) fn blobs(&self) -> PathBuf {
        self.root.join("blobs/sha256")
    }

    pub(crate) fn blob(&self, digest: &Digest) -> PathBuf {
        self.blobs().join(digest.hex())
    }

    /// Unpacked layers by chain id: `files`, and the record `layer`.
    pub(crate) fn layers(&self) -> PathBuf {
        self.root.join("layers")
    }

    pub(crate) fn layer(&self, chain: &Digest) -> PathBuf {
        self.layers().join(chain.hex())
    }

    pub(crate) fn files(&self, chain: &Digest) -> PathBuf {
        self.layer(chain).join("files")
    }

    pub(super) fn images(&self) -> PathBuf {
        self.root.join("images")
    }

    pub(super) fn image(&self, id: &Digest) -> PathBuf {
        self.images().join(id.hex())
    }

    pub(super) fn names(&self) -> PathBuf {
        self.root.join("names")
    }

    pub(super) fn name(&self, name: &str) -> PathBuf {
        self.names().join(Digest::of(name.as_bytes()).hex())
    }

    pub(super) fn leases(&self) -> PathBuf {
        self.root.join("leases")
    }

    pub(super) fn lease(&self, owner: &str) -> PathBuf {
        self.leases().join(Digest::of(owner.as_bytes()).hex())
    }

    /// What is being made; nothing in it outlives a restart.
    pub(crate) fn scratch(&self) -> PathBuf {
        self.root.join("scratch")
    }

    /// What is no longer needed.
    pub(super) fn trash(&self) -> PathBuf {
        self.root.join("trash")
    }

    /// An empty folder: overlayfs without an upper folder wants two layers.
    pub(crate) fn empty(&self) -> PathBuf {
        self.root.join("empty")
    }

    /// What was found damaged, for a person to look at.
    pub(super) fn damaged(&self) -> PathBuf {
        self.root.join("damaged")
    }

    /// Returns a path in `folder` that this process never gave before.
    pub(crate) fn fresh(&self, folder: &Path) -> PathBuf {
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let path = folder.join(number.to_string());
            if !path.exists() {
                return path;
            }
        }
    }
}
