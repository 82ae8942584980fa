//! Errors of a chain: as CNI has them, with the network, the plugin and the verb.

use serde::{Deserialize, Serialize};
use serde_json::json;
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::{Code, Status};

use super::process::ProcessError;
use crate::result::ResultError;

/// The metadata key of a CNI error.
const CNI_ERROR: &str = "oxlet-cni-error-bin";
/// "Try again later", in the specification's list of codes.
const TRY_AGAIN: u32 = 11;
/// A status travels in headers, which have a bound.
const TEXT_MAX: usize = 2000;
const DETAIL_MAX: usize = 1000;

/// A plugin's own words about its failure.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CniError {
    /// One of the specification's codes, or of the plugin's own from 100 on.
    pub code: u32,
    /// What went wrong.
    pub msg: String,
    /// More about it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub details: String,
}

/// A verb failed at one plugin of a chain.
#[derive(Debug, thiserror::Error)]
#[error("network {network:?}: plugin {plugin:?} failed at {verb}: {cause}")]
pub(crate) struct ChainError {
    pub(crate) network: String,
    pub(crate) plugin: String,
    pub(crate) verb: &'static str,
    pub(crate) cause: Cause,
}

/// What went wrong at a plugin.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Cause {
    #[error("failed to find plugin {plugin:?} in path [{path}]{}", reason(.why))]
    Missing {
        plugin: String,
        path: String,
        /// Why it is not done without its program.
        why: String,
    },
    #[error("it {0}")]
    Process(ProcessError),
    #[error("{}", said(.0))]
    Said(CniError),
    #[error("its output is {0}")]
    Result(ResultError),
    #[error("too many plugins run already")]
    Busy,
    #[error("{}", .0.message())]
    Files(Status),
}

fn reason(why: &str) -> String {
    match why {
        "" => String::new(),
        why => format!("; not built in: {why}"),
    }
}

fn said(error: &CniError) -> String {
    match error.details.is_empty() {
        true => error.msg.clone(),
        false => format!("{}: {}", error.msg, error.details),
    }
}

impl ChainError {
    /// Returns the gRPC code of the cause; `Check` makes of a plugin's no a failed precondition.
    fn code(&self) -> Code {
        match &self.cause {
            Cause::Missing { .. } => Code::Unavailable,
            Cause::Process(ProcessError::Late) => Code::DeadlineExceeded,
            Cause::Busy => Code::ResourceExhausted,
            Cause::Said(error) if error.code == TRY_AGAIN => Code::Aborted,
            Cause::Said(_) if self.verb == "CHECK" => Code::FailedPrecondition,
            Cause::Files(status) => status.code(),
            Cause::Process(_) | Cause::Said(_) | Cause::Result(_) => Code::Internal,
        }
    }
}

impl From<ChainError> for Status {
    fn from(error: ChainError) -> Self {
        let mut metadata = MetadataMap::new();
        if let Cause::Said(said) = &error.cause {
            let said = CniError {
                msg: cut(&said.msg, DETAIL_MAX),
                details: cut(&said.details, DETAIL_MAX),
                code: said.code,
            };
            let text = json!(said).to_string();
            metadata.insert_bin(CNI_ERROR, MetadataValue::from_bytes(text.as_bytes()));
        }
        Self::with_metadata(error.code(), cut(&error.to_string(), TEXT_MAX), metadata)
    }
}

/// Control characters would grow sixfold in JSON, and mean nothing on one line.
fn cut(text: &str, most: usize) -> String {
    let end = text.floor_char_boundary(most);
    let kept = text[..end].replace(char::is_control, " ");
    match end < text.len() {
        true => format!("{kept} ..."),
        false => kept,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_a_plugin_says_fits_into_the_headers_of_an_answer() {
        for noise in ["\u{0}", "\"", "\u{fffd}", "\n"] {
            let words = noise.repeat(1 << 20);
            let error = ChainError {
                network: "net".to_owned(),
                plugin: "plugin".to_owned(),
                verb: "ADD",
                cause: Cause::Said(CniError {
                    code: 7,
                    msg: words.clone(),
                    details: words,
                }),
            };
            let status = Status::from(error);
            let said = status.metadata().get_bin(CNI_ERROR).unwrap();
            // Base64 in the one, per cent in the other; a client takes 16 KiB by default.
            let length = said.as_encoded_bytes().len() + 3 * status.message().len();
            assert!(length < 13_000, "{length}");
        }
    }
}
