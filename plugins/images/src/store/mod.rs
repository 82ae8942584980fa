//! What is kept: images, their names, leases, layers and documents; each record a file, all of them known in memory.
//!
//! **Invariant:** an image's record is written after everything that it names, and removed before any of it.
//! **Invariant:** nothing is removed because it could not be read, and what a lease holds is never removed.

mod change;
mod collect;
mod ingest;
mod open;
mod record;
mod slots;

mod folders;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Semaphore;

pub use self::collect::Collected;
pub(crate) use self::folders::Folders;
pub(crate) use self::ingest::{Hold, LayerLocks};
pub(crate) use self::record::{ImageRecord, LayerRecord};
pub(crate) use self::slots::{Puller, Slot, Slots};

use crate::blocking;
use crate::digest::Digest;
use crate::disk::{Disk, DiskError, read};
use crate::documents::{DocumentError, ImageConfig};
use crate::limits::Limits;
use crate::reference::{InvalidReference, Reference};
use crate::registry::HostMemory;

/// Threads that work on records, the collection and archives at a time.
const THREADS: usize = 4;

/// The store; clones share it. One process at a time has a folder open.
#[derive(Clone, Debug)]
pub struct Store(Arc<Inner>);

/// What the parts of the store share.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) folders: Folders,
    pub(crate) disk: Disk,
    pub(crate) limits: Limits,
    /// Places for layers that are downloaded and unpacked.
    pub(crate) slots: Slots,
    /// What pulls know of hosts.
    pub(crate) hosts: Arc<HostMemory>,
    /// One worker a layer.
    pub(crate) layer_locks: LayerLocks,
    threads: Arc<Semaphore>,
    state: Mutex<State>,
    /// Held while records are changed: what is in memory follows what is on disk.
    writing: Mutex<()>,
    /// Held while the trash is emptied.
    emptying: Mutex<()>,
    /// Locked as long as the store is open.
    _lock: File,
}

#[derive(Debug, Default)]
struct State {
    images: BTreeMap<Digest, Arc<ImageRecord>>,
    /// May name images that are not whole; those are not shown.
    names: BTreeMap<String, Digest>,
    leases: BTreeMap<String, Digest>,
    layers: BTreeMap<Digest, LayerRecord>,
    /// What pulls and imports rely on before their images are on record, with the number of those.
    held: BTreeMap<Digest, usize>,
    damage: Vec<Damage>,
    /// Why nothing may be collected, by the file that it is about.
    suspended: BTreeMap<PathBuf, Suspension>,
}

/// Something that may be needed, and is not known to be there.
#[derive(Clone, Debug)]
struct Suspension {
    reason: String,
    /// The image that would end it by coming again.
    image: Option<Digest>,
}

/// Something in the store that was found unreadable or wrong when it was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Where it lies now: in `damaged/` if it was wrong, where it was if it couldn't be read.
    pub path: PathBuf,
    /// What is wrong.
    pub reason: String,
}

/// An image of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// The digest of its config: CRI's image id.
    pub id: Digest,
    /// The digest of its manifest.
    pub manifest: Digest,
    /// Its names with a tag, in order.
    pub tags: Vec<String>,
    /// Its names with the digest of the manifest or index that they were resolved to, in order.
    pub digests: Vec<String>,
    /// Bytes that its unpacked layers take on disk; layers that several images have are counted with each.
    pub bytes: u64,
    /// The user of its config, as it is written there.
    pub user: String,
    /// Whether it is kept without a name and may not be removed.
    pub pinned: bool,
}

/// Who needs an image: a durable record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Chosen by who took the lease: a container's id, say.
    pub owner: String,
    /// The image's id.
    pub image: Digest,
}

/// What the store takes on disk: layers and documents, each counted once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes, about.
    pub bytes: u64,
    /// Files, folders and the like.
    pub inodes: u64,
}

/// A store that cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has it open.
    #[error("the image store at {0:?} is in use by another process")]
    InUse(PathBuf),
    /// It was made by a later version.
    #[error("the image store at {path:?} has layout {found:?}, expected {expected:?}")]
    Layout {
        /// The file that tells the layout.
        path: PathBuf,
        /// What it holds.
        found: String,
        /// What this version writes.
        expected: &'static str,
    },
    /// The disk refused.
    #[error(transparent)]
    Disk(#[from] DiskError),
}

