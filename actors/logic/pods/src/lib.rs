//! Decisions about pods: whether one may run, what its worker does next and why, its status, its sandbox and
//! containers, its probes, images and environment (upstream's pkg/kubelet: kuberuntime, status, prober, images,
//! lifecycle).
//!
//! Read `pod_actions`, then `status`; the rest is what those ask.

pub mod admission;
pub mod api;
pub mod container;
pub mod images;
pub mod logs;
pub mod network;
pub mod pod_actions;
pub mod probes;
pub mod resize;
pub mod runtime;
pub mod sandbox;
pub mod security;
pub mod status;
mod worker_config;

pub use worker_config::PodWorkerConfig;
