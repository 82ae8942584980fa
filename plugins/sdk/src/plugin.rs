//! A plugin's description, its setup, and its refusal.

use std::error::Error;
use std::fmt;
use std::path::PathBuf;

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error_chain::error_chain;
use crate::health::Health;

/// A plugin's description: its answer to `Info`.
#[derive(Clone, Debug)]
pub struct Info {
    /// The program's own name, e.g. "runtime-containerd".
    pub name: &'static str,
    /// The program's version, e.g. "0.1.0".
    pub version: &'static str,
    /// Which service it serves beside the base one.
    pub kind: Kind,
    /// Abilities beyond the contract, each a word that the agent may know.
    pub capabilities: Vec<&'static str>,
}

/// The kind of a plugin: which service it serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A container runtime: CRI.
    Runtime,
    /// Pod networking.
    Network,
    /// Volumes: `oxlet.storage.v1`.
    Storage,
}

impl From<Kind> for proto::plugin::Kind {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Runtime => Self::Runtime,
            Kind::Network => Self::Network,
            Kind::Storage => Self::Storage,
        }
    }
}

/// The agent's configuration of a plugin process.
#[derive(Debug)]
pub struct Setup {
    /// The name it was declared under.
    pub name: String,
    /// 1 for the first process of this name, one more for each successor.
    pub generation: u64,
    /// A folder of its own that outlives the process.
    pub dir: PathBuf,
    /// Its section of the plugin file; `null` when there is none.
    pub configuration: Value,
    /// For reports of its health.
    pub health: Health,
}

impl Setup {
    /// Reads the configuration as `T`; a missing one reads as an empty object.
    ///
    /// # Errors
    /// [`Refusal`] names the field; as the answer to Configure it reaches the operator.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, Refusal> {
        let mut value = self.configuration.clone();
        if value.is_null() {
            value = Value::Object(serde_json::Map::new());
        }
        serde_json::from_value(value).map_err(|error| {
            Refusal::new(format!("configuration of plugin {}: {error}", self.name))
        })
    }
}

/// Why a plugin cannot work: a sentence for the operator.
///
/// `?` converts any error into one, with its causes after colons.
#[derive(Debug)]
pub struct Refusal(String);

impl Refusal {
    /// Makes a refusal of this sentence.
    pub fn new(sentence: impl Into<String>) -> Self {
        Self(sentence.into())
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

// Possible because Refusal is no Error itself: it is where errors end.
impl<E: Error> From<E> for Refusal {
    fn from(error: E) -> Self {
        Self(error_chain(&error))
    }
}