/// A call of the store that failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// No image has this name or id.
    #[error("no image {0:?} in the store")]
    NoSuchImage(String),
    /// The beginning of an id fits several images.
    #[error("{0:?} is the beginning of several image ids")]
    Ambiguous(String),
    /// The image is pinned.
    #[error("image {0} is pinned")]
    Pinned(Digest),
    /// The name is none.
    #[error(transparent)]
    Reference(#[from] InvalidReference),
    /// The disk refused.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// A document of the image is damaged.
    #[error("a document of image {image} is damaged")]
    Document {
        /// The image's id.
        image: Digest,
        /// What is wrong.
        source: DocumentError,
    },
    /// A thread could not be started, or panicked.
    #[error("no thread worked on the store")]
    Thread(#[source] std::io::Error),
}

impl StoreError {
    /// Tells whether the same call may succeed later without anybody's doing.
    pub fn transient(&self) -> bool {
        match self {
            Self::Disk(_) | Self::Thread(_) => true,
            Self::NoSuchImage(_)
            | Self::Ambiguous(_)
            | Self::Pinned(_)
            | Self::Reference(_)
            | Self::Document { .. } => false,
        }
    }
}

impl Store {
    /// Returns the parts that pulls, imports and mounts work with.
    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.0
    }

    /// Returns what was found damaged or unreadable when the store was opened.
    pub fn damage(&self) -> Vec<Damage> {
        self.0.state().damage.clone()
    }

    /// Returns the image with this name, id (with or without `sha256:`), or beginning of an id of 12 digits or more.
    pub fn image(&self, name_or_id: &str) -> Result<Image, StoreError> {
        self.0.image(name_or_id)
    }

    /// Returns all images that have a name or are pinned, by id.
    pub fn list(&self) -> Vec<Image> {
        let state = self.0.state();
        let named: BTreeSet<_> = state.names.values().collect();
        let shown = |image: &&Arc<ImageRecord>| image.pinned || named.contains(&image.id);
        let images = state.images.values().filter(shown);
        images.map(|image| state.show(image)).collect()
    }

    /// Returns all leases, by owner.
    pub fn leases(&self) -> Vec<Lease> {
        let state = self.0.state();
        let leases = state.leases.iter();
        let lease = |(owner, image): (&String, &Digest)| Lease {
            owner: owner.clone(),
            image: image.clone(),
        };
        leases.map(lease).collect()
    }

    /// Returns what the store takes on disk, without looking at the disk.
    pub fn usage(&self) -> Usage {
        let state = self.0.state();
        let mut usage = Usage::default();
        for layer in state.layers.values() {
            usage.bytes = usage.bytes.saturating_add(layer.bytes);
            usage.inodes = usage.inodes.saturating_add(layer.inodes);
        }
        usage
    }

    /// Returns the config of an image: what its containers start with.
    pub async fn config(&self, image: &Image) -> Result<ImageConfig, StoreError> {
        let id = image.id.clone();
        self.work(move |inner| inner.config(&id)).await
    }

    /// Does `work` on a thread.
    pub(crate) async fn work<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Inner) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let inner = self.0.clone();
        let permit = inner.threads.clone().acquire_owned().await;
        let permit = permit.expect("the semaphore is never closed");
        blocking::run(permit, move || work(&inner))
            .await
            .map_err(StoreError::Thread)?
    }
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the image with this name, id, or beginning of an id.
    pub(crate) fn image(&self, name_or_id: &str) -> Result<Image, StoreError> {
        let state = self.state();
        let id = state.resolve(name_or_id)?;
        Ok(state.show(&state.images[&id]))
    }

    /// Returns the image's record.
    pub(crate) fn record(&self, id: &Digest) -> Option<Arc<ImageRecord>> {
        self.state().images.get(id).cloned()
    }

    /// Returns the layer's record, if it is whole in the store.
    pub(crate) fn layer(&self, chain: &Digest) -> Option<LayerRecord> {
        self.state().layers.get(chain).cloned()
    }

    /// Reads a manifest, index or config; the digest is checked again.
    pub(crate) fn blob(&self, digest: &Digest) -> Result<Vec<u8>, DiskError> {
        let path = self.folders.blob(digest);
        let content = read(&path, self.limits.document_bytes)?;
        if Digest::of(&content) != *digest {
            let source = std::io::Error::other("its digest is another one");
            return Err(DiskError::new("use", &path, source));
        }
        Ok(content)
    }

    fn config(&self, id: &Digest) -> Result<ImageConfig, StoreError> {
        let content = self.blob(id)?;
        ImageConfig::parse(&content).map_err(|source| StoreError::Document {
            image: id.clone(),
            source,
        })
    }
}

impl State {
    /// Returns the id of the image with this name, id or beginning of an id.
    fn resolve(&self, name_or_id: &str) -> Result<Digest, StoreError> {
        let none = || StoreError::NoSuchImage(name_or_id.chars().take(300).collect());
        let hex = name_or_id.strip_prefix("sha256:").unwrap_or(name_or_id);
        let is_hex = hex.bytes().all(|byte| byte.is_ascii_hexdigit());
        if is_hex && (12..=64).contains(&hex.len()) {
            let mut found = self
                .images
                .values()
                .filter(|image| self.is_shown(image) && image.id.hex().starts_with(hex))
                .map(|image| &image.id);
            match (found.next(), found.next()) {
                (Some(id), None) => return Ok(id.clone()),
                (Some(_), Some(_)) => return Err(StoreError::Ambiguous(hex.to_owned())),
                (None, _) => {}
            }
        }
        let name = name_or_id.parse::<Reference>().map_err(|_| none())?;
        let id = self.names.get(&name.to_string());
        let whole = id.filter(|id| self.images.contains_key(*id));
        whole.cloned().ok_or_else(none)
    }

    /// Tells whether an image is there for who asks: others wait for their collection, or for the end of a lease.
    fn is_shown(&self, image: &ImageRecord) -> bool {
        image.pinned || self.names.values().any(|id| *id == image.id)
    }

    fn show(&self, record: &ImageRecord) -> Image {
        let names = self.names.iter().filter(|(_, id)| **id == record.id);
        let (digests, tags) = names
            .map(|(name, _)| name.clone())
            .partition(|name| name.contains('@'));
        let layers = record
            .chains
            .iter()
            .filter_map(|chain| self.layers.get(chain));
        Image {
            id: record.id.clone(),
            manifest: record.manifest.clone(),
            tags,
            digests,
            bytes: layers.fold(0, |sum: u64, layer| sum.saturating_add(layer.bytes)),
            user: record.user.clone(),
            pinned: record.pinned,
        }
    }
}

#[cfg(test)]
mod tests;
