//! Images from archives and into them: what `docker save` and `ctr image export` write.

mod export;
mod index;
mod layout;
mod spool;

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use tokio::time::Instant;

pub use self::export::ExportError;
use self::index::{Index, Located};
use crate::blocking::{self, Stop};
use crate::digest::Digest;
use crate::documents::{DocumentError, ImageConfig, Platform};
use crate::layer::{self, Expected, LayerError, UnpackContext};
use crate::pull::{LayerErrorOrStore, LayerPlace, scratch};
use crate::reference::Reference;
use crate::store::{Hold, Image, ImageRecord, Puller, Store, StoreError};

/// An archive that is not imported; images before the failing one are.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// It can't be read.
    #[error("cannot read the archive {path:?}")]
    Read {
        /// The archive.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// It is no tar, or one with too much in it.
    #[error("the archive {path:?} is refused")]
    Tar {
        /// The archive.
        path: PathBuf,
        /// What is wrong.
        source: LayerError,
    },
    /// It lacks something that it names, or names nothing.
    #[error("the archive {path:?} is refused: {reason}")]
    Refused {
        /// The archive.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A document in it is not what it should be.
    #[error("{name:?} of the archive {path:?} is of no use")]
    Document {
        /// The archive.
        path: PathBuf,
        /// The document's name in it.
        name: String,
        /// What is wrong.
        source: DocumentError,
    },
    /// A layer in it can't be unpacked.
    #[error("layer {name:?} of the archive {path:?}")]
    Layer {
        /// The archive.
        path: PathBuf,
        /// The layer's name in it.
        name: String,
        /// Why not.
        source: LayerError,
    },
    /// The store refused.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// An image as an archive describes it, its documents read and checked.
struct Described {
    names: Vec<String>,
    index: Option<(Digest, Vec<u8>)>,
    manifest: (Digest, Vec<u8>),
    config: (Digest, Vec<u8>),
    parsed: ImageConfig,
    layers: Vec<ArchivedLayer>,
}

struct ArchivedLayer {
    name: String,
    located: Located,
    /// Digest and size of its packed bytes, where the archive tells them.
    packed: Option<(Digest, u64)>,
}

/// Where layers of archives come from, beside registries.
const ARCHIVES: &str = "";

/// What is taken from an archive.
#[derive(Clone, Debug)]
pub struct Import {
    /// The archive's name in errors.
    pub origin: PathBuf,
    /// The name of the one image of an archive, whatever name it has there.
    pub name: Option<Reference>,
    /// Which images are taken, where there is a choice.
    pub platform: Platform,
}

impl Store {
    /// Imports the images of an archive that is read from its beginning, packed by gzip or zstd or not at all. It needs
    /// its space on the disk twice while it lasts.
    pub async fn import_stream(
        &self,
        reader: impl Read + Send + 'static,
        import: Import,
    ) -> Result<Vec<Image>, ArchiveError> {
        let inner = self.inner().clone();
        let stop = Stop::new(Instant::now() + inner.limits.layer_time);
        let _guard = stop.guard();
        let described = blocking::run((), move || {
            let limits = &inner.limits;
            let file = spool::keep(&inner, reader, &import.origin, &stop)?;
            let index = Index::of(&import.origin, file, limits)?;
            let (name, platform) = (import.name.as_ref(), &import.platform);
            let described = layout::describe(&index, name, platform, limits)?;
            Ok::<_, ArchiveError>((Arc::new(index), described))
        });
        let described = described.await.map_err(StoreError::Thread)?;
        self.import_all(described?).await
    }

    /// Imports the images of an archive, those for `platform` where there is a choice, and returns them with the names
    /// that the archive gives; `name` is that of the one image of an archive without names.
    pub async fn import(
        &self,
        archive: &Path,
        name: Option<&Reference>,
        platform: &Platform,
    ) -> Result<Vec<Image>, ArchiveError> {
        let (path, platform, name) = (archive.to_owned(), platform.clone(), name.cloned());
        let limits = self.inner().limits.clone();
        let described = self.work(move |_| {
            let described = Index::read(&path, &limits).and_then(|index| {
                let described = layout::describe(&index, name.as_ref(), &platform, &limits)?;
                Ok((Arc::new(index), described))
            });
            Ok(described)
        });
        self.import_all(described.await??).await
    }

    async fn import_all(
        &self,
        (index, described): (Arc<Index>, Vec<Described>),
    ) -> Result<Vec<Image>, ArchiveError> {
        let mut images = Vec::with_capacity(described.len());
        for one in described {
            images.push(self.import_one(&index, one).await?);
        }
        Ok(images)
    }

    async fn import_one(
        &self,
        index: &Arc<Index>,
        image: Described,
    ) -> Result<Image, ArchiveError> {
        let chains = image.parsed.chain_ids();
        let mut needed = chains.clone();
        needed.extend([image.manifest.0.clone(), image.config.0.clone()]);
        needed.extend(image.index.iter().map(|(digest, _)| digest.clone()));
        let _hold = Hold::new(self.inner(), needed);
        let image_left = Arc::new(AtomicU64::new(self.inner().limits.image_bytes));
        let puller = self.inner().slots.puller(ARCHIVES);
        for (number, layer) in image.layers.iter().enumerate() {
            let place = LayerPlace {
                chain: chains[number].clone(),
                diff: image.parsed.diff_ids()[number].clone(),
                below: chains[..number].to_vec(),
            };
            self.import_layer(index, layer, place, (&puller, image_left.clone()))
                .await?;
        }
        let committed = self.work(move |inner| {
            let documents = image.index.iter().chain([&image.manifest, &image.config]);
            for (digest, content) in documents {
                inner.put_blob(digest, content)?;
            }
            let record = ImageRecord {
                id: image.config.0,
                manifest: image.manifest.0,
                index: image.index.map(|(digest, _)| digest),
                chains,
                user: image.parsed.defaults.user,
                pinned: false,
            };
            inner.commit(record, &image.names)
        });
        Ok(committed.await?)
    }

    async fn import_layer(
        &self,
        index: &Arc<Index>,
        layer: &ArchivedLayer,
        place: LayerPlace,
        (puller, image_left): (&Puller, Arc<AtomicU64>),
    ) -> Result<(), ArchiveError> {
        let inner = self.inner().clone();
        let _turn = inner.layer_locks.take(ARCHIVES, &place.chain).await;
        if inner.layer(&place.chain).is_some() {
            return Ok(());
        }
        let slot = inner.slots.take(puller).await;
        let stop = Stop::new(Instant::now() + inner.limits.layer_time);
        // Who imports may go away: then the layer is given up.
        let _guard = stop.guard();
        let expected = Expected {
            packed: layer.packed.clone(),
            diff: place.diff.clone(),
        };
        let section = index.section(layer.located);
        let unpacked = blocking::run(slot, move || {
            let scratch = scratch(&inner)?;
            let context = UnpackContext {
                scratch: scratch.path.clone(),
                disk: inner.disk.clone(),
                limits: inner.limits.clone(),
                image_left,
                stop,
            };
            let unpacked = layer::unpack(section, &expected, &context);
            let mut unpacked = unpacked.map_err(LayerErrorOrStore::Layer)?;
            inner.finish_layer(&mut unpacked, &context, place)
        });
        let unpacked = unpacked.await.map_err(StoreError::Thread)?;
        unpacked.map_err(|error| match error {
            LayerErrorOrStore::Store(error) => error.into(),
            LayerErrorOrStore::Layer(source) => ArchiveError::Layer {
                path: index.path().to_owned(),
                name: layer.name.clone(),
                source,
            },
        })
    }
}

#[cfg(test)]
mod tests;
