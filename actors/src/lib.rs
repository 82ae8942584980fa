//! The node's actors: one file or folder each. `ls` of this folder is the feature list.
//!
//! Read [`tree`] first: it is the picture of the system. Then one actor, from its `//!` down; the
//! decisions that it carries out are in the crates of `logic`, mostly under the same name.

pub mod tree;

pub mod checkpoints;
pub mod collectors;
pub mod credentials;
pub mod eviction;
pub mod hooks;
pub mod hosts;
pub mod images;
pub mod logging;
pub mod logs;
pub mod node_health;
pub mod pleg;
pub mod pod_cgroups;
pub mod pod_manager;
pub mod pod_resources;
pub mod probe_client;
pub mod prober;
pub mod runtime;
pub mod serving;
pub mod settings;
pub mod shutdown;
pub mod sources;
pub mod stats;
pub mod storage;
pub mod take_over;
pub mod termination;
pub mod user_namespaces;
pub mod volumes;
pub mod worker;

#[cfg(test)]
mod testing;
