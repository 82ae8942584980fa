//! What the tests are made of: images in memory, a registry on loopback with scripted faults, a disk that loses power.

mod faults;
mod images;
mod registry;

pub(crate) use self::faults::Faults;
pub(crate) use self::images::{ImageBuilder, Tar, docker_archive, file_layer};
pub(crate) use self::registry::{Answer, Registry, Request};

use std::path::Path;
use std::time::Duration;

use crate::{Limits, Store};

/// Limits with which nothing takes long.
pub(crate) fn limits() -> Limits {
    Limits {
        stall: Duration::from_secs(5),
        backoff: Duration::from_millis(1),
        ..Limits::default()
    }
}

pub(crate) fn store(root: &Path) -> Store {
    Store::open(root, limits()).unwrap()
}
