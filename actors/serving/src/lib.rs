//! The kubelet's HTTPS API: callers are authenticated and authorized, then answered.

// The server's policy, and the interfaces of node and API server.
pub mod node;
pub mod policy;
pub mod reviews;

// Endpoints and servers.
pub mod healthz;
pub mod https;
pub mod read_only;

// Authentication and authorization.
pub mod authn;
mod authz;
mod decision_cache;

// Containers' logs.
mod logs;

// Listeners, connections, and HTTP over them.
mod connection_limiter;
pub mod http;
pub mod listen;
pub mod server;

pub use https::{CertificateReceiver, Https, PolicyError};
pub use node::{KubeletHost, NodeError, PodsWithStatuses};
pub use policy::Policy;
pub use read_only::ReadOnlyHandlers;
pub use reviews::{
    Attributes, AuthenticatedUser, Decision, NoReviews, RequestHistory, ReviewError, Reviews,
};
pub use server::{AcceptError, MAILBOX, Msg, Snapshot};
