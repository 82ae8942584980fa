//! The simulated node over real gRPC on a Unix socket, most of it under a paused clock.

#![allow(
    clippy::unwrap_used,
    reason = "what fails in a shorthand fails the test that uses it"
)]

mod containers;
mod events;
mod faults;
mod images;
mod kubectl;
mod life;
mod process;
mod rig;
mod sandboxes;
mod scale;
