//! The files in which a kubelet keeps pods' allocated resources, read and written in its own form: either agent
//! continues where the other stopped.
//!
//! They are written before the agent's own records, and **what they say counts**: where they differ from the records,
//! a kubelet ran since, or this agent died between the two writes. One that cannot be written is removed, since an
//! outdated one would be believed. A damaged one, which a kubelet would not start with, is set aside and logged.
//!
//! Upstream: pkg/kubelet/allocation/state/state_checkpoint.go (1.36). Decisions: `logic_pods::api::take_over`.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::hash::{DefaultHasher, Hasher};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use logic_api::types::PodUid;
use logic_pods::api::take_over::{
    ACTUATED, ALLOCATED, ResourcesByPod, decode_resources, encode_resources, resident,
};

/// More pods than a node ever has.
const MAX_PODS: usize = 20_000;
/// Bytes; many times what a thousand pods take.
const MAX_FILE_SIZE: u64 = 64 << 20;
/// The suffix of a file that cannot be decoded.
const SET_ASIDE_SUFFIX: &str = ".set-aside";

/// The UIDs of static pods that have a folder on this node.
pub fn residents(pods: &Path) -> Arc<BTreeSet<PodUid>> {
    let names = folders(pods).unwrap_or_default();
    let uids = names.iter().filter_map(|name| resident(name));
    Arc::new(uids.collect())
}

/// The names of the pods' folders.
fn folders(pods: &Path) -> io::Result<BTreeSet<String>> {
    let entries = match fs::read_dir(pods) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(BTreeSet::new()),
        entries => entries?,
    };
    let entries = entries.take(MAX_PODS).flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    Ok(names.collect())
}

/// The two files: allocated and actuated resources.
#[derive(Debug)]
pub struct AllocationFiles {
    allocated: AllocationFile,
    actuated: AllocationFile,
    pods: PathBuf,
    is_read: bool,
}

/// The allocated and actuated resources of each pod.
#[derive(Debug, Default, PartialEq)]
pub struct PodAllocations {
    pub allocated: ResourcesByPod,
    pub actuated: ResourcesByPod,
}

/// The result of reading both files.
#[derive(Debug, Default, PartialEq)]
pub struct LoadedAllocations {
    /// Only of pods that have a folder here: a kubelet removes the others late.
    pub resources: PodAllocations,
    /// Files that were set aside, with the reason.
    pub set_aside: Vec<String>,
}

impl AllocationFiles {
    /// Only sets the paths; the files are not read yet.
    pub fn new(root_dir: &Path) -> Self {
        AllocationFiles {
            allocated: AllocationFile::new(root_dir.join(ALLOCATED)),
            actuated: AllocationFile::new(root_dir.join(ACTUATED)),
            pods: root_dir.join("pods"),
            is_read: false,
        }
    }

    /// Reads the files that the last agent left. Blocking.
    pub fn read(&mut self) -> LoadedAllocations {
        self.is_read = true;
        let here = folders(&self.pods).unwrap_or_else(|error| {
            tracing::warn!("{}: {error}", self.pods.display());
            BTreeSet::new()
        });
        let mut left = LoadedAllocations::default();
        let files = [
            (&mut self.allocated, &mut left.resources.allocated),
            (&mut self.actuated, &mut left.resources.actuated),
        ];
        for (file, pods) in files {
            match file.read() {
                Ok(found) => *pods = found,
                Err(why) => left.set_aside.push(why),
            }
            pods.retain(|uid, _| here.contains(uid.as_str()));
        }
        left
    }

    /// The writes that these resources need: a file with equal contents is left alone, and so are both before they have
    /// been read.
    pub fn pending_writes(&mut self, resources: PodAllocations) -> AllocationWrites {
        if !self.is_read {
            return AllocationWrites(Vec::new());
        }
        let pending_writes = [
            self.allocated.pending_write(resources.allocated),
            self.actuated.pending_write(resources.actuated),
        ];
        AllocationWrites(pending_writes.into_iter().flatten().collect())
    }
}

/// One of the two files.
#[derive(Debug)]
struct AllocationFile {
    path: PathBuf,
    /// The hash of the contents that it has, or will have after the pending write; none if unknown.
    holds: Option<u64>,
}

impl AllocationFile {
    fn new(path: PathBuf) -> Self {
        AllocationFile { path, holds: None }
    }

    fn read(&mut self) -> Result<ResourcesByPod, String> {
        let read = File::open(&self.path).and_then(|file| {
            let mut bytes = Vec::new();
            file.take(MAX_FILE_SIZE).read_to_end(&mut bytes)?;
            Ok(bytes)
        });
        let bytes = match read {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(ResourcesByPod::new()),
            Err(error) => return Err(format!("{}: {error}", self.path.display())),
            Ok(bytes) => bytes,
        };
        let found = decode_resources(&bytes).map_err(|error| self.set_aside(&error))?;
        self.holds = Some(hash(&bytes));
        Ok(found)
    }

    fn set_aside(&self, why: &dyn std::error::Error) -> String {
        let mut aside = self.path.clone().into_os_string();
        aside.push(SET_ASIDE_SUFFIX);
        let text = format!("{}: {}", self.path.display(), kernel::error_chain(why));
        match fs::rename(&self.path, &aside) {
            Ok(()) => format!("{text}; it is kept as {}", Path::new(&aside).display()),
            Err(error) => format!("{text}; it cannot be set aside: {error}"),
        }
    }

    fn pending_write(&mut self, pods: ResourcesByPod) -> Option<AllocationWrite> {
        let exists = self.path.exists();
        if pods.is_empty() && !exists {
            return None;
        }
        let bytes = encode_resources(pods);
        let content = Some(hash(&bytes));
        if exists && self.holds == content {
            return None;
        }
        self.holds = content;
        Some(AllocationWrite {
            path: self.path.clone(),
            bytes,
        })
    }
}

fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}

/// Pending writes of both files.
#[derive(Debug)]
#[must_use = "nothing is written until they are"]
pub struct AllocationWrites(Vec<AllocationWrite>);

#[derive(Debug)]
struct AllocationWrite {
    path: PathBuf,
    bytes: Vec<u8>,
}

impl AllocationWrites {
    /// Writes the files in the blocking pool.
    pub async fn write(self) {
        if self.0.is_empty() {
            return;
        }
        let written = kernel::spawn_blocking(move || self.write_now()).await;
        if let Err(error) = written {
            tracing::error!("what pods are allocated could not be written: {error}");
        }
    }

    /// Writes the files and waits for the disk. A file that cannot be written is removed.
    pub fn write_now(self) {
        // An earlier checkpoint manager may still be at its last write.
        static WRITE_LOCK: Mutex<()> = Mutex::new(());
        let _one = WRITE_LOCK.lock().unwrap_or_else(PoisonError::into_inner);
        for pending_write in self.0 {
            if let Err(error) = write_beside(&pending_write.path, &pending_write.bytes) {
                tracing::error!(
                    "{} could not be written: {error}",
                    pending_write.path.display()
                );
                drop(fs::remove_file(&pending_write.path));
            }
        }
    }
}

/// Writes beside the path and renames: a power cut leaves the old file or the new one.
pub(crate) fn write_beside(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    DirBuilder::new()
        .recursive(true)
        .mode(0o750)
        .create(folder)?;
    let mut fresh = path.to_owned().into_os_string();
    fresh.push(".tmp");
    let mut options = OpenOptions::new();
    let mut file = options
        .create(true)
        .write(true)
        .truncate(true)
        .mode(0o600)
        .open(&fresh)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&fresh, path)?;
    File::open(folder)?.sync_all()
}
