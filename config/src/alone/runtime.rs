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
    let first = || {
        let first = facts.daemons.first().copied();
        first.unwrap_or(StandaloneRuntime::Native)
    };
    let text = match std::fs::read(file) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(first()),
        Err(source) => {
            return Err(AloneError::Choice {
                path: file.to_owned(),
                source,
            });
        }
    };
    let text = String::from_utf8_lossy(&text);
    match read_choice(text.trim()) {
        // The pods' own record says which runtime they are on, so another one than theirs takes over from it.
        FoundChoice::Nothing => Ok(first()),
        FoundChoice::Runtime(kept) => Ok(kept),
        FoundChoice::Unknown => Err(AloneError::UnknownChoice {
            path: file.to_owned(),
            found: text.trim().chars().take(CHOICE_LIMIT).collect(),
        }),
    }
}

enum FoundChoice {
    Runtime(StandaloneRuntime),
    /// The file is empty.
    Nothing,
    Unknown,
}

/// A file that was cut short or has something behind its word still tells the runtime, where only one can be meant.
fn read_choice(text: &str) -> FoundChoice {
    if text.is_empty() {
        return FoundChoice::Nothing;
    }
    let is_meant = |runtime: &StandaloneRuntime| {
        runtime.name().starts_with(text) || text.starts_with(runtime.name())
    };
    let mut meant = StandaloneRuntime::ALL.into_iter().filter(is_meant);
    match (meant.next(), meant.next()) {
        (Some(runtime), None) => FoundChoice::Runtime(runtime),
        (None | Some(_), _) => FoundChoice::Unknown,
    }
}
