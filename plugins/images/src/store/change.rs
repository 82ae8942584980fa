//! What is changed on request: names, pins, leases. Each change is one record, replaced or removed as a whole.

use std::path::Path;
use std::sync::{Arc, PoisonError};

use serde::Serialize;

use super::record::{ImageRecord, LeaseRecord, NameRecord, encode};
use super::{Image, Inner, Store, StoreError};
use crate::digest::Digest;
use crate::disk::DiskError;
use crate::reference::Reference;

impl Store {
    /// Gives the image with this name or id the further name `name`, which another image loses if it had it.
    pub async fn tag(&self, name_or_id: &str, name: &Reference) -> Result<Image, StoreError> {
        let (wanted, name) = (name_or_id.to_owned(), name.to_string());
        self.work(move |inner| {
            let _writing = inner.writing();
            let id = inner.state().resolve(&wanted)?;
            inner.put_name(&name, &id)?;
            inner.shown(&id)
        })
        .await
    }

    /// Takes one name away; a name that isn't there is right.
    pub async fn untag(&self, name: &Reference) -> Result<(), StoreError> {
        let name = name.to_string();
        self.work(move |inner| {
            let _writing = inner.writing();
            Ok(inner.remove_name(&name)?)
        })
        .await
    }

    /// Takes all names of an image away: it is gone for [`Store::image`] and [`Store::list`], and its space is free
    /// after the next [`Store::collect`] that finds no lease of it.
    pub async fn remove(&self, name_or_id: &str) -> Result<(), StoreError> {
        let wanted = name_or_id.to_owned();
        self.work(move |inner| {
            let _writing = inner.writing();
            let id = inner.state().resolve(&wanted)?;
            let image = inner.shown(&id)?;
            if image.pinned {
                return Err(StoreError::Pinned(id));
            }
            for name in image.tags.iter().chain(&image.digests) {
                inner.remove_name(name)?;
            }
            Ok(())
        })
        .await
    }

    /// Pins an image, or unpins it: a pinned one is kept without a name, and not removed.
    pub async fn pin(&self, name_or_id: &str, pinned: bool) -> Result<(), StoreError> {
        let wanted = name_or_id.to_owned();
        self.work(move |inner| {
            let _writing = inner.writing();
            let id = inner.state().resolve(&wanted)?;
            let record = inner.record(&id).ok_or(StoreError::NoSuchImage(wanted))?;
            inner.put_image(ImageRecord {
                pinned,
                ..(*record).clone()
            })?;
            Ok(())
        })
        .await
    }

    /// Keeps an image for `owner`, through restarts, until [`Store::unlease`]; an owner has one image, the last one.
    pub async fn lease(&self, owner: &str, image: &Digest) -> Result<(), StoreError> {
        let (owner, image) = (owner.to_owned(), image.clone());
        self.work(move |inner| {
            let _writing = inner.writing();
            if inner.record(&image).is_none() {
                return Err(StoreError::NoSuchImage(image.to_string()));
            }
            let record = LeaseRecord { owner, image };
            inner.put(&inner.folders.lease(&record.owner), &record)?;
            inner.forget_damaged_lease(&record.owner)?;
            inner.state().leases.insert(record.owner, record.image);
            Ok(())
        })
        .await
    }

    /// Ends what `owner` has leased; an owner without a lease is right.
    pub async fn unlease(&self, owner: &str) -> Result<(), StoreError> {
        let owner = owner.to_owned();
        self.work(move |inner| {
            let _writing = inner.writing();
            inner.take(&inner.folders.lease(&owner))?;
            inner.forget_damaged_lease(&owner)?;
            inner.state().leases.remove(&owner);
            Ok(())
        })
        .await
    }

    /// Returns the image that `owner` has leased, also if it was removed meanwhile.
    pub fn leased(&self, owner: &str) -> Option<Image> {
        let state = self.0.state();
        let image = state.images.get(state.leases.get(owner)?)?;
        Some(state.show(image))
    }
}

impl Inner {
    pub(super) fn writing(&self) -> std::sync::MutexGuard<'_, ()> {
        self.writing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn shown(&self, id: &Digest) -> Result<Image, StoreError> {
        let state = self.state();
        let record = state.images.get(id);
        let record = record.ok_or_else(|| StoreError::NoSuchImage(id.to_string()))?;
        Ok(state.show(record))
    }

    pub(super) fn put_image(&self, record: ImageRecord) -> Result<(), DiskError> {
        self.put(&self.folders.image(&record.id), &record)?;
        let mut state = self.state();
        // Who leases it has it again.
        let other = |image: &Option<Digest>| image.as_ref() != Some(&record.id);
        state.suspended.retain(|_, one| other(&one.image));
        state.images.insert(record.id.clone(), Arc::new(record));
        Ok(())
    }

    pub(super) fn put_name(&self, name: &str, image: &Digest) -> Result<(), DiskError> {
        if self.state().names.get(name) == Some(image) {
            return Ok(());
        }
        let record = NameRecord {
            name: name.to_owned(),
            image: image.clone(),
        };
        self.put(&self.folders.name(name), &record)?;
        self.state().names.insert(record.name, record.image);
        Ok(())
    }

    fn remove_name(&self, name: &str) -> Result<(), DiskError> {
        self.take(&self.folders.name(name))?;
        self.state().names.remove(name);
        Ok(())
    }

    /// Ends what a damaged lease of `owner` holds up: the owner has said again what it needs.
    fn forget_damaged_lease(&self, owner: &str) -> Result<(), DiskError> {
        let lease = self.folders.lease(owner);
        let name = lease.file_name().unwrap_or_default().to_string_lossy();
        let set_aside = self.folders.damaged().join(format!("leases-{name}"));
        let known: Vec<_> = self
            .state()
            .suspended
            .keys()
            .filter(|path| **path == lease || is_copy(path, &set_aside))
            .cloned()
            .collect();
        for path in known {
            if path != lease {
                self.disk.remove(&path)?;
            }
            self.state().suspended.remove(&path);
        }
        Ok(())
    }

    /// Writes a record, in one moment.
    fn put(&self, path: &Path, record: &impl Serialize) -> Result<(), DiskError> {
        self.put_bytes(path, &encode(record))
    }

    pub(super) fn put_bytes(&self, path: &Path, content: &[u8]) -> Result<(), DiskError> {
        let beside = self.folders.fresh(&self.folders.scratch());
        let written = self.disk.write(&beside, content);
        let placed = written.and_then(|()| self.disk.rename(&beside, path));
        if placed.is_err() {
            // A full disk is not filled further by what failed on it.
            drop(std::fs::remove_file(&beside));
        }
        placed
    }

    /// Removes a record, which does not come back after a crash.
    pub(super) fn take(&self, path: &Path) -> Result<(), DiskError> {
        self.disk.remove(path)?;
        self.disk
            .sync_folder(path.parent().expect("records have a folder"))
    }
}

/// Tells whether `path` is `set_aside`, or that with a number behind it: what was set aside a second time.
fn is_copy(path: &Path, set_aside: &Path) -> bool {
    let (path, set_aside) = (path.to_string_lossy(), set_aside.to_string_lossy());
    path.strip_prefix(&*set_aside)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}
