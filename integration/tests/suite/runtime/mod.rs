//! A real containerd beneath a node: the rig that starts it, the runtime contract, its events.

mod contract;
mod events;
mod handover;
mod native;
mod native_kills;
mod rig;
