//! Fuzz targets: whatever bytes stand in a manifest, a configuration, a plugin file, on the command line or in a
//! checkpoint, the answer is a value or an error, soon, and never a panic.
//!
//! A target runs in a process of its own, so that a stack overflow, an abort, a hang or a hunger for memory is found as
//! well as a panic. Inputs are mutations of a corpus of valid ones ([`mutate`]); there is no feedback from
//! coverage, for which stable Rust has no means. The seed is printed, so a run can be repeated.

mod corpus;
mod mutate;
mod targets;
mod watched;

use std::path::PathBuf;
use std::time::Duration;

pub use self::targets::{Target, all};
pub use self::watched::{FOUND, Outcome, watch};

/// How a target is run.
#[derive(Clone, Debug)]
pub struct Run {
    /// How long.
    pub lasting: Duration,
    /// What the mutations follow from.
    pub seed: u64,
    /// Where inputs are kept that something was wrong with.
    pub folder: PathBuf,
}
