//! What is printed: versions, and errors as the specification's section 5 has them.

use serde::Deserialize;
use serde_json::json;
use tonic::{Code, Status};

/// Codes of the specification.
pub(crate) const VERSION: u32 = 1;
pub(crate) const ENVIRONMENT: u32 = 4;
pub(crate) const IO: u32 = 5;
pub(crate) const DECODE: u32 = 6;
pub(crate) const CONFIG: u32 = 7;
pub(crate) const TRY_AGAIN: u32 = 11;
pub(crate) const NOT_AVAILABLE: u32 = 50;
/// Codes from here on are a plugin's own.
const OTHER: u32 = 100;

const VERSIONS: [&str; 5] = ["0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"];
/// The metadata key of the network plugin's CNI error.
const CNI_ERROR: &str = "oxlet-cni-error-bin";

/// Why a verb failed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) code: u32,
    pub(crate) message: String,
    pub(crate) details: String,
}

impl Failure {
    pub(crate) fn new(code: u32, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            details: String::new(),
        }
    }

    /// Returns the failure for a refusal of the network plugin.
    pub(crate) fn refused(status: &Status) -> Self {
        let said = status.metadata().get_bin(CNI_ERROR);
        let said = said.and_then(|said| serde_json::from_slice(&said.to_bytes().ok()?).ok());
        let said: ChainError = said.unwrap_or_default();
        let code = match (said.code, status.code()) {
            (code @ 1.., _) => code,
            (0, Code::Aborted | Code::Unavailable) => TRY_AGAIN,
            (0, Code::InvalidArgument | Code::NotFound) => CONFIG,
            (0, Code::DeadlineExceeded) => IO,
            (0, _) => OTHER,
        };
        Self {
            code,
            message: status.message().to_owned(),
            details: said.details,
        }
    }

    pub(crate) fn to_json(&self) -> String {
        json!({
            "cniVersion": VERSIONS[VERSIONS.len() - 1],
            "code": self.code,
            "msg": self.message,
            "details": self.details,
        })
        .to_string()
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ChainError {
    code: u32,
    details: String,
}

/// The answer to VERSION.
pub(crate) fn versions() -> String {
    let newest = VERSIONS[VERSIONS.len() - 1];
    json!({ "cniVersion": newest, "supportedVersions": VERSIONS }).to_string()
}

pub(crate) fn is_version(text: &str) -> bool {
    VERSIONS.contains(&text)
}
