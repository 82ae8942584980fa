//! The pods of the node: their manager, a worker each, and the actors that serve all of them. One file or folder an
//! actor.
//!
//! Read [`pod_manager`], then [`worker`]; decisions are in `logic_pods`, mostly under the same name.

pub mod area;
pub mod cgroups;

// Which pods there are.
pub mod pod_manager;
pub mod sources;
pub mod worker;

// What serves all pods.
pub mod images;
pub mod logs;
pub mod prober;
pub mod runtime;

// What a worker does for its pod.
pub mod collectors;
pub mod hooks;
pub mod hosts;
pub mod termination;

#[cfg(any(test, feature = "testing"))]
pub mod testing;
