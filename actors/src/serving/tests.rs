//! Laws of the servers.
