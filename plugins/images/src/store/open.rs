//! The store found again after a restart or a crash: what is whole is known, what is wrong is set aside.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};

use rustix::fs::FlockOperation;
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;

use super::record::{ImageRecord, LayerRecord, LeaseRecord, NameRecord, RECORD_BYTES_MAX, decode};
use super::{Damage, Folders, Inner, LayerLocks, OpenError, State, Store, THREADS};
use crate::digest::Digest;
use crate::disk::{Disk, DiskError, read};
use crate::limits::Limits;

/// The layout on disk that this version reads and writes (decision 26).
const LAYOUT: &str = "oxlet images 1\n";

impl Store {
    /// Opens the store at `root`, an absolute path, which is made if it isn't there. Blocks: for the files' reading.
    ///
    /// Nothing is removed here. A damaged record, document or layer is moved to `damaged/`, one that can't be read
    /// stays where it is; both are told by [`Store::damage`], and the images that need them aren't shown.
    pub fn open(root: &Path, limits: Limits) -> Result<Self, OpenError> {
        Self::open_on(root, limits, Disk::default())
    }

    pub(crate) fn open_on(root: &Path, limits: Limits, disk: Disk) -> Result<Self, OpenError> {
        let folders = Folders::new(root);
        folders.create(&disk)?;
        let lock = lock(&folders.lock(), root)?;
        check_layout(&disk, &folders, root)?;
        let mut opening = Opening {
            limits: &limits,
            disk: &disk,
            folders: &folders,
            state: State::default(),
        };
        opening.put_scratch_away()?;
        opening.layers()?;
        opening.images()?;
        opening.names()?;
        opening.leases()?;
        let state = opening.state;
        for damage in &state.damage {
            tracing::error!(path = ?damage.path, reason = damage.reason, "the image store is damaged");
        }
        let slots = Arc::new(Semaphore::new(limits.layers_abreast));
        Ok(Self(Arc::new(Inner {
            folders,
            disk,
            limits,
            slots,
            layer_locks: LayerLocks::default(),
            threads: Arc::new(Semaphore::new(THREADS)),
            state: Mutex::new(state),
            writing: Mutex::default(),
            emptying: Mutex::default(),
            _lock: lock,
        })))
    }
}

fn lock(path: &Path, root: &Path) -> Result<File, OpenError> {
    let failed = |error: io::Error| DiskError::new("lock", path, error);
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path);
    let file = file.map_err(failed)?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(OpenError::InUse(root.to_owned())),
        Err(error) => Err(failed(error.into()).into()),
    }
}

fn check_layout(disk: &Disk, folders: &Folders, root: &Path) -> Result<(), OpenError> {
    let path = root.join("layout");
    match read(&path, RECORD_BYTES_MAX) {
        Ok(content) if content == LAYOUT.as_bytes() => Ok(()),
        Ok(content) => Err(OpenError::Layout {
            path,
            found: String::from_utf8_lossy(&content)
                .chars()
                .take(100)
                .collect(),
            expected: LAYOUT,
        }),
        Err(error) if error.source.kind() == io::ErrorKind::NotFound => {
            let beside = folders.fresh(&folders.trash());
            disk.write(&beside, LAYOUT.as_bytes())?;
            Ok(disk.rename(&beside, &path)?)
        }
        Err(error) => Err(error.into()),
    }
}

struct Opening<'a> {
    limits: &'a Limits,
    disk: &'a Disk,
    folders: &'a Folders,
    state: State,
}

