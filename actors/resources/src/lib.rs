//! The node's resources: what is used, who goes when it runs short, what is healthy, and the node's end. One file or
//! folder an actor; `area` spawns them.

pub mod apis;
pub mod area;
mod authority;
pub mod container_gc;
pub mod container_manager;
pub mod device_manager;
pub mod dynamic_resources;
pub mod eviction;
pub mod image_gc;
pub mod iptables;
pub mod node_health;
pub mod oom;
pub mod pod_cidr;
pub mod shutdown;
pub mod stats;
