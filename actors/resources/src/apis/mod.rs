//! The gRPC APIs on sockets of the node, and what they share: a limit of connections, and one of requests.

mod connections;
pub mod pod_resources;
pub mod pods;
mod rate;