impl Opening<'_> {
    /// What was being made when the store ended goes to the trash, which the next collection empties.
    fn put_scratch_away(&self) -> Result<(), DiskError> {
        for name in entries(&self.folders.scratch())? {
            let away = self.folders.fresh(&self.folders.trash());
            self.disk
                .rename(&self.folders.scratch().join(name), &away)?;
        }
        Ok(())
    }

    fn layers(&mut self) -> Result<(), DiskError> {
        let folder = self.folders.layers();
        for name in entries(&folder)? {
            let path = folder.join(&name);
            let record = path.join("layer");
            let right =
                |layer: &LayerRecord| layer.chain.hex() == name && path.join("files").is_dir();
            if let Some(layer) = self.record(&path, &record, right)? {
                self.state.layers.insert(layer.chain.clone(), layer);
            }
        }
        Ok(())
    }

    fn images(&mut self) -> Result<(), DiskError> {
        let folder = self.folders.images();
        for name in entries(&folder)? {
            let path = folder.join(&name);
            let right = |image: &ImageRecord| image.id.hex() == name && !image.chains.is_empty();
            let Some(image) = self.record(&path, &path, right)? else {
                continue;
            };
            match self.whole(&image)? {
                Ok(()) => drop(self.state.images.insert(image.id.clone(), Arc::new(image))),
                Err(Some(reason)) => self.set_aside(&path, reason)?,
                // Something that it needs can't be read now: it is neither shown nor touched.
                Err(None) => {}
            }
        }
        Ok(())
    }

    /// Tells whether all that an image needs is there; an error without a text means that it can't be told.
    fn whole(&mut self, image: &ImageRecord) -> Result<Result<(), Option<String>>, DiskError> {
        for digest in image.blobs() {
            let path = self.folders.blob(digest);
            match read(&path, self.limits.document_bytes) {
                Ok(content) if Digest::of(&content) == *digest => {}
                Ok(_) => {
                    self.set_aside(&path, "its digest is another one".to_owned())?;
                    return Ok(Err(Some(format!("document {digest} is damaged"))));
                }
                Err(error) if error.source.kind() == io::ErrorKind::NotFound => {
                    return Ok(Err(Some(format!("document {digest} is missing"))));
                }
                Err(error) => {
                    self.unreadable(&path, &error.source);
                    return Ok(Err(None));
                }
            }
        }
        let missing = image
            .chains
            .iter()
            .find(|chain| !self.state.layers.contains_key(*chain));
        Ok(match missing {
            None => Ok(()),
            Some(chain) if self.folders.layer(chain).exists() => Err(None),
            Some(chain) => Err(Some(format!("layer {chain} is missing"))),
        })
    }

    fn names(&mut self) -> Result<(), DiskError> {
        let folder = self.folders.names();
        for name in entries(&folder)? {
            let path = folder.join(&name);
            let right = |record: &NameRecord| Digest::of(record.name.as_bytes()).hex() == name;
            if let Some(record) = self.record(&path, &path, right)? {
                self.state.names.insert(record.name, record.image);
            }
        }
        Ok(())
    }

    fn leases(&mut self) -> Result<(), DiskError> {
        let folder = self.folders.leases();
        for name in entries(&folder)? {
            let path = folder.join(&name);
            let right = |record: &LeaseRecord| Digest::of(record.owner.as_bytes()).hex() == name;
            if let Some(record) = self.record(&path, &path, right)? {
                self.state.leases.insert(record.owner, record.image);
            }
        }
        for name in entries(&self.folders.damaged())? {
            if name.starts_with("leases-") {
                let path = self.folders.damaged().join(name);
                self.suspend(format!("{path:?} may be a lease of any image"));
            }
        }
        let lost = |(_, image): &(&String, &Digest)| !self.state.images.contains_key(*image);
        if let Some((owner, image)) = self.state.leases.iter().find(lost) {
            self.suspend(format!(
                "{owner:?} leases image {image}, which is not whole"
            ));
        }
        Ok(())
    }

    /// Reads the record at `path` of the thing `whose`: none if it is wrong, and then set aside, or can't be read.
    fn record<T: DeserializeOwned>(
        &mut self,
        whose: &Path,
        path: &Path,
        right: impl FnOnce(&T) -> bool,
    ) -> Result<Option<T>, DiskError> {
        let reason = match read(path, RECORD_BYTES_MAX) {
            Ok(content) => match decode::<T>(&content) {
                Ok(record) if right(&record) => return Ok(Some(record)),
                Ok(_) => "it is the record of something else".to_owned(),
                Err(reason) => reason,
            },
            Err(error) => match wrong(error.source.kind()) {
                Some(reason) => reason.to_owned(),
                None => {
                    self.unreadable(whose, &error.source);
                    return Ok(None);
                }
            },
        };
        self.set_aside(whose, reason)?;
        Ok(None)
    }

    fn set_aside(&mut self, path: &Path, reason: String) -> Result<(), DiskError> {
        let kind = path.parent().and_then(Path::file_name).unwrap_or_default();
        let name = path.file_name().unwrap_or_default();
        let name = format!("{}-{}", kind.to_string_lossy(), name.to_string_lossy());
        let mut aside = self.folders.damaged().join(&name);
        if aside.exists() {
            aside = self.folders.fresh(&self.folders.damaged());
            aside.set_file_name(format!(
                "{name}-{}",
                aside.file_name().unwrap_or_default().to_string_lossy()
            ));
        }
        self.disk.rename(path, &aside)?;
        self.state.damage.push(Damage {
            path: aside,
            reason,
        });
        Ok(())
    }

    fn unreadable(&mut self, path: &Path, error: &io::Error) {
        let reason = format!("it can't be read: {error}");
        self.suspend(format!("{path:?}: {reason}"));
        let path = path.to_owned();
        self.state.damage.push(Damage { path, reason });
    }

    fn suspend(&mut self, reason: String) {
        self.state.suspended.get_or_insert(reason);
    }
}

/// Returns what is wrong with a record where a reading error says that; none where it may be right and is unreadable.
fn wrong(kind: io::ErrorKind) -> Option<&'static str> {
    if matches!(kind, io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) {
        return Some("it has no record");
    }
    (kind == io::ErrorKind::FileTooLarge).then_some("its record is too long")
}

/// Returns the names in a folder, in order.
fn entries(folder: &Path) -> Result<Vec<String>, DiskError> {
    let list = || {
        let mut names = Vec::new();
        for entry in fs::read_dir(folder)? {
            names.push(entry?.file_name().to_string_lossy().into_owned());
        }
        names.sort();
        Ok(names)
    };
    list().map_err(|error: io::Error| DiskError::new("list", folder, error))
}
