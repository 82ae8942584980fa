//! The wall clock: what records and statuses say of when.

use std::time::{SystemTime, UNIX_EPOCH};

/// Returns the time in nanoseconds since 1970.
#[allow(
    clippy::disallowed_methods,
    reason = "the one place where this plugin reads the wall"
)]
pub(crate) fn now() -> i64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}
