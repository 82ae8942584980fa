//! How new content gets its place: documents, layers, and at last the image's record and names.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

use super::record::{ImageRecord, LayerRecord, encode};
use super::{Image, Inner, StoreError};
use crate::digest::Digest;
use crate::disk::DiskError;

/// One worker for a layer of a registry: the others wait, and find it in the store. A registry that is slow to serve what
/// it says to be a layer of many images keeps nobody waiting who has it from another one.
#[derive(Debug, Default)]
pub(crate) struct LayerLocks(Mutex<LayerTurns>);

type LayerTurns = HashMap<(String, Digest), Weak<AsyncMutex<()>>>;

impl LayerLocks {
    /// Waits for the turn at `chain` of `registry`.
    pub(crate) async fn take(&self, registry: &str, chain: &Digest) -> OwnedMutexGuard<()> {
        let turn = {
            let mut turns = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            turns.retain(|_, turn| turn.strong_count() > 0);
            let key = (registry.to_owned(), chain.clone());
            let known = turns.get(&key).and_then(Weak::upgrade);
            known.unwrap_or_else(|| {
                let turn = Arc::default();
                turns.insert(key, Arc::downgrade(&turn));
                turn
            })
        };
        turn.lock_owned().await
    }
}

/// Content that is not collected as long as this lives.
#[derive(Debug)]
pub(crate) struct Hold {
    inner: Arc<Inner>,
    digests: Vec<Digest>,
}

impl Hold {
    /// Holds documents and layers, there or to come: ask for them after this.
    pub(crate) fn new(inner: &Arc<Inner>, digests: Vec<Digest>) -> Self {
        let mut state = inner.state();
        for digest in &digests {
            *state.held.entry(digest.clone()).or_default() += 1;
        }
        drop(state);
        Self {
            inner: inner.clone(),
            digests,
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut state = self.inner.state();
        for digest in &self.digests {
            if let Some(count) = state.held.get_mut(digest) {
                *count -= 1;
                if *count == 0 {
                    state.held.remove(digest);
                }
            }
        }
    }
}

impl Inner {
    /// Keeps a document whose digest was checked. It must be held.
    pub(crate) fn put_blob(&self, digest: &Digest, content: &[u8]) -> Result<(), DiskError> {
        debug_assert_eq!(Digest::of(content), *digest);
        let _writing = self.writing();
        if self.blob(digest).is_ok() {
            return Ok(());
        }
        self.put_bytes(&self.folders.blob(digest), content)
    }

    /// Gives the unpacked layer in the scratch folder `made` its place: its files are below `files`. It must be held.
    pub(crate) fn place_layer(&self, made: &Path, record: LayerRecord) -> Result<(), DiskError> {
        let replaced = self.folders.fresh(&self.folders.trash());
        self.disk.rename(&made.join("replaced"), &replaced)?;
        self.disk.write(&made.join("layer"), &encode(&record))?;
        self.disk.sync_below(made)?;
        let _writing = self.writing();
        if self.layer(&record.chain).is_some() {
            return Ok(());
        }
        let place = self.folders.layer(&record.chain);
        if place.exists() && self.state().suspended.is_empty() {
            // The leftover of a collection that the disk broke off.
            let away = self.folders.fresh(&self.folders.trash());
            self.disk.rename(&place, &away)?;
        }
        self.disk.rename(made, &place)?;
        self.state().layers.insert(record.chain.clone(), record);
        Ok(())
    }

    /// Takes what is left of a layer in the making out of the way; one that was placed is no longer there.
    pub(crate) fn give_up(&self, made: &Path) {
        if made.exists() {
            let away = self.folders.fresh(&self.folders.trash());
            if let Err(error) = self.disk.rename(made, &away) {
                tracing::warn!(path = ?made, %error, "a leftover stays until the store is opened again");
            }
        }
    }

    /// Puts an image on record, whose layers and documents are in the store, and then gives it its names.
    pub(crate) fn commit(
        &self,
        mut image: ImageRecord,
        names: &[String],
    ) -> Result<Image, StoreError> {
        let _writing = self.writing();
        let known = self.record(&image.id);
        image.pinned = known.as_ref().is_some_and(|known| known.pinned);
        let id = image.id.clone();
        if known.is_none_or(|known| *known != image) {
            self.put_image(image)?;
        }
        for name in names {
            self.put_name(name, &id)?;
        }
        self.shown(&id)
    }
}
