//! Moments of the crate's tests.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

#[allow(
    clippy::disallowed_methods,
    reason = "any moment serves as the tests' noon"
)]
static NOON: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Seconds after the tests' noon.
pub(crate) fn at(second: u64) -> Instant {
    *NOON + Duration::from_secs(second)
}
