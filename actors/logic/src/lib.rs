//! The pure decisions of the node, and the words they are made in.
//!
//! No clock, no files, no async: what is needed comes as arguments, and what is decided goes out as
//! data, with its reasons. Read `types`, then `pod_actions`, then `status`; the rest is what those ask.

pub mod pod;
pub mod types;

pub mod conditions;
pub mod field_path;
pub mod image_reference;
pub mod linux;
pub mod needed;
pub mod node_policy;
pub mod node_selector;
pub mod references;
pub mod strategic_patch;
pub mod volume_stats;

pub mod admission;
pub mod api_pods;
pub mod authz_attributes;
pub mod backoff;
pub mod container_logs;
pub mod events;
pub mod eviction;
pub mod gc;
pub mod hooks;
pub mod images;
pub mod log_query;
pub mod logs;
pub mod mirrors;
pub mod node;
pub mod node_status;
pub mod objects;
pub mod pleg;
pub mod pod_actions;
pub mod pod_cgroups;
pub mod pod_start;
pub mod probes;
pub mod qos;
pub mod requests;
pub mod resize;
pub mod runtime_state;
pub mod shutdown;
pub mod status;
pub mod status_patch;
pub mod strict_decode;
pub mod summary;
pub mod take_over;
pub mod terminal_on_arrival;
pub mod termination;
pub mod thresholds;
pub mod unsupported_fields;

pub mod app_armor;
pub mod certificates;
pub mod container;
pub mod credentials;
pub mod dns;
pub mod env_file;
pub mod environment;
pub mod hash;
pub mod hosts;
pub mod labels;
pub mod manifest;
pub mod quantity;
pub mod resources;
pub mod runtime_class;
pub mod sandbox;
pub mod security;
pub mod services;
pub mod sysctls;
pub mod user_namespaces;
pub mod volumes;

#[cfg(test)]
mod testing;
