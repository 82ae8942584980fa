//! The monitor as it ships, with real containers: by runc, and by oxlet-oci where a law is about both.
//!
//! Needs root, runc and busybox-static, and oxlet-oci built beside the monitor (`cargo build --workspace --bins`).

#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "all of a test binary is test"
)]

mod attach;
mod bounds;
mod breakouts;
mod crash;
mod exec;
mod life;
mod log;
mod resources;
mod rig;
mod users;
