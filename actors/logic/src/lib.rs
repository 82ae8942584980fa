//! The pure decisions of the node, and the words they are made in.
//!
//! No clock, no files, no async: what is needed comes as arguments, and what is decided goes out as
//! data, with its reasons. Read `types`, then `worker`, then `status`; the rest is what those ask.

pub mod pod;
pub mod types;

pub mod backoff;
pub mod eviction;
pub mod gc;
pub mod honoured;
pub mod images;
pub mod pleg;
pub mod pressure;
pub mod qos;
pub mod seen;
pub mod status;
pub mod worker;

pub mod container;
pub mod dns;
pub mod environment;
pub mod hash;
pub mod labels;
pub mod manifest;
pub mod quantity;
pub mod resources;
pub mod sandbox;
pub mod security;

#[cfg(test)]
mod testing;
