//! The kubelet's HTTPS API: callers are known and permitted, then answered.

// What the operator decided, and whom the server asks.
pub mod node;
pub mod policy;
pub mod reviews;

// What is served.
pub mod healthz;
pub mod https;

pub mod read_only;

// Who is let in, and to what.
pub mod authn;
mod authz;
mod decision_cache;

// What containers wrote.
mod logs;

// How connections are had, and HTTP is spoken over them.
mod connection_limiter;
pub mod http;
pub mod listen;
pub mod server;

pub use https::{CertificateReceiver, Https, PolicyError};
pub use node::{KubeletHost, NodeError, PodsWithStatuses};
pub use policy::Policy;
pub use read_only::ReadOnly;
pub use reviews::{Attributes, AuthenticatedUser, Decision, NoReviews, ReviewError, Reviews};
pub use server::{AcceptError, MAILBOX, Msg, Snapshot};
