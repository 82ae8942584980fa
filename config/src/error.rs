//! Why the agent cannot start with what it was given.

use std::path::{Path, PathBuf};

use crate::alone::AloneError;
use crate::credential_providers::CredentialProviderError;
use crate::document::DocumentError;
use crate::document::source::FileError;
use crate::feature_gates::GateError;
use crate::flags::FlagError;
use crate::plugins::PluginError;
use crate::validation::Violations;

/// What is wrong with the command line, a file, or their combination.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("failed to parse kubelet flag")]
    Flags(#[from] FlagError),
    #[error("cannot be a node alone")]
    Alone(#[from] AloneError),
    #[error("cannot read {}", .path.display())]
    File { path: PathBuf, source: FileError },
    #[error("cannot use {}", .path.display())]
    Document {
        path: PathBuf,
        source: DocumentError,
    },
    #[error("cannot walk the drop-ins in {}", .folder.display())]
    DropIns {
        folder: PathBuf,
        source: std::io::Error,
    },
    #[error("cannot set the feature gates")]
    Gates(#[from] GateError),
    #[error("cannot run with these settings")]
    Invalid(#[from] Violations),
    #[error("cannot use the plugins that {origin} declares")]
    Plugins { origin: String, source: PluginError },
    #[error("cannot use the image credential providers")]
    CredentialProviders(#[from] CredentialProviderError),
    #[error("the node has no name: the host's is empty, and so is --hostname-override")]
    NoNodeName,
}

impl ConfigError {
    /// Returns what turns a file's error into this one.
    pub(crate) fn file(path: &Path) -> impl FnOnce(FileError) -> ConfigError {
        let path = path.to_owned();
        |source| ConfigError::File { path, source }
    }

    /// Returns what turns a document's error into this one.
    pub(crate) fn document(path: &Path) -> impl FnOnce(DocumentError) -> ConfigError {
        let path = path.to_owned();
        |source| ConfigError::Document { path, source }
    }
}
