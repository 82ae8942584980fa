//! The vocabulary that all decisions share: pods as they are defined and as a runtime shows them, quantities, names,
//! conditions, manifests, and the objects of the API that pods refer to.
//!
//! Like every crate of `actors/logic`: no clock, no files, no async. What is needed comes as arguments, and what is
//! decided goes out as data, with its reasons. Read `types` and `pod` first.

pub mod authz_attributes;
pub mod backoff;
pub mod decode;
pub mod events;
pub mod linux;
pub mod manifest;
pub mod node_selector;
pub mod objects;
pub mod pod;
pub mod quantity;
pub mod text;
pub mod types;

#[cfg(any(test, feature = "testing"))]
pub mod testing;
