//! What the store does to its own files, one step at a time.
//!
//! **Invariant:** content is whole on the disk before its name is: written beside, synced, renamed, and the folder
//! synced. Tests cut the power before any of the steps.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

#[cfg(test)]
use std::sync::Arc;

#[cfg(test)]
use crate::testing::Faults;

/// A step that the disk refused.
#[derive(Debug, thiserror::Error)]
#[error("cannot {step} {path:?}")]
pub struct DiskError {
    /// What was to be done.
    pub step: &'static str,
    /// With which file or folder.
    pub path: PathBuf,
    /// The refusal; [`io::ErrorKind::StorageFull`] for a full disk.
    #[source]
    pub source: io::Error,
}

impl DiskError {
    pub(crate) fn new(step: &'static str, path: &Path, source: impl Into<io::Error>) -> Self {
        Self {
            step,
            path: path.to_owned(),
            source: source.into(),
        }
    }
}

/// The steps.
#[derive(Clone, Debug, Default)]
pub(crate) struct Disk {
    #[cfg(test)]
    pub(crate) faults: Option<Arc<Faults>>,
}

impl Disk {
    /// Fails where a test cuts the power.
    #[cfg_attr(
        not(test),
        expect(clippy::unused_self, reason = "only tests cut the power")
    )]
    pub(crate) fn step(&self) -> io::Result<()> {
        #[cfg(test)]
        if let Some(faults) = &self.faults {
            return faults.step();
        }
        Ok(())
    }

    /// Writes a file that isn't there yet, whole and synced.
    pub(crate) fn write(&self, path: &Path, content: &[u8]) -> Result<(), DiskError> {
        let failed = |step| move |error: io::Error| DiskError::new(step, path, error);
        let create = || {
            self.step()?;
            OpenOptions::new().write(true).create_new(true).open(path)
        };
        let mut file = create().map_err(failed("create"))?;
        self.unsynced(path);
        self.step()
            .and_then(|()| file.write_all(content))
            .map_err(failed("write"))?;
        self.step()
            .and_then(|()| file.sync_all())
            .map_err(failed("sync"))?;
        self.synced(path);
        Ok(())
    }

    /// Gives `from` the name `to`, which survives a crash when this returns.
    pub(crate) fn rename(&self, from: &Path, to: &Path) -> Result<(), DiskError> {
        let failed = |error: io::Error| DiskError::new("rename", from, error);
        self.step().map_err(failed)?;
        #[cfg(test)]
        if let Some(faults) = &self.faults {
            faults.renames(from, to);
        }
        fs::rename(from, to).map_err(failed)?;
        self.sync_folder(to.parent().expect("names of the store have a folder"))
    }

    /// Makes the names in a folder survive a crash.
    pub(crate) fn sync_folder(&self, folder: &Path) -> Result<(), DiskError> {
        let sync = || {
            self.step()?;
            File::open(folder)?.sync_all()
        };
        sync().map_err(|error: io::Error| DiskError::new("sync", folder, error))?;
        #[cfg(test)]
        if let Some(faults) = &self.faults {
            faults.synced_folder(folder);
        }
        Ok(())
    }

    /// Makes everything written below `folder` survive a crash.
    pub(crate) fn sync_below(&self, folder: &Path) -> Result<(), DiskError> {
        let sync = || {
            self.step()?;
            rustix::fs::syncfs(File::open(folder)?).map_err(io::Error::from)
        };
        sync().map_err(|error| DiskError::new("sync", folder, error))?;
        self.synced(folder);
        Ok(())
    }

    /// Makes a folder; one that is there is right.
    pub(crate) fn create_folder(&self, folder: &Path) -> Result<(), DiskError> {
        let create = || {
            self.step()?;
            match fs::create_dir(folder) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
                result => result,
            }
        };
        create().map_err(|error| DiskError::new("create", folder, error))
    }

    /// Removes a file; one that is gone is right.
    pub(crate) fn remove(&self, path: &Path) -> Result<(), DiskError> {
        let remove = || {
            self.step()?;
            match fs::remove_file(path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                result => result,
            }
        };
        remove().map_err(|error| DiskError::new("remove", path, error))
    }

    /// Notes for tests that a crash would tear what was written to `path`, or below it.
    #[cfg_attr(
        not(test),
        expect(clippy::unused_self, reason = "only tests cut the power")
    )]
    pub(crate) fn unsynced(&self, path: &Path) {
        #[cfg(test)]
        if let Some(faults) = &self.faults {
            faults.unsynced(path);
        }
        #[cfg(not(test))]
        let _: &Path = path;
    }

    #[cfg_attr(
        not(test),
        expect(clippy::unused_self, reason = "only tests cut the power")
    )]
    fn synced(&self, path: &Path) {
        #[cfg(test)]
        if let Some(faults) = &self.faults {
            faults.synced(path);
        }
        #[cfg(not(test))]
        let _: &Path = path;
    }
}

/// Reads a file of at most `max` bytes; a longer one is an error of the kind `FileTooLarge`.
pub(crate) fn read(path: &Path, max: usize) -> Result<Vec<u8>, DiskError> {
    let read = || {
        let mut content = Vec::new();
        let bound = u64::try_from(max).unwrap_or(u64::MAX).saturating_add(1);
        File::open(path)?.take(bound).read_to_end(&mut content)?;
        match content.len() > max {
            true => Err(io::Error::from(io::ErrorKind::FileTooLarge)),
            false => Ok(content),
        }
    };
    read().map_err(|error| DiskError::new("read", path, error))
}
