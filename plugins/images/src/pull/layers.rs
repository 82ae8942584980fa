//! The layers of a pull: several abreast, each unpacked while it comes, placed from the lowest to the topmost.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use futures_util::StreamExt;
use futures_util::stream;
use tokio::sync::{OwnedMutexGuard, mpsc};
use tokio::task::JoinSet;

use super::stream::Pieces;
use super::{LayerErrorOrStore, Progress, PullError};
use crate::blocking::{self, Stop};
use crate::digest::Digest;
use crate::disk::DiskError;
use crate::layer::{self, Expected, LayerError, UnpackContext, Unpacked};
use crate::reference::Reference;
use crate::registry::{self, Registry, RegistryError};
use crate::store::{Inner, LayerRecord, Puller, Slot, Store, StoreError};

/// Pieces on their way between the network and the unpacking.
const PIECES: usize = 4;

/// Where a layer comes from.
#[derive(Clone, Debug)]
pub(super) struct Source {
    /// Of its packed bytes.
    pub(crate) digest: Digest,
    pub(crate) size: u64,
    /// The digest of its tar.
    pub(crate) diff: Digest,
}

/// All layers of an image, from the lowest.
#[derive(Clone)]
pub(super) struct Layers {
    pub(crate) store: Store,
    pub(crate) reference: Reference,
    pub(crate) registry: Arc<Registry>,
    pub(crate) chains: Vec<Digest>,
    pub(crate) sources: Vec<Source>,
    pub(crate) progress: Arc<Progress>,
    pub(crate) puller: Puller,
    pub(crate) stop: Stop,
}

/// A layer that is unpacked and not yet placed. Its turn lasts until it is, or is given up.
struct Made {
    _turn: OwnedMutexGuard<()>,
    _scratch: Scratch,
    context: UnpackContext,
    unpacked: Unpacked,
}

/// The folder of a layer in the making; what is left of it goes to the trash.
pub(crate) struct Scratch {
    inner: Arc<Inner>,
    pub(crate) path: PathBuf,
}

/// Makes the scratch folder of a layer.
pub(crate) fn scratch(inner: &Arc<Inner>) -> Result<Scratch, DiskError> {
    let path = inner.folders.fresh(&inner.folders.scratch());
    inner.disk.create_folder(&path)?;
    Ok(Scratch {
        inner: inner.clone(),
        path,
    })
}

impl Drop for Scratch {
    fn drop(&mut self) {
        self.inner.give_up(&self.path);
    }
}

impl Layers {
    /// Fetches and places what the store hasn't.
    pub(crate) async fn fetch_all(&self) -> Result<(), PullError> {
        let image_left = Arc::new(AtomicU64::new(self.store.inner().limits.image_bytes));
        let abreast = self.store.inner().limits.layers_abreast.max(1);
        let fetches = (0..self.chains.len()).map(|number| {
            let (layers, left) = (self.clone(), image_left.clone());
            async move {
                // On a task of its own, so that it goes on while a lower one is placed; it ends with the set.
                let mut task = JoinSet::new();
                task.spawn(async move { layers.fetch(number, left).await });
                task.join_next().await
            }
        });
        let mut fetched = stream::iter(fetches).buffered(abreast).enumerate();
        while let Some((number, made)) = fetched.next().await {
            let made = match made {
                Some(Ok(made)) => made?,
                _ => return Err(self.panicked()),
            };
            if let Some(made) = made {
                self.place(number, made).await?;
            }
        }
        Ok(())
    }

    /// Fetches a layer, unless the store has it when its turn comes.
    async fn fetch(
        &self,
        number: usize,
        image_left: Arc<AtomicU64>,
    ) -> Result<Option<Made>, PullError> {
        let inner = self.store.inner();
        let registry = self.reference.registry();
        let chain = &self.chains[number];
        let turn = inner.layer_locks.take(registry, chain).await;
        if inner.layer(&self.chains[number]).is_some() {
            return Ok(None);
        }
        let slot = Arc::new(inner.slots.take(&self.puller).await);
        self.progress.expect(self.sources[number].size);
        let mut last = None;
        let mut earlier = Vec::new();
        for source in self.registry.sources() {
            let scratch = scratch(inner).map_err(|error| self.failed(number, error.into()))?;
            let context = UnpackContext {
                scratch: scratch.path.clone(),
                disk: inner.disk.clone(),
                limits: inner.limits.clone(),
                image_left: image_left.clone(),
                stop: self.stop.clone(),
            };
            match self.fetch_from(source, number, &context, &slot).await {
                Ok(unpacked) => {
                    return Ok(Some(Made {
                        _turn: turn,
                        _scratch: scratch,
                        context,
                        unpacked,
                    }));
                }
                // The disk refuses what comes from another host as well.
                Err(error @ (PullError::Store { .. } | PullError::Deadline { .. })) => {
                    return Err(error);
                }
                Err(
                    error @ PullError::Layer {
                        source: LayerError::Disk(_) | LayerError::Stopped(_),
                        ..
                    },
                ) => return Err(error),
                Err(error) => {
                    earlier.extend(last.as_ref().and_then(summary));
                    last = Some(error);
                }
            }
        }
        Err(match last {
            Some(PullError::Registry { reference, source }) => PullError::Registry {
                reference,
                source: Box::new(source.after(earlier)),
            },
            Some(other) => other,
            None => self.panicked(),
        })
    }

