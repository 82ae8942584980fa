//! Garbage collection: what no name, pin, lease or running pull needs is removed.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::sync::PoisonError;

use super::record::LayerRecord;
use super::{Inner, State, Store, StoreError};
use crate::digest::Digest;
use crate::disk::DiskError;

/// What a collection did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// Images removed.
    pub images: u64,
    /// Layers removed.
    pub layers: u64,
    /// Bytes of those layers, about.
    pub bytes: u64,
    /// Why nothing but leftovers was removed: something that may be needed can't be read, or was found damaged. It
    /// stays so until its owner takes or ends its lease, the image comes again, or an operator has removed it from
    /// `damaged/` and the store is opened again.
    pub suspended: Option<String>,
}

/// What nothing needs any more, and isn't known to the store from here on.
#[derive(Default)]
struct Garbage {
    images: Vec<Digest>,
    layers: Vec<LayerRecord>,
    /// Documents that are needed.
    blobs: BTreeSet<Digest>,
}

impl Store {
    /// Removes images without name, pin and lease, then the layers and documents that no image has, then leftovers.
    pub async fn collect(&self) -> Result<Collected, StoreError> {
        self.work(|inner| {
            let collected = inner.collect()?;
            inner.empty_trash()?;
            Ok(collected)
        })
        .await
    }
}

impl Inner {
    fn collect(&self) -> Result<Collected, DiskError> {
        let _writing = self.writing();
        let mut state = self.state();
        if let Some(suspension) = state.suspended.values().next() {
            return Ok(Collected {
                suspended: Some(suspension.reason.clone()),
                ..Collected::default()
            });
        }
        let garbage = state.garbage();
        // Under one lock: who holds something from here on finds that it isn't there.
        state.forget(&garbage);
        drop(state);
        let mut collected = Collected::default();
        for id in &garbage.images {
            self.disk.remove(&self.folders.image(id))?;
            collected.images += 1;
        }
        // No record may come back after a crash and find its layers gone.
        self.disk.sync_folder(&self.folders.images())?;
        for layer in garbage.layers {
            let away = self.folders.fresh(&self.folders.trash());
            self.disk.rename(&self.folders.layer(&layer.chain), &away)?;
            collected.layers += 1;
            collected.bytes = collected.bytes.saturating_add(layer.bytes);
        }
        self.remove_blobs(&garbage.blobs)?;
        Ok(collected)
    }

    fn remove_blobs(&self, needed: &BTreeSet<Digest>) -> Result<(), DiskError> {
        let folder = self.folders.blobs();
        let list = || fs::read_dir(&folder)?.collect::<io::Result<Vec<_>>>();
        let entries = list().map_err(|error| DiskError::new("list", &folder, error))?;
        for entry in entries {
            let digest = Digest::from_hex(&entry.file_name().to_string_lossy());
            if digest.is_ok_and(|digest| !needed.contains(&digest)) {
                self.disk.remove(&entry.path())?;
            }
        }
        Ok(())
    }

    fn empty_trash(&self) -> Result<(), DiskError> {
        let _emptying = self.emptying.lock().unwrap_or_else(PoisonError::into_inner);
        let trash = self.folders.trash();
        let mut kept = Ok(());
        let list = fs::read_dir(&trash).and_then(|entries| entries.collect::<io::Result<Vec<_>>>());
        for entry in list.map_err(|error| DiskError::new("list", &trash, error))? {
            let path = entry.path();
            // What can't be removed stays alone: the rest is not kept by it.
            if let Err(error) = files::remove_tree(&path) {
                kept = Err(DiskError::new("remove", &path, error));
            }
        }
        self.disk.sync_folder(&trash)?;
        kept
    }
}

impl State {
    fn forget(&mut self, garbage: &Garbage) {
        for id in &garbage.images {
            self.images.remove(id);
        }
        for layer in &garbage.layers {
            self.layers.remove(&layer.chain);
        }
    }

    fn garbage(&self) -> Garbage {
        let roots: BTreeSet<_> = self.names.values().chain(self.leases.values()).collect();
        let mut garbage = Garbage::default();
        let mut needed: BTreeSet<&Digest> = self.held.keys().collect();
        for image in self.images.values() {
            if image.pinned || roots.contains(&image.id) {
                needed.extend(image.blobs().chain(&image.chains));
            } else {
                garbage.images.push(image.id.clone());
            }
        }
        let layers = self.layers.values();
        garbage.layers = layers
            .filter(|layer| !needed.contains(&layer.chain))
            .cloned()
            .collect();
        garbage.blobs = needed.into_iter().cloned().collect();
        garbage
    }
}
