//! A client of registries (OCI distribution-spec 1.1): what is asked for, where, and with whose credentials.
//!
//! **Invariant:** credentials go to the registry that a reference names and to its token service, and nowhere else: not
//! to mirrors, not along a redirect. **Invariant:** every wait for a registry ends.

mod auth;
mod fetch;
mod hosts;
mod tls;
mod transport;

pub use self::auth::Auth;
pub(crate) use self::fetch::{Piece, Registry};
pub use self::hosts::HostsError;

/// What a registry did not do.
#[derive(Debug, thiserror::Error)]
#[error("registry {registry} did not serve {what}")]
pub struct RegistryError {
    /// The host that was asked.
    pub registry: String,
    /// The reference or digest.
    pub what: String,
    /// Why not.
    #[source]
    pub failure: Failure,
}

/// Why a registry did not serve something.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// It can't be reached, or the connection broke.
    #[error("the connection failed: {0}")]
    Connection(String),
    /// It sent nothing for too long.
    #[error("it sent nothing for {0:?}")]
    Stalled(std::time::Duration),
    /// It has no such thing.
    #[error("it has no such thing")]
    NotFound,
    /// It refuses this user.
    #[error("it refuses the credentials: status {0}")]
    Denied(u16),
    /// It answered with an error.
    #[error("status {0}, expected 200")]
    Status(u16),
    /// It told or sent another length.
    #[error("it sent {found} bytes, expected {expected}")]
    Length {
        /// Bytes told or sent.
        found: u64,
        /// Bytes that the manifest tells.
        expected: u64,
    },
    /// It sent more than a document may have.
    #[error("it sent more than {0} bytes")]
    TooLong(usize),
    /// It sent something else.
    #[error("it sent {found}, expected {expected}")]
    Content {
        /// A content type or digest.
        found: String,
        /// What was to come.
        expected: String,
    },
    /// It redirects in a way that is not followed.
    #[error("its redirect is refused: {0}")]
    Redirect(&'static str),
    /// It asks for credentials in a way that is not answered.
    #[error("its challenge is refused: {0}")]
    Challenge(&'static str),
    /// Its hosts.toml or certificates are of no use.
    #[error("its configuration is of no use")]
    Configuration(#[source] HostsError),
}

impl RegistryError {
    /// Tells whether the same request may succeed later without anybody's doing.
    pub fn transient(&self) -> bool {
        match self.failure {
            Failure::Connection(_) | Failure::Stalled(_) => true,
            Failure::Status(status) => status >= 500 || status == 429 || status == 408,
            Failure::NotFound
            | Failure::Denied(_)
            | Failure::Length { .. }
            | Failure::TooLong(_)
            | Failure::Content { .. }
            | Failure::Redirect(_)
            | Failure::Challenge(_)
            | Failure::Configuration(_) => false,
        }
    }
}
