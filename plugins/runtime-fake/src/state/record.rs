//! Records of the journal: one a change. A compacted journal holds the whole state in such records too.

use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

use crate::program::environment::ContainerFiles;
use crate::program::interpreter::Interpreter;
use crate::state::id::Seq;
use crate::state::image::ImageRecord;

/// A change of the state. Variants are only added, at the end: their place is their number on disk.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum JournalRecord {
    /// The folder is used for the first time.
    Born {
        salt: u64,
    },
    /// How far sequence numbers and time had come.
    Reached {
        next: Seq,
        latest: i64,
    },
    Sandbox(SandboxRecord),
    SandboxStopped {
        seq: Seq,
        at: i64,
    },
    SandboxConfig {
        seq: Seq,
        config: Vec<u8>,
    },
    SandboxRemoved {
        seq: Seq,
    },
    Container(ContainerRecord),
    Phase {
        seq: Seq,
        at: i64,
        phase: ContainerPhase,
    },
    Files {
        seq: Seq,
        files: ContainerFiles,
    },
    ContainerConfig {
        seq: Seq,
        config: Vec<u8>,
    },
    ContainerRemoved {
        seq: Seq,
    },
    Image(ImageRecord),
    ImageRemoved {
        id: String,
    },
}

/// A sandbox as it is kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SandboxRecord {
    pub(crate) seq: Seq,
    pub(crate) created: i64,
    pub(crate) stopped: Option<i64>,
    pub(crate) ip: Option<Ipv4Addr>,
    pub(crate) handler: Box<str>,
    /// Its reserved name: what makes a second one like it impossible.
    pub(crate) name: Box<str>,
    /// CRI's PodSandboxConfig, encoded.
    pub(crate) config: Box<[u8]>,
}

/// A container as it is kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ContainerRecord {
    pub(crate) seq: Seq,
    pub(crate) sandbox: Seq,
    pub(crate) created: i64,
    pub(crate) name: Box<str>,
    /// The id of its image.
    pub(crate) image: Box<str>,
    /// The whole path of its log; empty for none.
    pub(crate) log: Box<str>,
    /// CRI's ContainerConfig, encoded.
    pub(crate) config: Box<[u8]>,
    pub(crate) files: ContainerFiles,
    pub(crate) phase: ContainerPhase,
}

/// Where a container is in its life.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum ContainerPhase {
    Created,
    Running {
        started: i64,
        machine: Interpreter,
    },
    Exited {
        started: i64,
        finished: i64,
        code: i32,
        reason: Box<str>,
        message: Box<str>,
    },
}
