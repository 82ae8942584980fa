//! Reads the folder: blocking work, done in its own pool.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;
use std::{fs, io};

use logic_api::objects::{MAX_FILE_BYTES, ObjectError, StaticObjects, parse};

use crate::folder::{self, FileId, FileReadError, Stamp};

/// A folder with more files than this is refused.
pub(super) const MOST_FILES: usize = 1000;
/// All files together, so that a folder cannot fill the memory.
pub(super) const MOST_BYTES: u64 = 64 << 20;

/// Why a file is refused.
#[derive(Debug, thiserror::Error)]
pub(super) enum FileRefusal {
    #[error(transparent)]
    Unread(#[from] FileReadError),
    #[error("the folder's files have more than {MOST_BYTES} bytes together")]
    TooMuch,
    #[error("the folder has more than {MOST_FILES} manifests, the rest is not read")]
    TooMany,
    #[error(transparent)]
    Object(#[from] ObjectError),
}

/// A reading of the folder.
#[derive(Debug)]
pub(super) struct FolderReader {
    pub(super) folder: Arc<Path>,
    /// Versions that were read already.
    pub(super) known: BTreeMap<PathBuf, Stamp>,
    pub(super) now: SystemTime,
}

/// The result of a reading.
#[derive(Debug)]
pub(super) enum FolderContents {
    Missing,
    /// Nothing is known of any file.
    Unreadable(io::Error),
    Found {
        /// Device and inode of the folder.
        place: FileId,
        looks: BTreeMap<PathBuf, FileReading>,
    },
}

/// The result for one file.
#[derive(Debug)]
pub(super) enum FileReading {
    /// The file has the version that is known.
    Unchanged,
    Read {
        /// None as long as the next version may look the same.
        stamp: Option<Stamp>,
        objects: Box<StaticObjects>,
        problems: Vec<FileRefusal>,
    },
    Refused(FileRefusal),
}

impl FolderReader {
    pub(super) fn read(&self) -> FolderContents {
        match self.folder() {
            Ok(reading) => reading,
            Err(error) if error.kind() == io::ErrorKind::NotFound => FolderContents::Missing,
            Err(error) => FolderContents::Unreadable(error),
        }
    }

    fn folder(&self) -> io::Result<FolderContents> {
        let place = FileId::from(&fs::metadata(&self.folder)?);
        let names = names(&self.folder)?;
        let mut looks = BTreeMap::new();
        let mut left = MOST_BYTES;
        for name in &names.taken {
            let path = self.folder.join(name);
            match self.read_if_changed(&path, &mut left) {
                Err(FileRefusal::Unread(FileReadError::Gone)) => {}
                look => {
                    looks.insert(path, look.unwrap_or_else(FileReading::Refused));
                }
            }
        }
        if names.too_many {
            let all = self.folder.to_path_buf();
            looks.insert(all, FileReading::Refused(FileRefusal::TooMany));
        }
        Ok(FolderContents::Found { place, looks })
    }

    /// `left` is how many bytes the folder's remaining files may have.
    pub(super) fn read_if_changed(
        &self,
        path: &Path,
        left: &mut u64,
    ) -> Result<FileReading, FileRefusal> {
        let stamp = folder::stat(path)?;
        if self.known.get(path) == Some(&stamp) {
            *left = left.saturating_sub(stamp.bytes());
            return Ok(FileReading::Unchanged);
        }
        let (file, stamp) = folder::open(path)?;
        let data = folder::contents(file, MAX_FILE_BYTES).map_err(FileReadError::from)?;
        let bytes = u64::try_from(data.len()).unwrap_or(u64::MAX);
        *left = left.checked_sub(bytes).ok_or(FileRefusal::TooMuch)?;
        let parsed = parse(&data);
        let mut objects = parsed.objects;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        for why in objects.refused.values_mut() {
            *why = format!("{name}: {why}");
        }
        Ok(FileReading::Read {
            stamp: stamp.is_settled(self.now).then_some(stamp),
            objects: Box::new(objects),
            problems: parsed
                .problems
                .into_iter()
                .map(FileRefusal::Object)
                .collect(),
        })
    }
}

struct ManifestNames {
    taken: BTreeSet<OsString>,
    too_many: bool,
}

/// The first of the `*.yaml`, `*.yml` and `*.json` that are not hidden.
fn names(folder: &Path) -> io::Result<ManifestNames> {
    let mut names = ManifestNames {
        taken: BTreeSet::new(),
        too_many: false,
    };
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name();
        let extension = Path::new(&name).extension().and_then(|text| text.to_str());
        let hidden = name.as_encoded_bytes().starts_with(b".");
        if hidden || !matches!(extension, Some("yaml" | "yml" | "json")) {
            continue;
        }
        names.taken.insert(name);
        if names.taken.len() > MOST_FILES {
            names.too_many = names.taken.pop_last().is_some();
        }
    }
    Ok(names)
}
