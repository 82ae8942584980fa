//! The CPU manager, by upstream's cases.

mod cpu_set;
mod machine;
pub(in crate::cpus) mod machines;

use super::*;

/// The set that a text lists.
pub(in crate::cpus) fn set(text: &str) -> CpuSet {
    text.parse().unwrap()
}
