//! Which runtime a node alone has: the one that it had before, else what the machine has.

use std::io;
use std::path::{Path, PathBuf};

use super::{AloneError, StandaloneFacts};

/// The choice lies below the folder of the node (`--root-dir`), one word.
const CHOICE_FILE: &str = "oxlet/runtime-choice";
/// Longer than any choice.
const CHOICE_LIMIT: usize = 64;

/// A runtime that a node alone can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StandaloneRuntime {
    Containerd,
    Crio,
    /// Containers without a daemon.
    Native,
}

impl StandaloneRuntime {
    const ALL: [StandaloneRuntime; 3] = [
        StandaloneRuntime::Containerd,
        StandaloneRuntime::Crio,
        StandaloneRuntime::Native,
    ];

    /// Its name, as of a plugin and in the file of the choice.
    pub fn name(self) -> &'static str {
        match self {
            StandaloneRuntime::Containerd => "containerd",
            StandaloneRuntime::Crio => "crio",
            StandaloneRuntime::Native => "native",
        }
    }

    /// The socket of its daemon; none for the one that has no daemon.
    pub(crate) fn socket(self) -> Option<&'static str> {
        match self {
            StandaloneRuntime::Containerd => Some("/run/containerd/containerd.sock"),
            StandaloneRuntime::Crio => Some("/run/crio/crio.sock"),
            StandaloneRuntime::Native => None,
        }
    }
}

/// The file that keeps the choice of a node with this `--root-dir`.
pub(super) fn choice_file(root_dir: &str) -> PathBuf {
    Path::new(root_dir).join(CHOICE_FILE)
}

/// The runtime that an earlier life has chosen, else the first that is there, else the one without a daemon.
///
/// A daemon that is away for a while must not move the node's pods to another runtime: so the first choice is kept.
pub(super) fn choose(
    file: &Path,
    facts: &StandaloneFacts,
) -> Result<StandaloneRuntime, AloneError> {
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let first = facts.daemons.first().copied();
            return Ok(first.unwrap_or(StandaloneRuntime::Native));
        }
        Err(source) => {
            return Err(AloneError::Choice {
                path: file.to_owned(),
                source,
            });
        }
    };
    let word = text.trim();
    let kept = StandaloneRuntime::ALL.into_iter();
    let mut kept = kept.filter(|runtime| runtime.name() == word);
    kept.next().ok_or_else(|| AloneError::UnknownChoice {
        path: file.to_owned(),
        found: word.chars().take(CHOICE_LIMIT).collect(),
    })
}
