//! Stores in which nothing takes long.

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
