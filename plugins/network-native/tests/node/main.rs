//! The plugin over real gRPC on a Unix socket, in network namespaces that stand for a node, its pods and its
//! neighbours; beside it the standard CNI plugins' programs, where they are installed.

#![allow(
    clippy::unwrap_used,
    reason = "what fails in a shorthand fails the test that uses it"
)]

mod addresses;
mod changeover;
mod contract;
mod cost;
mod fallback;
mod masquerade;
mod ports;
mod rig;
mod same;
mod view;
