//! The double over the wire: watches, faults, outages, and kubectl.

#![allow(
    clippy::unwrap_used,
    reason = "what fails in a shorthand fails the test that uses it"
)]

mod faults;
mod kubectl;
mod outage;
mod secure;
mod watch;
mod wire;

use std::path::PathBuf;

/// Finds a program on the PATH.
fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
}
