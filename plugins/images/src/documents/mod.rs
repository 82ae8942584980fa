//! What registries and archives serve as JSON: manifests and indexes of OCI and Docker, and image configs.
//!
//! The types hold what this store uses and no more; sources: OCI image-spec 1.1 (`manifest.md`, `image-index.md`,
//! `config.md`) and distribution's `manifest-v2-2.md`.

mod bounded;
mod config;
mod platform;
mod search;

use serde::Deserialize;

pub use self::config::{ImageConfig, RuntimeDefaults};
pub use self::platform::{InvalidPlatform, Platform};
pub(crate) use self::search::Search;

use crate::digest::Digest;

/// The media types of manifests and indexes that a registry is asked for.
pub(crate) const ACCEPT: &str = "application/vnd.oci.image.index.v1+json, \
    application/vnd.oci.image.manifest.v1+json, \
    application/vnd.docker.distribution.manifest.list.v2+json, \
    application/vnd.docker.distribution.manifest.v2+json";
/// Manifests that an index may list.
const DESCRIPTORS_MAX: usize = 10_000;

/// A document that is not what it should be.
#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    /// It is no JSON of the expected shape.
    #[error("{what} is malformed")]
    Malformed {
        /// Which document.
        what: &'static str,
        /// Where it is wrong.
        source: serde_json::Error,
    },
    /// It is well formed and still refused.
    #[error("{what} is refused: {reason}")]
    Refused {
        /// Which document.
        what: &'static str,
        /// Why.
        reason: String,
    },
}

/// Content by digest and size, as manifests and indexes name it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Descriptor {
    #[serde(default)]
    pub(crate) media_type: String,
    pub(crate) digest: Digest,
    /// Bytes.
    pub(crate) size: u64,
    pub(crate) platform: Option<Platform>,
}

/// A manifest of one image, or an index of several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Document {
    Index(Vec<Descriptor>),
    Manifest(Manifest),
}

/// An image: its config, and its layers from the lowest to the topmost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Manifest {
    pub(crate) config: Descriptor,
    pub(crate) layers: Vec<Descriptor>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Raw {
    #[serde(default)]
    schema_version: u64,
    config: Option<Descriptor>,
    #[serde(
        default,
        deserialize_with = "bounded::optional_list::<_, _, DESCRIPTORS_MAX>"
    )]
    layers: Option<Vec<Descriptor>>,
    #[serde(
        default,
        deserialize_with = "bounded::optional_list::<_, _, DESCRIPTORS_MAX>"
    )]
    manifests: Option<Vec<Descriptor>>,
}

impl Document {
    /// Parses a manifest or an index by what it holds: one that could be read as both is refused, whatever media
    /// type it comes with (CVE-2021-41190).
    pub(crate) fn parse(content: &[u8]) -> Result<Self, DocumentError> {
        const WHAT: &str = "the manifest";
        let raw: Raw = serde_json::from_slice(content)
            .map_err(|source| DocumentError::Malformed { what: WHAT, source })?;
        if raw.schema_version != 2 {
            let version = raw.schema_version;
            return refused(WHAT, format!("schema version {version}, expected 2"));
        }
        match (raw.config, raw.layers, raw.manifests) {
            (None, None, Some(manifests)) => Ok(Self::Index(manifests)),
            (Some(config), Some(layers), None) => Ok(Self::Manifest(Manifest { config, layers })),
            (None, None, None) => refused(WHAT, "it has neither layers nor manifests".to_owned()),
            _ => refused(
                WHAT,
                "expected config and layers, or manifests alone".to_owned(),
            ),
        }
    }
}

fn refused<T>(what: &'static str, reason: String) -> Result<T, DocumentError> {
    Err(DocumentError::Refused { what, reason })
}

#[cfg(test)]
mod tests;
