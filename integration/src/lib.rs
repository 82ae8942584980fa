//! Rigs and doubles that stand around the agent in tests: nothing here ships.

pub mod bench;
pub mod chaos;
pub mod cluster;
pub mod doubles;
pub mod fuzz;
pub mod pods;
pub mod tls;

pub use rig::{agent, containerd, http, images, patient, wait_for, wait_until};
