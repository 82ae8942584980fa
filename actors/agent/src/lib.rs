//! The node agent: its tree, its settings, its endpoints, its service manager.
//!
//! Read [`tree`] first: it is the picture of the system. The actors are in the crates of the areas: `state`, `volumes`,
//! `pods`, `resources`, `cluster`; decisions are in the crates of `logic`.

pub mod endpoints;
pub mod logging;
mod mounter;
pub mod own_process;
pub mod service_manager;
pub mod settings;
mod standalone;
pub mod tree;
