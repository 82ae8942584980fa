//! The container runtime as all pods share it: what it has of them, how many starts it bears, and how they leave it for another one.

pub mod handover;
pub mod pleg;
pub mod start_limiter;
