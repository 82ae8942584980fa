//! What the tests are made of: images in memory, a registry on loopback with scripted faults, a disk that loses power.

#![allow(
    clippy::unwrap_used,
    missing_debug_implementations,
    reason = "for tests, those of other crates too"
)]

#[cfg(test)]
mod faults;
mod images;
mod registry;
#[cfg(test)]
mod stores;

#[cfg(test)]
pub(crate) use self::faults::Faults;
pub use self::images::{ImageBuilder, Tar, docker_archive, file_layer};
pub use self::registry::{Answer, Registry, Request};
#[cfg(test)]
pub(crate) use self::stores::{limits, store};
