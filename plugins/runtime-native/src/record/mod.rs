//! Sandboxes and containers as records on disk: what a successor of this process, killed at any point, goes on from.
//!
//! A record is written before anything is made of its object (`Making`), and again when all of it stands. What is found
//! in `Making` is taken apart by the successor: nobody has been told of it. While something is made no call waits for the
//! disk, which has the record a moment later (`sync`); ends are on the disk before they are told.

pub(crate) mod convert;
mod file;
mod id;
mod sync;
#[cfg(test)]
mod tests;

use std::fmt;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use proto::cri::{ContainerConfig, PodSandboxConfig};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

pub(crate) use file::{RecordError, RecordStore, Records};
pub(crate) use id::{boot_id, is_id, new_id};
pub(crate) use sync::{RecordSync, sync};

use crate::spec::ProcessUser;

/// A message of CRI inside a record, as its protobuf bytes in base64: nothing of it is lost, known to this build or not.
#[derive(Clone, PartialEq, Default)]
pub(crate) struct Wire<T>(pub(crate) T);

impl<T: fmt::Debug> fmt::Debug for Wire<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<T: prost::Message> Serialize for Wire<T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&BASE64_STANDARD.encode(self.0.encode_to_vec()))
    }
}

impl<'de, T: prost::Message + Default> Deserialize<'de> for Wire<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        let bytes = BASE64_STANDARD.decode(text).map_err(de::Error::custom)?;
        T::decode(bytes.as_slice())
            .map(Wire)
            .map_err(de::Error::custom)
    }
}

/// Where a sandbox is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum SandboxPhase {
    /// Being made; not told of yet.
    Making,
    Ready,
    /// Stopped, or found without its namespaces.
    NotReady,
}

/// A sandbox.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SandboxRecord {
    pub(crate) id: String,
    /// Unique among sandboxes: pod, namespace, uid and attempt.
    pub(crate) name: String,
    pub(crate) phase: SandboxPhase,
    pub(crate) config: Wire<PodSandboxConfig>,
    /// The name of its runtime handler; empty is the default one.
    pub(crate) handler: String,
    /// Nanoseconds since 1970.
    pub(crate) created: i64,
    /// The boot that its namespaces and processes belong to.
    pub(crate) boot: String,
    /// Addresses without their prefix lengths, the first one is the pod's.
    #[serde(default)]
    pub(crate) addresses: Vec<String>,
    /// Whether the network plugin was asked for an attachment that it has not been asked to delete since.
    #[serde(default)]
    pub(crate) attached: bool,
}

/// How a container ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ExitRecord {
    pub(crate) code: i32,
    /// CRI's word: `Completed`, `Error`, `OOMKilled`, `Unknown`, `StartError`.
    pub(crate) reason: String,
    pub(crate) message: String,
    /// Nanoseconds since 1970.
    pub(crate) finished: i64,
}

/// Where a container is in its life. That it runs is the monitor's knowledge, and is not written here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ContainerPhase {
    /// Being made; not told of yet.
    Making,
    /// Made: whether it was started and runs is asked of the monitor.
    Made,
    Exited(ExitRecord),
}

/// A container.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ContainerRecord {
    pub(crate) id: String,
    pub(crate) sandbox: String,
    /// Unique among containers: container, pod, namespace, uid and attempt.
    pub(crate) name: String,
    pub(crate) phase: ContainerPhase,
    pub(crate) config: Wire<ContainerConfig>,
    /// The id of its image.
    pub(crate) image: String,
    /// A digest reference of its image, where it has one.
    pub(crate) image_ref: String,
    /// Absolute; empty is no log.
    pub(crate) log: String,
    /// Nanoseconds since 1970, as `started`.
    pub(crate) created: i64,
    /// 0 before its start, or before the monitor has told of it.
    #[serde(default)]
    pub(crate) started: i64,
    pub(crate) boot: String,
    #[serde(default)]
    pub(crate) user: ProcessUser,
    /// The signal by which it is stopped: a number.
    pub(crate) stop_signal: i32,
    /// Why the OCI runtime did not make it, which its start tells; the monitor knows nothing of it then.
    #[serde(default)]
    pub(crate) not_made: Option<String>,
}
