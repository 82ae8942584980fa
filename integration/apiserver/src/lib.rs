//! A double of the Kubernetes API server, for tests: objects are JSON in memory, behaviour on the wire is upstream's.
//!
//! The way of a request: `server` accepts the connection (TLS as `auth` has it, if asked for) and reads an HTTP
//! request; `server::faults` may spoil it; `endpoints::request_info::RequestInfo` parses it: verb, resource, namespace,
//! name, subresource, query, user, body; `auth` authenticates and authorizes it; `server::routes` hands it to `verbs`
//! (objects and watches), `encoding::tables`, `endpoints::discovery`, or to what is beside the store: `nodes` (logs, exec,
//! attach, port-forward, proxy and metrics: proxied to the kubelets), `certificates` (signing), `auth::tokens`
//! (TokenRequest, TokenReview, SubjectAccessReview).
//!
//! Shared by all: `server::state::State`, an `Arc` with the store, options, faults and the journal, each behind its own
//! lock; no lock is held across an await. Answers are `endpoints::answer::Response`, refusals are
//! `endpoints::answer::StatusError`, which becomes a `Status` on the wire.
//!
//! Beside it, `real` starts a real server with its etcd where the PATH has them, and `api_server` is whichever of both.
//!
//! A server lives on a thread of its own, so that the tests' runtime may have a paused clock, or be killed. A simulated one
//! (`Server::simulated`) lives on the caller's: all that it does follows from its seed and from what it is asked.

mod api_server;
mod clock;
mod encoding;
mod endpoints;
mod kinds;
mod pods;
mod real;
mod server;
mod store;
mod verbs;

mod auth;
mod certificates;
mod nodes;

pub use api_server::ApiServer;
pub use auth::identity::CallerIdentity;
pub use auth::{AccessAttributes, CertificateWithKey};
pub use certificates::SigningPolicy;
pub use endpoints::answer::StatusError;
pub use nodes::no_verification::NoServerVerification;
pub use real::{Real, ServerPrograms};
pub use server::Server;
pub use server::faults::{ApiFault, Effect};
pub use server::options::{AccessControl, ServerOptions};
pub use server::request_log::RecordedRequest;
