//! Decisions about the node itself: its status and registration, its certificates, its shutdown, and queries of its
//! logs (upstream's pkg/kubelet/nodestatus, certificate, nodeshutdown).

pub mod certificates;
pub mod log_query;
pub mod node_status;
pub mod shutdown;
