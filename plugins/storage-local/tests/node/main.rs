//! The plugin over real gRPC on a Unix socket, on the real kernel.

#![allow(
    clippy::unwrap_used,
    reason = "what fails in a shorthand fails the test that uses it"
)]

mod calls;
mod hang;
mod kills;
mod rig;
