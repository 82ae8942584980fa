//! An image pulled: resolved at its registry, its documents and layers fetched, and at last put on record.
//!
//! A pull always asks the registry for the manifest, also where the image is there: CRI lets a pod use a private image
//! only if its credentials are good for it. What the store has is not fetched again.

mod layers;
mod stream;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http_proxy::ProxyEnvironment;
use tokio::time::Instant;

pub(crate) use self::layers::{LayerPlace, scratch};
use self::layers::{Layers, Source};

use crate::blocking::Stop;
use crate::digest::Digest;
use crate::disk::DiskError;
use crate::documents::{
    Descriptor, Document, DocumentError, ImageConfig, Manifest, Platform, Search,
};
use crate::layer::LayerError;
use crate::reference::Reference;
use crate::registry::{Auth, Registry, RegistryError, Surroundings};
use crate::store::{Hold, Image, ImageRecord, Store, StoreError};

/// A pull as it is asked for.
#[derive(Clone, Debug)]
pub struct Pull {
    /// What.
    pub reference: Reference,
    /// Whose credentials; they go to the registry of the reference and its token service alone.
    pub auth: Auth,
    /// The folder of `hosts.toml` files by registry, such as `/etc/containerd/certs.d`.
    pub certs: Option<PathBuf>,
    /// The proxies between this node and registries.
    pub proxies: Arc<ProxyEnvironment>,
    /// For what machine.
    pub platform: Platform,
    /// Counts along.
    pub progress: Arc<Progress>,
    /// When it ends in any case, and gives its place to others.
    pub deadline: Instant,
}

/// How far a pull is, in packed bytes of layers.
#[derive(Debug, Default)]
pub struct Progress {
    done: AtomicU64,
    total: AtomicU64,
}

