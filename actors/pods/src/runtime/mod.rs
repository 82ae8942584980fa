//! The container runtime as all pods share it: what it has of them, how many calls abreast it bears, and how they leave it for another one.

pub mod call_limiter;
pub mod dead_containers;
pub(crate) mod grace_periods;
pub mod handover;
pub mod pleg;
