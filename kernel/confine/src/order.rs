//! What a process is told to do to itself, and what it says about it.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::{Capabilities, SystemCalls};

/// Carried out from the first field to the last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// The cgroups to join, as folders; they are there.
    pub groups: Vec<PathBuf>,
    /// Whether `/tmp` becomes an empty file system of the process's own.
    pub private_tmp: bool,
    /// The capabilities that the process and its children may ever have.
    pub capabilities: Capabilities,
    /// Whether no program that it executes gains privileges by its file.
    pub no_new_privileges: bool,
    /// The system calls that it and its children may make.
    pub system_calls: SystemCalls,
}

/// A line on standard output, as JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Word {
    /// A part of the order that the machine refuses; the rest is carried out.
    Refused(String),
    /// The program does not start.
    Failed(String),
}
