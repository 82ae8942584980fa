//! The files of configMap, secret, projected and downwardAPI volumes.

use std::collections::BTreeSet;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{self as core, Pod};

use super::{FileSet, Until, Uses};
use crate::objects::Objects;
use crate::sandbox::NodePolicy;

/// What files are made of, beside the pod.
#[derive(Clone, Copy, Debug)]
pub struct Ground<'a> {
    pub objects: &'a dyn Objects,
    pub node: &'a NodePolicy,
    pub now: Timestamp,
}

/// What a volume holds now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Files {
    pub set: FileSet,
    /// When they have to be made again though no object changed: a token or certificate grows old.
    pub refresh_at: Option<Timestamp>,
    pub uses: BTreeSet<Uses>,
}

/// Why there are none; as upstream words it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct FilesError {
    pub message: String,
    pub until: Until,
    /// What is missing or wrong, as far as that is an object.
    pub uses: BTreeSet<Uses>,
}

/// Makes the files of a volume of one of the four kinds.
pub fn files(
    _pod: &Pod,
    _volume: &core::Volume,
    _ground: &Ground<'_>,
) -> Result<Files, FilesError> {
    Ok(Files::default())
}
