//! Desired and actual mounts of all pods: the volume manager, one actor.
//!
//! - [`manager`]: the actor; it begins what the reconciler plans, and answers whoever waits.
//! - `messages`, `timers`, `completion`: what it hears: requests and questions, its own timers, its own tasks' results.
//! - `mount_requests`, `resolving`: the requests of pods, and their volumes as the API's objects have them (upstream's
//!   desired state of world and its populator).
//! - `executor`: the work on volumes, by the storage plugins: operations, their drivers and limits, subpaths, measurements.
//! - `reporter`: what the API server is told of volumes in use, drivers, stuck volumes and grown claims.
//!
//! The desired and the actual state, and what follows from them, are `logic_volumes::reconciler`.
//! Upstream: pkg/kubelet/volumemanager and pkg/volume/util/operationexecutor (1.36).

pub mod area;
mod completion;
mod executor;
pub mod manager;
mod messages;
mod metrics;
mod mount_requests;
mod reporter;
mod resolving;
#[cfg(test)]
mod tests;
mod timers;
mod view;

pub use self::completion::VolumeCompletion;
pub use self::manager::{MAILBOX, Peers, Policy, Snapshot, VolumeHealthPolicy, VolumeManager};
pub use self::messages::{Msg, NotMounted, NotReleased, Retry, SubpathBindError, VolumeQuery};
pub use self::reporter::ApiPeers;
pub use self::timers::VolumeTimer;
pub use self::view::{VolumeView, VolumesView};
