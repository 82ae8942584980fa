//! Connections to the API server: dialled, secured by TLS, shared by all requests.

pub(crate) mod address;
pub(crate) mod connections;
pub(crate) mod dial;
pub(crate) mod proxy;
pub(crate) mod server;
mod stream;
pub(crate) mod tls;
