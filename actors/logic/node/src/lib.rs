//! Decisions about the node itself: its status and registration, its certificates, its shutdown, queries of its logs,
//! and the service manager's watchdog (upstream's pkg/kubelet/nodestatus, certificate, nodeshutdown, watchdog).

pub mod certificates;
pub mod log_query;
pub mod node_status;
pub mod shutdown;
pub mod watchdog;
