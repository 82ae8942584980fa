//! A node to try out: the agent as a process in a folder of its own, a private containerd, images made by hand, and
//! `try-oxlet`, which shows them. Everything else that stands around the agent in tests is built on it; nothing here ships.
//!
//! A crate of its own, because `make run` should build no more than it needs.

pub mod agent;
pub mod containerd;
pub mod http;
pub mod images;
pub mod random;
pub mod try_node;
mod wait;

pub use wait::{patient, wait_for, wait_until};
