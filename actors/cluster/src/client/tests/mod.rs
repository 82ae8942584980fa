//! The client against servers that misbehave as told.

mod access;
mod asking;
mod connections;
mod credentials;
pub(crate) mod rig;
mod watches;
