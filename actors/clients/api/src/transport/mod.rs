//! Connections to the API server: dialled, secured by TLS, shared by all requests.

pub(crate) mod connections;
pub(crate) mod dial;
pub(crate) mod proxy;
pub(crate) mod server;
pub(crate) mod tls;
