//! The store found again after a restart or a crash: what is whole is known, what is wrong is set aside.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use rustix::fs::FlockOperation;
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;

use super::record::{ImageRecord, LayerRecord, LeaseRecord, NameRecord, RECORD_BYTES_MAX, decode};
use super::{
    Damage, Folders, Inner, LayerLocks, OpenError, Slots, State, Store, Suspension, THREADS,
};
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
        let mut opening = Opening {
            limits: &limits,
            disk: &disk,
            folders: &folders,
            state: State::default(),
        };
        opening.check_layout(&root.join("layout"))?;
        opening.put_scratch_away()?;
        opening.layers()?;
        opening.images()?;
        opening.names()?;
        opening.leases()?;
        let state = opening.state;
        for damage in &state.damage {
            tracing::error!(path = ?damage.path, reason = damage.reason, "the image store is damaged");
        }
        let slots = Slots::new(&limits);
        Ok(Self(Arc::new(Inner {
            folders,
            disk,
            limits,
            slots,
            hosts: Arc::default(),
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

struct Opening<'a> {
    limits: &'a Limits,
    disk: &'a Disk,
    folders: &'a Folders,
    state: State,
}

impl Opening<'_> {
    /// Fails if the store has another layout. A file that says nothing of the kind is damaged, and written again: the
    /// records are checked one by one in any case.
    fn check_layout(&mut self, path: &Path) -> Result<(), OpenError> {
        match read(path, RECORD_BYTES_MAX) {
            Ok(content) if content == LAYOUT.as_bytes() => return Ok(()),
            Ok(content) => {
                let found = String::from_utf8_lossy(&content);
                if let Some(found) = other_layout(&found) {
                    return Err(OpenError::Layout {
                        path: path.to_owned(),
                        found: found.to_owned(),
                        expected: LAYOUT,
                    });
                }
                self.set_aside(path, "it names no layout".to_owned())?;
            }
            Err(error) => match wrong(error.source.kind()) {
                None => return Err(error.into()),
                Some(_) if error.source.kind() == io::ErrorKind::NotFound => {}
                Some(reason) => self.set_aside(path, reason.to_owned())?,
            },
        }
        let beside = self.folders.fresh(&self.folders.trash());
        self.disk.write(&beside, LAYOUT.as_bytes())?;
        Ok(self.disk.rename(&beside, path)?)
    }

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
                |layer: &LayerRecord| *name == *layer.chain.hex() && path.join("files").is_dir();
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
            let right = |image: &ImageRecord| *name == *image.id.hex() && !image.chains.is_empty();
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
            let right = |record: &NameRecord| *name == *Digest::of(record.name.as_bytes()).hex();
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
            let right = |record: &LeaseRecord| *name == *Digest::of(record.owner.as_bytes()).hex();
            if let Some(record) = self.record(&path, &path, right)? {
                self.state.leases.insert(record.owner, record.image);
            }
        }
        for name in entries(&self.folders.damaged())? {
            if name.as_encoded_bytes().starts_with(b"leases-") {
                let path = self.folders.damaged().join(name);
                let reason = format!("{path:?} may be a lease of any image");
                self.suspend(path, reason, None);
            }
        }
        let lost = |(_, image): &(&String, &Digest)| !self.state.images.contains_key(*image);
        let lost: Vec<_> = self
            .state
            .leases
            .iter()
            .filter(lost)
            .map(|(owner, image)| (owner.clone(), image.clone()))
            .collect();
        for (owner, image) in lost {
            let reason = format!("{owner:?} leases image {image}, which is not whole");
            self.suspend(self.folders.lease(&owner), reason, Some(image));
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
        let path = path.to_owned();
        self.suspend(path.clone(), format!("{path:?}: {reason}"), None);
        self.state.damage.push(Damage { path, reason });
    }

    fn suspend(&mut self, path: PathBuf, reason: String, image: Option<Digest>) {
        let suspension = Suspension { reason, image };
        self.state.suspended.entry(path).or_insert(suspension);
    }
}

/// Returns the first line of a layout file, if it names another layout than this version's.
fn other_layout(content: &str) -> Option<&str> {
    let (line, _) = content.split_once('\n')?;
    let number = line.strip_prefix("oxlet images ")?;
    let is_number =
        (1..=9).contains(&number.len()) && number.bytes().all(|byte| byte.is_ascii_digit());
    (is_number && Some(line) != LAYOUT.strip_suffix('\n')).then_some(line)
}

/// Returns what is wrong with a record where a reading error says that; none where it may be right and is unreadable.
fn wrong(kind: io::ErrorKind) -> Option<&'static str> {
    if matches!(kind, io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) {
        return Some("it has no record");
    }
    (kind == io::ErrorKind::FileTooLarge).then_some("its record is too long")
}

/// Returns the names in a folder, in order.
fn entries(folder: &Path) -> Result<Vec<OsString>, DiskError> {
    let list = || {
        let mut names = Vec::new();
        for entry in fs::read_dir(folder)? {
            names.push(entry?.file_name());
        }
        names.sort();
        Ok(names)
    };
    list().map_err(|error: io::Error| DiskError::new("list", folder, error))
}
