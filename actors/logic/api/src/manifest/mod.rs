//! Static pod manifests: from bytes to the pod that upstream's kubelet would run, with the UID that it would give.
//!
//! [`parse`] reads YAML or JSON (a Pod, a PodList, a v1 List of pods); [`static_pod`] applies the API's defaults,
//! names the pod after its node, derives its UID and refuses what upstream refuses. Nothing here reads files: the
//! caller adds the file's name to an error. Mirrors `pkg/kubelet/config/common.go` and `pkg/apis/core/{v1,validation}`
//! (v1.36).
//!
//! Deliberate differences: a file may hold a list (upstream's file source reads one pod only); one bad pod of a list
//! does not hide the others; unknown fields are refused unless [`UnknownFields::Warn`] asks for upstream's leniency;
//! duplicate keys are refused.

mod defaults;
mod dump;
mod identity;
mod parse;
mod references;
pub mod validate;

#[cfg(test)]
mod tests;

pub use identity::{
    ApiReferences, KubeletRelease, ManifestSource, StaticPodContext, static_pod, static_pod_uid,
};
pub use parse::{ParsedManifest, ParsedPod, parse};
pub use validate::{FieldError, FieldErrorKind};

/// The largest manifest: upstream's `maxConfigLength`. The reader stops there; [`parse`] refuses what is longer.
pub const MAX_MANIFEST_BYTES: usize = 10 << 20;

/// What is done with a field that v1.36 does not know, or that stands twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UnknownFields {
    /// The pod is refused with an error that names the field: a misspelt field is found before it is missed.
    Refuse,
    /// As upstream's kubelet: the pod runs without the field, which is named in a warning.
    #[default]
    Warn,
}

#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ManifestError {
    #[error("the manifest has {found} bytes, expected at most {limit}")]
    TooLong { found: usize, limit: usize },
    #[error("the manifest is not text: byte {offset} is not utf-8")]
    NotText { offset: usize },
    #[error("the manifest is empty, expected a v1 Pod, PodList or List")]
    Empty,
    #[error("{field}: {found}, expected {expected}")]
    WrongKind {
        field: &'static str,
        found: String,
        expected: &'static str,
    },
    #[error("{field}: {problem}")]
    Malformed { field: String, problem: String },
    #[error("{}", fields.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    UnknownFields { fields: Vec<UnknownField> },
    #[error("{}", problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Invalid { problems: Vec<FieldError> },
    #[error("static pods may not reference {resource}")]
    ApiReference { resource: &'static str },
}

impl ManifestError {
    /// A manifest does not get better by reading it again.
    pub fn transient(&self) -> bool {
        match self {
            Self::TooLong { .. }
            | Self::NotText { .. }
            | Self::Empty
            | Self::WrongKind { .. }
            | Self::Malformed { .. }
            | Self::UnknownFields { .. }
            | Self::Invalid { .. }
            | Self::ApiReference { .. } => false,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: unknown field, expected a field of {owner}")]
pub struct UnknownField {
    pub path: String,
    /// The type that has no such field, such as `v1 Container`.
    pub owner: String,
}
