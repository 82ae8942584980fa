//! The devices of the node: what is in the files of all folders.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::file::{CdiFile, Edits, FileError};

/// The largest file that is read, in bytes.
const MAX_BYTES: u64 = 4 << 20;
/// Files of a folder that are read; more are a mistake.
const MAX_FILES: usize = 1024;

/// Where a device stands.
#[derive(Clone, Copy, Debug)]
struct Place {
    file: usize,
    device: usize,
}

struct Loaded {
    path: PathBuf,
    /// The place of its folder among the folders.
    priority: usize,
    content: CdiFile,
}

/// Why a file is left out.
#[derive(Debug, thiserror::Error)]
enum LoadError {
    #[error("cannot read")]
    Read(#[from] io::Error),
    #[error("invalid CDI Spec")]
    Invalid(#[from] FileError),
}

/// All devices by their qualified names.
#[derive(Default)]
pub(super) struct Registry {
    files: Vec<Loaded>,
    devices: BTreeMap<String, Place>,
    troubles: Vec<String>,
}

impl Registry {
    /// Reads the files `*.json` and `*.yaml` of folders. A device of a later folder stands before one of an earlier; of
    /// two in one folder neither counts.
    pub(super) fn read(folders: &[PathBuf]) -> Registry {
        let mut registry = Registry::default();
        for (priority, folder) in folders.iter().enumerate() {
            match files(folder) {
                Ok(paths) => {
                    for path in paths {
                        registry.load(path, priority);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => registry.trouble(folder, &LoadError::Read(error)),
            }
        }
        registry.resolve();
        registry
    }

    /// Returns what is known where the files can't be read at all.
    pub(super) fn unread() -> Registry {
        Registry {
            troubles: vec!["no thread reads the files".to_owned()],
            ..Registry::default()
        }
    }

    /// Returns why files and devices were left out.
    pub(super) fn troubles(&self) -> impl Iterator<Item = &str> {
        self.troubles.iter().map(String::as_str)
    }

    /// Returns what these devices say, a file's own words before those of its first device; the names that aren't
    /// known, if there are any.
    pub(super) fn edits(&self, names: &[String]) -> Result<Vec<Edits>, Vec<String>> {
        let unknown = names
            .iter()
            .filter(|name| !self.devices.contains_key(*name));
        let unknown: Vec<_> = unknown.cloned().collect();
        if !unknown.is_empty() {
            return Err(unknown);
        }
        let (mut edits, mut used) = (Vec::new(), BTreeSet::new());
        for place in names.iter().filter_map(|name| self.devices.get(name)) {
            let Some(loaded) = self.files.get(place.file) else {
                continue;
            };
            if used.insert(place.file) {
                edits.push(loaded.content.container_edits.clone());
            }
            let device = loaded.content.devices.get(place.device);
            edits.extend(device.map(|device| device.container_edits.clone()));
        }
        Ok(edits)
    }

    fn load(&mut self, path: PathBuf, priority: usize) {
        match read(&path) {
            Ok(content) => self.files.push(Loaded {
                path,
                priority,
                content,
            }),
            Err(error) => self.trouble(&path, &error),
        }
    }

    fn trouble(&mut self, path: &Path, error: &LoadError) {
        let error = sdk::error_chain(error);
        self.troubles.push(format!("{}: {error}", path.display()));
    }

    /// Decides which file each device is taken from.
    fn resolve(&mut self) {
        let mut conflicts = BTreeSet::new();
        for (file, loaded) in self.files.iter().enumerate() {
            for (device, one) in loaded.content.devices.iter().enumerate() {
                let name = format!("{}={}", loaded.content.kind, one.name);
                let other = self.devices.get(&name).map(|place| &self.files[place.file]);
                match other {
                    // Folders are read by their priority, so the other one's is never higher.
                    Some(other) if other.priority == loaded.priority => {
                        self.troubles.push(format!(
                            "conflicting device {name:?} (specs {:?}, {:?})",
                            loaded.path, other.path
                        ));
                        conflicts.insert(name);
                    }
                    Some(_) | None => {
                        // As upstream: a conflict in a folder counts, whatever a later folder says.
                        self.devices.insert(name, Place { file, device });
                    }
                }
            }
        }
        for name in conflicts {
            self.devices.remove(&name);
        }
    }
}

/// Returns a folder's files of the right names, in the order of these.
fn files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let known = path
            .extension()
            .is_some_and(|end| end == "json" || end == "yaml");
        if known && !path.is_dir() {
            paths.push(path);
        }
        if paths.len() > MAX_FILES {
            let why = format!("it has more than {MAX_FILES} files");
            return Err(io::Error::other(why));
        }
    }
    paths.sort();
    Ok(paths)
}

fn read(path: &Path) -> Result<CdiFile, LoadError> {
    let mut text = String::new();
    let mut file = fs::File::open(path)?.take(MAX_BYTES + 1);
    file.read_to_string(&mut text)?;
    if text.len() as u64 > MAX_BYTES {
        return Err(io::Error::other(format!("it is longer than {MAX_BYTES} bytes")).into());
    }
    Ok(CdiFile::parse(&text)?)
}
