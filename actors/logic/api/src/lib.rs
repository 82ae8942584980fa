//! The vocabulary that all decisions share: pods as they are defined and as a runtime shows them, quantities, names,
//! conditions, manifests, and the objects of the API that pods refer to.
//!
//! Like every crate of `actors/logic`: no clock, no files, no async. What is needed comes as arguments, and what is
//! decided goes out as data, with its reasons. Read `types` and `pod` first.

pub mod authz_attributes;
pub mod backoff;
pub mod conditions;
pub mod env_file;
pub mod events;
pub mod field_path;
pub mod go_duration;
pub mod hash;
pub mod image_reference;
pub mod labels;
pub mod linux;
pub mod manifest;
pub mod names;
pub mod node_selector;
pub mod objects;
pub mod pod;
pub mod quantity;
pub mod requests;
pub mod strategic_patch;
pub mod strict_decode;
pub mod sysctls;
pub mod types;
pub mod unsupported_fields;
pub mod url;
pub mod volume_stats;

#[cfg(any(test, feature = "testing"))]
pub mod testing;
