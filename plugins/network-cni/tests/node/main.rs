//! The plugin over real gRPC on a Unix socket: with CNI plugins that are scripts and do what a test wants, and with
//! the standard ones.

#![allow(
    clippy::unwrap_used,
    reason = "what fails in a shorthand fails the test that uses it"
)]

mod chain;
mod collection;
mod contract;
mod faults;
mod folder;
mod kills;
mod rig;
mod standard;
