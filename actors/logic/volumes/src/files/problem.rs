//! What can be wrong with the sources of files, in upstream's words.

use logic_api::objects::MAX_OBJECT_BYTES;
use logic_resources::resources::ResourceFieldError;
use thiserror::Error;

use super::super::RetryWhen;
use super::MAX_VOLUME_BYTES;
use super::selector::{MAX_SELECTOR_BYTES, SelectorError};

/// One thing that is wrong.
#[derive(Debug, Error, PartialEq, Eq)]
pub(super) enum FilesProblem {
    #[error("no volume plugin matched")]
    Kind,
    #[error("{kind} {name:?} not found{}", after_colon(.refused))]
    Missing {
        /// `configmap` or `secret`
        kind: &'static str,
        name: String,
        /// Why a manifest of that name gives none.
        refused: Option<String>,
    },
    #[error("configmap references non-existent config key: {0}")]
    ConfigKey(String),
    #[error("references non-existent secret key: {0}")]
    SecretKey(String),
    #[error("{kind} {name:?} has {bytes} bytes, expected at most {MAX_OBJECT_BYTES}")]
    ObjectSize {
        kind: &'static str,
        name: String,
        bytes: usize,
    },

    #[error("unsupported fieldPath: {0}")]
    Field(String),
    #[error("fieldPath {0:?} does not support subscript")]
    Subscript(String),
    #[error(transparent)]
    Resource(#[from] ResourceFieldError),

    #[error("failed to fetch token: {0}")]
    Token(String),
    #[error("token {key} expired and refresh failed: {why}")]
    TokenExpired { key: String, why: String },

    #[error("ClusterTrustBundle projection requires either name or signerName to be set")]
    BundleUnnamed,
    #[error(
        "while getting ClusterTrustBundle: clustertrustbundle.certificates.k8s.io {name:?} not found{}",
        after_colon(.refused)
    )]
    Bundle {
        name: String,
        refused: Option<String>,
    },
    #[error("while getting ClusterTrustBundle: {0}")]
    Bundles(String),
    #[error("combination of signerName and labelSelector matched zero ClusterTrustBundles")]
    NoBundle,
    #[error("while parsing label selector: {0}")]
    Selector(#[from] SelectorError),
    #[error("label selector length ({0}) is larger than {MAX_SELECTOR_BYTES}")]
    SelectorSize(usize),

    #[error("credential bundle is not issued yet: {0}")]
    NotIssued(String),
    #[error("PodCertificateRequest was permanently {what}: reason={reason:?} message={message:?}")]
    NeverIssued {
        /// `denied` or `failed`
        what: &'static str,
        reason: String,
        message: String,
    },
    #[error("PodCertificate expired: {0}")]
    CertificateExpired(String),

    #[error("invalid path: {0}")]
    Path(String),
    #[error("the volume's files have {0} bytes, expected at most {MAX_VOLUME_BYTES}")]
    VolumeSize(usize),
}

fn after_colon(refused: &Option<String>) -> String {
    let refused = refused.as_ref();
    refused.map_or_else(String::new, |why| format!(": {why}"))
}

impl FilesProblem {
    fn until(&self) -> RetryWhen {
        match self {
            Self::Missing { .. }
            | Self::ConfigKey(_)
            | Self::SecretKey(_)
            | Self::ObjectSize { .. }
            | Self::Token(_)
            | Self::TokenExpired { .. }
            | Self::Bundle { .. }
            | Self::Bundles(_)
            | Self::NoBundle
            | Self::NotIssued(_)
            | Self::NeverIssued { .. }
            | Self::CertificateExpired(_)
            // The path may be an object's key.
            | Self::Path(_)
            | Self::VolumeSize(_) => RetryWhen::Changed,
            Self::Kind
            | Self::Field(_)
            | Self::Subscript(_)
            | Self::Resource(_)
            | Self::BundleUnnamed
            | Self::Selector(_)
            | Self::SelectorSize(_) => RetryWhen::Never,
        }
    }
}

/// When to retry: if one problem is permanent, never.
pub(super) fn until(problems: &[FilesProblem]) -> RetryWhen {
    let lost = problems
        .iter()
        .any(|problem| problem.until() == RetryWhen::Never);
    if lost {
        RetryWhen::Never
    } else {
        RetryWhen::Changed
    }
}

/// Joins the messages as upstream joins errors: each once, several in brackets.
pub(super) fn joined_text(problems: &[FilesProblem]) -> String {
    let mut texts: Vec<String> = Vec::new();
    for text in problems.iter().map(ToString::to_string) {
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    match texts.as_slice() {
        [text] => text.clone(),
        texts => format!("[{}]", texts.join(", ")),
    }
}