    async fn fetch_from(
        &self,
        source: registry::Source,
        number: usize,
        context: &UnpackContext,
        slot: &Arc<Slot>,
    ) -> Result<Unpacked, PullError> {
        let layer = &self.sources[number];
        let expected = Expected {
            packed: Some((layer.digest.clone(), layer.size)),
            diff: layer.diff.clone(),
        };
        let (sender, receiver) = mpsc::channel(PIECES);
        let reader = Pieces::new(receiver, self.progress.clone());
        let (context, slot) = (context.clone(), slot.clone());
        let unpacking = blocking::run(slot, move || layer::unpack(reader, &expected, &context));
        let streaming = async {
            let streamed = self
                .registry
                .stream(source, (&layer.digest, layer.size), &sender)
                .await;
            drop(sender);
            streamed
        };
        let (streamed, unpacked) = tokio::join!(streaming, unpacking);
        let unpacked = unpacked.map_err(|error| self.store_failed(StoreError::Thread(error)))?;
        match (streamed, unpacked) {
            (Ok(()), Ok(unpacked)) => Ok(unpacked),
            // The reader ended early because the download did.
            (Err(error), Err(LayerError::Read(_)) | Ok(_)) => Err(self.not_served(error)),
            (_, Err(error)) => Err(self.failed(number, LayerErrorOrStore::Layer(error))),
        }
    }

    async fn place(&self, number: usize, mut made: Made) -> Result<(), PullError> {
        let (chain, below) = (self.chains[number].clone(), self.chains[..number].to_vec());
        let diff = self.sources[number].diff.clone();
        let placed = self.store.work(move |inner| {
            let place = LayerPlace { chain, diff, below };
            let placed = inner.finish_layer(&mut made.unpacked, &made.context, place);
            drop(made);
            Ok(placed)
        });
        let placed = placed.await.map_err(|error| self.store_failed(error))?;
        placed.map_err(|error| self.failed(number, error))
    }

    fn failed(&self, number: usize, error: LayerErrorOrStore) -> PullError {
        match error {
            LayerErrorOrStore::Layer(source) => PullError::Layer {
                reference: Box::new(self.reference.clone()),
                layer: self.sources[number].digest.clone(),
                source,
            },
            LayerErrorOrStore::Store(error) => self.store_failed(error),
        }
    }

    fn store_failed(&self, source: StoreError) -> PullError {
        PullError::Store {
            reference: Box::new(self.reference.clone()),
            source,
        }
    }

    fn not_served(&self, source: RegistryError) -> PullError {
        PullError::Registry {
            reference: Box::new(self.reference.clone()),
            source: Box::new(source),
        }
    }

    fn panicked(&self) -> PullError {
        let error =
            std::io::Error::other("a task that fetched a layer panicked, or no host serves layers");
        self.store_failed(StoreError::Thread(error))
    }
}

/// Returns what a host said that did not serve a layer.
fn summary(error: &PullError) -> Option<String> {
    match error {
        PullError::Registry { source, .. } => Some(source.summary()),
        PullError::Layer { source, .. } => Some(format!("an earlier host ({source})")),
        PullError::Document { .. } | PullError::Deadline { .. } | PullError::Store { .. } => None,
    }
}

/// Where a layer belongs.
pub(crate) struct LayerPlace {
    pub(crate) chain: Digest,
    pub(crate) diff: Digest,
    /// The chain ids below it, from the lowest; all of them are placed.
    pub(crate) below: Vec<Digest>,
}

impl Inner {
    /// Does what depends on the layers below, and gives the layer its place.
    pub(crate) fn finish_layer(
        &self,
        unpacked: &mut Unpacked,
        context: &UnpackContext,
        place: LayerPlace,
    ) -> Result<(), LayerErrorOrStore> {
        let below = self
            .lower_folders(&place.below)
            .map_err(LayerErrorOrStore::Store)?;
        unpacked
            .finish(context, &below)
            .map_err(LayerErrorOrStore::Layer)?;
        let record = LayerRecord::new(place.chain, place.diff, unpacked);
        Ok(self.place_layer(&context.scratch, record)?)
    }
}
