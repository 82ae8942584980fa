//! A double of the Kubernetes API server, for tests: objects are JSON in memory, behaviour on the wire is upstream's.
//!
//! The way of a request: `server` accepts the connection (TLS as `auth` has it, if asked for) and reads an HTTP
//! request; `faults` may spoil it; `request_info::RequestInfo` parses it: verb, resource, namespace, name, subresource,
//! query, user, body; `auth` authenticates and authorizes it; `server::routes` hands it to `verbs` (objects), `watch`,
//! `tables`, `discovery`, or to what is beside the store: `nodes` (logs, exec, attach, port-forward, proxy and metrics:
//! proxied to the kubelets), `certificates` (signing), `tokens` (TokenRequest, TokenReview, SubjectAccessReview).
//!
//! Shared by all: `state::State`, an `Arc` with the store, options, faults and the journal, each behind its own lock;
//! no lock is held across an await. Answers are `answer::Response`, refusals are `answer::StatusError`, which becomes a
//! `Status` on the wire.
//!
//! Beside it, `real` starts a real server with its etcd where the PATH has them, and `api_server` is whichever of both.
//!
//! A server lives on a thread of its own, so that the tests' runtime may have a paused clock, or be killed. A simulated one
//! (`Server::simulated`) lives on the caller's: all that it does follows from its seed and from what it is asked.

mod answer;
mod api_server;
mod clock;
mod discovery;
mod empty_fields;
mod events;
mod faults;
mod kinds;
mod no_verification;
mod openapi;
mod options;
mod patches;
mod pods;
mod protobuf;
mod real;
mod request_info;
mod request_log;
mod selectors;
mod server;
mod simulation;
mod state;
mod store;
mod tables;
mod verbs;
mod watch;

mod auth;
mod certificates;
mod nodes;
mod tokens;

pub use answer::StatusError;
pub use api_server::ApiServer;
pub use auth::identity::CallerIdentity;
pub use auth::{AccessAttributes, CertificateWithKey};
pub use certificates::SigningPolicy;
pub use faults::{ApiFault, Effect};
pub use no_verification::NoServerVerification;
pub use options::{AccessControl, ServerOptions};
pub use real::{Real, ServerPrograms};
pub use request_log::RecordedRequest;
pub use server::Server;
