//! A client of registries (OCI distribution-spec 1.1): what is asked for, where, and with whose credentials.
//!
//! **Invariant:** credentials go to the registry that a reference names and to its token service, and nowhere else: not
//! to mirrors, not along a redirect. **Invariant:** every wait for a registry ends, and everything that it sends has a
//! bound: the constants `MAX_...` of these files, and [`Limits`](crate::Limits).

mod auth;
mod certificates;
mod connector;
mod failure;
mod fetch;
mod hostile;
mod hosts;
mod memory;
mod meter;
mod tls;
mod transport;
mod words;

pub use self::auth::Auth;
pub use self::failure::{Failure, RegistryError};
pub(crate) use self::fetch::{Piece, Registry, Source, Surroundings};
pub(crate) use self::hostile::{read_answer, read_hosts};
pub use self::hosts::HostsError;
pub(crate) use self::memory::HostMemory;
pub use self::words::Words;
