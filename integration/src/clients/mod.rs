//! Clients of tests: HTTP without and with TLS, free in what they send.

pub mod http;
pub mod tls;
