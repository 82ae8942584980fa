//! A client's credentials: certificates, tokens and credential plugins.

mod auth_info;
pub(crate) mod client_certificate;
pub(crate) mod credentials;
mod exec;
