//! Decisions about the node itself: its status and registration, its certificates, its shutdown, queries of its logs,
//! the service manager's watchdog, and the rules of iptables that others need (upstream's pkg/kubelet/nodestatus, certificate,
//! nodeshutdown, watchdog, kubelet_network_linux.go).

pub mod certificates;
pub mod iptables;
pub mod log_query;
pub mod node_status;
pub mod shutdown;
pub mod watchdog;
