//! Decisions about pods: whether one may run, what its worker does next and why, its status, its sandbox and
//! containers, its probes, images and environment (upstream's pkg/kubelet: kuberuntime, status, prober, images,
//! lifecycle).
//!
//! Read `pod_actions`, then `status`; the rest is what those ask.

pub mod admission;
pub mod api_pods;
pub mod app_armor;
pub mod container;
pub mod container_logs;
pub mod credentials;
pub mod dns;
pub mod environment;
pub mod hooks;
pub mod hosts;
pub mod images;
pub mod logs;
pub mod mirrors;
pub mod needed;
pub mod pleg;
pub mod pod_actions;
pub mod pod_start;
pub mod probes;
pub mod references;
pub mod resize;
pub mod runtime_class;
pub mod runtime_state;
pub mod sandbox;
pub mod security;
pub mod services;
pub mod status;
pub mod status_patch;
pub mod take_over;
pub mod terminal_on_arrival;
pub mod termination;
pub mod user_namespaces;
mod worker_config;

pub use worker_config::PodWorkerConfig;
