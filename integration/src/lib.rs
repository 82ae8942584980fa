//! Rigs and doubles that stand around the agent in tests: nothing here ships.

pub mod agent;
pub mod bench;
pub mod chaos;
pub mod clients;
pub mod cluster;
pub mod containerd;
pub mod doubles;
pub mod fuzz;
pub mod images;
pub mod pods;
pub mod try_node;
mod wait;

pub use wait::wait_until;
