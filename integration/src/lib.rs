//! Rigs and doubles that stand around the agent in tests: nothing here ships.

pub mod agent;
pub mod bench;
pub mod chaos;
pub mod cluster;
pub mod containerd;
pub mod csi_driver;
pub mod fuzz;
pub mod http;
pub mod images;
pub mod logind;
pub mod pods;
pub mod registry;
pub mod stuck_mount;
pub mod tls;
pub mod try_node;
mod wait;

pub use wait::wait_until;