impl Progress {
    /// Returns the bytes that came, of layers that were to be fetched.
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// Returns the bytes of all layers that are to be fetched; 0 until that is known.
    pub fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    pub(crate) fn add(&self, bytes: u64) {
        self.done.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn expect(&self, bytes: u64) {
        self.total.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// A pull that failed; what it had fetched whole stays until the next collection, so that another one goes on.
#[derive(Debug, thiserror::Error)]
pub enum PullError {
    /// The registry did not serve something.
    #[error("cannot pull {reference}")]
    Registry {
        /// What was pulled.
        reference: Box<Reference>,
        /// What the registry did not do.
        source: Box<RegistryError>,
    },
    /// A document is not what it should be.
    #[error("cannot pull {reference}")]
    Document {
        /// What was pulled.
        reference: Box<Reference>,
        /// What is wrong with it.
        source: DocumentError,
    },
    /// A layer can't be unpacked.
    #[error("cannot pull {reference}: layer {layer}")]
    Layer {
        /// What was pulled.
        reference: Box<Reference>,
        /// The digest of the layer's packed bytes.
        layer: Digest,
        /// Why not.
        source: LayerError,
    },
    /// It took too long.
    #[error("cannot pull {reference}: not done by its deadline")]
    Deadline {
        /// What was pulled.
        reference: Box<Reference>,
    },
    /// The store refused.
    #[error("cannot pull {reference}")]
    Store {
        /// What was pulled.
        reference: Box<Reference>,
        /// Why.
        source: StoreError,
    },
}

impl PullError {
    /// Tells whether the same pull may succeed later without anybody's doing.
    pub fn transient(&self) -> bool {
        match self {
            Self::Registry { source, .. } => source.transient(),
            Self::Store { source, .. } => source.transient(),
            Self::Deadline { .. } => true,
            Self::Layer { source, .. } => {
                matches!(source, LayerError::Disk(_) | LayerError::Stopped(_))
            }
            Self::Document { .. } => false,
        }
    }
}

impl Store {
    /// Pulls an image and returns it; it has the reference's name, and that with the digest that was resolved.
    pub async fn pull(&self, pull: Pull) -> Result<Image, PullError> {
        let pulling = Pulling {
            store: self,
            pull: &pull,
        };
        match tokio::time::timeout_at(pull.deadline, pulling.run()).await {
            Ok(result) => result,
            Err(_) => Err(PullError::Deadline {
                reference: Box::new(pull.reference.clone()),
            }),
        }
    }
}

struct Pulling<'a> {
    store: &'a Store,
    pull: &'a Pull,
}

/// The documents of an image, fetched and checked.
struct Resolved {
    /// What the reference stands for: the manifest, or the index that has it.
    top: Digest,
    index: Option<Vec<u8>>,
    manifest_digest: Digest,
    manifest_content: Vec<u8>,
    manifest: Manifest,
    config_content: Vec<u8>,
    config: ImageConfig,
}

impl Pulling<'_> {
    async fn run(&self) -> Result<Image, PullError> {
        let inner = self.store.inner();
        let reference = &self.pull.reference;
        let surroundings = Surroundings {
            certs: self.pull.certs.as_deref(),
            limits: &inner.limits,
            memory: inner.hosts.clone(),
            proxies: self.pull.proxies.clone(),
        };
        let registry = Registry::new(reference, self.pull.auth.clone(), surroundings);
        let registry = Arc::new(registry.map_err(|source| self.registry(source))?);
        let resolved = self.resolve(&registry).await?;
        let config_digest = &resolved.manifest.config.digest;
        let chains = resolved.config.chain_ids();
        let mut needed = chains.clone();
        needed.extend([
            resolved.top.clone(),
            resolved.manifest_digest.clone(),
            config_digest.clone(),
        ]);
        let _hold = Hold::new(inner, needed);
        // Threads that unpack end when this future does, at its deadline or before.
        let stop = Stop::new(self.pull.deadline);
        let _guard = stop.guard();
        self.layers(&registry, &resolved, stop).fetch_all().await?;
        self.commit(resolved, chains).await
    }

    async fn resolve(&self, registry: &Registry) -> Result<Resolved, PullError> {
        let (top, content) = registry
            .manifest(None)
            .await
            .map_err(|source| self.registry(source))?;
        let list = match self.parse(&content)? {
            Document::Index(list) => list,
            Document::Manifest(manifest) => {
                let (config_content, config) = self.read_config(registry, &manifest).await?;
                config
                    .suits(&self.pull.platform)
                    .map_err(|source| self.document(source))?;
                return Ok(Resolved {
                    top: top.clone(),
                    index: None,
                    manifest_digest: top,
                    manifest_content: content,
                    manifest,
                    config_content,
                    config,
                });
            }
        };
        let mut search = Search::new(&self.pull.platform, top.clone(), list);
        loop {
            let candidate = search.next().map_err(|source| self.document(source))?;
            let expected = (&candidate.descriptor.digest, candidate.descriptor.size);
            let (manifest_digest, below) = registry
                .manifest(Some(expected))
                .await
                .map_err(|source| self.registry(source))?;
            let Some(manifest) = search.open(&candidate, self.parse(&below)?) else {
                continue;
            };
            let (config_content, config) = self.read_config(registry, &manifest).await?;
            if !search.accepts(&candidate, &config, &self.pull.reference.to_string()) {
                continue;
            }
            return Ok(Resolved {
                top,
                index: Some(content),
                manifest_digest,
                manifest_content: below,
                manifest,
                config_content,
                config,
            });
        }
    }

    /// Returns the config of a manifest, whose layers are as many as the manifest's.
    async fn read_config(
        &self,
        registry: &Registry,
        manifest: &Manifest,
    ) -> Result<(Vec<u8>, ImageConfig), PullError> {
        let content = self.config(registry, &manifest.config).await?;
        let limit = self.store.inner().limits.layers;
        let config = ImageConfig::parse(&content)
            .and_then(|config| config.check(manifest.layers.len(), limit).map(|()| config))
            .map_err(|source| self.document(source))?;
        Ok((content, config))
    }

    /// Returns an image's config: from the store, if it has it.
    async fn config(&self, registry: &Registry, wanted: &Descriptor) -> Result<Vec<u8>, PullError> {
        let digest = wanted.digest.clone();
        let kept = self.store.work(move |inner| Ok(inner.blob(&digest)?)).await;
        match kept {
            Ok(content) => Ok(content),
            Err(_) => registry
                .config(&wanted.digest, wanted.size)
                .await
                .map_err(|source| self.registry(source)),
        }
    }

    fn parse(&self, content: &[u8]) -> Result<Document, PullError> {
        Document::parse(content).map_err(|source| self.document(source))
    }

    fn layers(&self, registry: &Arc<Registry>, resolved: &Resolved, stop: Stop) -> Layers {
        let layers = &resolved.manifest.layers;
        Layers {
            store: self.store.clone(),
            reference: self.pull.reference.clone(),
            registry: registry.clone(),
            chains: resolved.config.chain_ids(),
            sources: layers
                .iter()
                .zip(resolved.config.diff_ids())
                .map(|(layer, diff)| Source {
                    digest: layer.digest.clone(),
                    size: layer.size,
                    diff: diff.clone(),
                })
                .collect(),
            progress: self.pull.progress.clone(),
            puller: self
                .store
                .inner()
                .slots
                .puller(self.pull.reference.registry()),
            stop,
        }
    }

    async fn commit(&self, resolved: Resolved, chains: Vec<Digest>) -> Result<Image, PullError> {
        let reference = &self.pull.reference;
        let names = vec![
            reference.to_string(),
            reference.with_digest(resolved.top.clone()).to_string(),
        ];
        let committed = self.store.work(move |inner| {
            let id = resolved.manifest.config.digest;
            if let Some(index) = &resolved.index {
                inner.put_blob(&resolved.top, index)?;
            }
            inner.put_blob(&resolved.manifest_digest, &resolved.manifest_content)?;
            inner.put_blob(&id, &resolved.config_content)?;
            let record = ImageRecord {
                id,
                manifest: resolved.manifest_digest,
                index: resolved.index.map(|_| resolved.top),
                chains,
                user: resolved.config.defaults.user,
                pinned: false,
            };
            inner.commit(record, &names)
        });
        committed.await.map_err(|source| PullError::Store {
            reference: Box::new(reference.clone()),
            source,
        })
    }

    fn registry(&self, source: RegistryError) -> PullError {
        PullError::Registry {
            reference: Box::new(self.pull.reference.clone()),
            source: Box::new(source),
        }
    }

    fn document(&self, source: DocumentError) -> PullError {
        PullError::Document {
            reference: Box::new(self.pull.reference.clone()),
            source,
        }
    }
}

impl From<DiskError> for LayerErrorOrStore {
    fn from(error: DiskError) -> Self {
        Self::Store(error.into())
    }
}

/// What can go wrong with one layer, before the pull is named.
#[derive(Debug)]
pub(crate) enum LayerErrorOrStore {
    Layer(LayerError),
    Store(StoreError),
}

#[cfg(test)]
mod tests;
