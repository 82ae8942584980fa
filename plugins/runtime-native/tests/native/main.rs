//! The plugin as a process, over real gRPC, with real containers.

#![allow(clippy::unwrap_used, reason = "all of a test binary is test")]

mod apparmor;
mod built_in;
mod checkpoint;
mod contract;
mod damage;
mod devices;
mod groups;
mod hangs;
mod images;
mod isolation;
mod kills;
mod network;
mod refusals;
mod rig;
mod start;
mod stats;
mod streams;
mod systemd;
mod users;
mod volumes;
