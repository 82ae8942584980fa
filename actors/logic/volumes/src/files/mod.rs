//! The files of configMap, secret, projected and downwardAPI volumes.
//!
//! Mirrors upstream's pkg/volume/{configmap,secret,projected,downwardapi}, pkg/kubelet/{token,clustertrustbundle,
//! podcertificate} and the rules of pkg/volume/util/atomic_writer.go (1.36). Deliberately not as upstream: no
//! `defaultMode` means 0644 instead of being an error, and what upstream leaves to chance (the order of trust anchors,
//! jitter) follows from the pod's uid or from the bytes.

mod certificates;
mod downward_api;
mod keys;
mod nested;
mod paths;
mod permissions;
mod problem;
mod projected;
pub(super) mod refresh;
mod selector;
#[cfg(test)]
mod tests;
mod tokens;
mod trust;

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{self as core, Pod};
use logic_api::objects::Objects;
use logic_resources::node::policy::NodePolicy;
use problem::FilesProblem;
use thiserror::Error;

use super::{Dependency, FileProjection, FileSet, Medium, RetryWhen};

/// The mode of files without one of their own.
const DEFAULT_MODE: i32 = 0o644;
/// All files of one volume: what a storage plugin takes at once.
pub const MAX_VOLUME_BYTES: usize = 32 << 20;

/// The input of a volume's files, beside the pod.
#[derive(Clone, Copy, Debug)]
pub struct FilesContext<'a> {
    pub objects: &'a dyn Objects,
    pub node: &'a NodePolicy,
    pub now: Timestamp,
}

/// The files of a volume, and when to make them anew.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeFiles {
    pub set: FileSet,
    /// When they have to be made again though no object changed: a token or certificate is to be renewed.
    pub refresh_at: Option<Timestamp>,
    /// The objects that they are made of, and missing optional ones.
    pub uses: BTreeSet<Dependency>,
}

/// Why there are none; the text is upstream's.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{message}")]
pub struct FilesError {
    pub message: String,
    pub until: RetryWhen,
    /// The objects that are missing or wrong, and the others that the files are made of.
    pub uses: BTreeSet<Dependency>,
}

/// Makes the files of a volume of one of the four kinds.
pub fn files(
    pod: &Pod,
    volume: &core::Volume,
    context: &FilesContext<'_>,
) -> Result<VolumeFiles, FilesError> {
    let mut builder = FilesBuilder {
        pod,
        volume,
        context,
        files: BTreeMap::new(),
        bytes: 0,
        uses: BTreeSet::new(),
        refresh_at: None,
        problems: Vec::new(),
    };
    let medium = if let Some(source) = &volume.config_map {
        keys::config_map(&mut builder, &source.into());
        Medium::Disk
    } else if let Some(source) = &volume.secret {
        keys::secret(&mut builder, &source.into());
        Medium::Memory
    } else if let Some(source) = &volume.downward_api {
        let items = source.items.as_deref().unwrap_or_default();
        downward_api::collect(&mut builder, items, bits(source.default_mode));
        Medium::Memory
    } else if let Some(source) = &volume.projected {
        projected::collect(&mut builder, source);
        Medium::Memory
    } else {
        builder.problems.push(FilesProblem::Kind);
        Medium::Disk
    };
    builder.close(medium)
}

/// Permission bits; what is none is the default.
fn bits(mode: Option<i32>) -> u32 {
    let mode = u32::try_from(mode.unwrap_or(DEFAULT_MODE)).unwrap_or_default();
    mode & 0o777
}

/// Files in the making.
struct FilesBuilder<'a> {
    pod: &'a Pod,
    volume: &'a core::Volume,
    context: &'a FilesContext<'a>,

    /// By path as written; of two with one path the later stands.
    files: BTreeMap<String, FileProjection>,
    /// The bytes of all files, and of the first one that was too much.
    bytes: usize,
    uses: BTreeSet<Dependency>,
    refresh_at: Option<Timestamp>,
    problems: Vec<FilesProblem>,
}

impl FilesBuilder<'_> {
    /// Adds a file. One key or field can be projected to thousands of paths, so the bound on all files is kept while
    /// they are added: from the file that exceeds it on, none is taken.
    fn put(&mut self, path: &str, file: FileProjection) {
        if self.is_full() {
            return;
        }
        let replaced = self.files.get(path).map_or(0, |file| file.data.len());
        self.bytes = self.bytes - replaced + file.data.len();
        if self.is_full() {
            self.problems.push(FilesProblem::VolumeSize(self.bytes));
        } else {
            self.files.insert(path.to_owned(), file);
        }
    }

    fn is_full(&self) -> bool {
        self.bytes > MAX_VOLUME_BYTES
    }

    fn uses(&mut self, kind: &'static str, namespace: &str, name: &str) {
        self.uses.insert(Dependency::new(kind, namespace, name));
    }

    /// The soonest counts.
    fn refresh(&mut self, at: Timestamp) {
        self.refresh_at = Some(self.refresh_at.map_or(at, |other| other.min(at)));
    }

    fn close(mut self, medium: Medium) -> Result<VolumeFiles, FilesError> {
        let files = std::mem::take(&mut self.files);
        // As upstream: paths are looked at when there is something to be written.
        if self.problems.is_empty() {
            match paths::checked(files) {
                Ok(files) => {
                    return Ok(VolumeFiles {
                        set: FileSet {
                            medium,
                            files,
                            mount_points: nested::mount_points(self.pod, &self.volume.name),
                        },
                        refresh_at: self.refresh_at,
                        uses: self.uses,
                    });
                }
                Err(problem) => self.problems.push(problem),
            }
        }
        Err(FilesError {
            message: problem::joined_text(&self.problems),
            until: problem::until(&self.problems),
            uses: self.uses,
        })
    }
}
