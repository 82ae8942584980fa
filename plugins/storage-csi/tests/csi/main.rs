//! The plugin over real gRPC, before a small CSI driver in the test's own process that mounts for real, below the
//! test's own folder.

#![allow(
    clippy::unwrap_used,
    reason = "what fails in a shorthand fails the test that uses it"
)]

mod block;
mod contract;
mod double;
mod faults;
mod files;
mod interrupted;
mod registration;
mod rig;
mod uncertain;
