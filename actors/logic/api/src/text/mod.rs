//! Texts with a grammar of their own: durations, names, references, environment files.

pub mod env_file;
pub mod field_path;
pub mod go_duration;
pub mod image_reference;
pub mod names;
pub mod sysctls;
pub mod url;
