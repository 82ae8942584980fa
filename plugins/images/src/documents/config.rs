//! The config of an image: what its containers start with, and the digests of its unpacked layers.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};

use super::{DocumentError, Platform, bounded, refused};
use crate::digest::{Digest, Hasher};

const WHAT: &str = "the image config";
/// Items of any one list or map; no image comes near.
const ITEMS_MAX: usize = 10_000;

/// An image's config (OCI image-spec `config.md`; Docker's is the same where it matters).
#[derive(Clone, Debug, Deserialize)]
pub struct ImageConfig {
    #[serde(default, deserialize_with = "or_default")]
    os: String,
    #[serde(default, deserialize_with = "or_default")]
    architecture: String,
    #[serde(default, deserialize_with = "or_default")]
    variant: String,
    /// What containers of the image start with.
    #[serde(default, rename = "config", deserialize_with = "or_default")]
    pub defaults: RuntimeDefaults,
    rootfs: RootFs,
}

/// What containers of an image start with, where their spec doesn't say otherwise.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct RuntimeDefaults {
    /// `user`, `uid`, `user:group`, `uid:gid` and mixtures, or empty for root.
    #[serde(deserialize_with = "or_default")]
    pub user: String,
    /// `NAME=value`.
    #[serde(deserialize_with = "bounded::list::<_, _, ITEMS_MAX>")]
    pub env: Vec<String>,
    /// The program and its first arguments.
    #[serde(deserialize_with = "bounded::list::<_, _, ITEMS_MAX>")]
    pub entrypoint: Vec<String>,
    /// Further arguments, or the program where there is no entrypoint.
    #[serde(deserialize_with = "bounded::list::<_, _, ITEMS_MAX>")]
    pub cmd: Vec<String>,
    /// The folder to start in; empty for `/`.
    #[serde(deserialize_with = "or_default")]
    pub working_dir: String,
    /// The signal that asks the program to end, by name or number; empty for SIGTERM.
    #[serde(deserialize_with = "or_default")]
    pub stop_signal: String,
    /// The paths of the image's volumes.
    #[serde(deserialize_with = "bounded::map::<_, _, ITEMS_MAX>")]
    pub volumes: BTreeMap<String, serde::de::IgnoredAny>,
    /// Free text by key.
    #[serde(deserialize_with = "bounded::map::<_, _, ITEMS_MAX>")]
    pub labels: BTreeMap<String, String>,
    /// `port/protocol`.
    #[serde(deserialize_with = "bounded::map::<_, _, ITEMS_MAX>")]
    pub exposed_ports: BTreeMap<String, serde::de::IgnoredAny>,
}

#[derive(Clone, Debug, Deserialize)]
struct RootFs {
    #[serde(default, rename = "type")]
    kind: String,
    #[serde(default, deserialize_with = "bounded::list::<_, _, ITEMS_MAX>")]
    diff_ids: Vec<Digest>,
}

impl ImageConfig {
    /// Parses a config.
    pub(crate) fn parse(content: &[u8]) -> Result<Self, DocumentError> {
        let config: Self = serde_json::from_slice(content)
            .map_err(|source| DocumentError::Malformed { what: WHAT, source })?;
        match config.rootfs.kind.as_str() {
            "layers" | "" => Ok(config),
            other => {
                let kind: String = other.chars().take(100).collect();
                refused(WHAT, format!("rootfs of type {kind:?}, expected layers"))
            }
        }
    }

    /// Returns the digests of the unpacked layers, from the lowest to the topmost.
    pub fn diff_ids(&self) -> &[Digest] {
        &self.rootfs.diff_ids
    }

    /// Returns a layer's chain id each, from the lowest: it stands for the layer and all below it
    /// (OCI image-spec `config.md`, "Layer ChainID").
    pub(crate) fn chain_ids(&self) -> Vec<Digest> {
        let mut chains: Vec<Digest> = Vec::with_capacity(self.rootfs.diff_ids.len());
        for diff in &self.rootfs.diff_ids {
            let chain = match chains.last() {
                None => diff.clone(),
                Some(below) => {
                    let mut hasher = Hasher::default();
                    hasher.update(format!("{below} {diff}").as_bytes());
                    hasher.finish()
                }
            };
            chains.push(chain);
        }
        chains
    }

    /// Fails if the image has another number of layers than its manifest, more than `layers`, or none.
    pub(crate) fn check(&self, in_manifest: usize, layers: usize) -> Result<(), DocumentError> {
        let count = self.rootfs.diff_ids.len();
        if count != in_manifest {
            let reason = format!("it has {count} layers, its manifest {in_manifest}");
            return refused(WHAT, reason);
        }
        if count == 0 || count > layers {
            let reason = format!("it has {count} layers, expected 1 to {layers}");
            return refused(WHAT, reason);
        }
        Ok(())
    }

    /// Fails if the image says that it is for another system or architecture. A variant only orders an index's images:
    /// containerd runs an image of another one, too.
    pub(crate) fn suits(&self, platform: &Platform) -> Result<(), DocumentError> {
        let own = Platform::new(&self.os, &self.architecture, &self.variant);
        let is_unknown = self.os.is_empty() || self.architecture.is_empty();
        if !is_unknown && !platform.is_same_architecture(&own) {
            return refused(WHAT, format!("it is for {own}, expected {platform}"));
        }
        Ok(())
    }
}

/// Reads `null` as the default: Go writes it for what is empty.
fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}
