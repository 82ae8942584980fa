//! The time of day, as the API writes it.

pub(crate) mod simulation;

use jiff::{SignedDuration, Timestamp};

#[allow(
    clippy::disallowed_methods,
    reason = "the double's only clock, in one place"
)]
pub(crate) fn now() -> Timestamp {
    simulation::now().unwrap_or_else(Timestamp::now)
}

/// Returns the time as `metav1.Time` writes it: whole seconds.
pub(crate) fn text(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

pub(crate) fn now_text() -> String {
    text(now())
}

pub(crate) fn later(time: Timestamp, seconds: i64) -> Timestamp {
    time.checked_add(SignedDuration::from_secs(seconds))
        .unwrap_or(Timestamp::MAX)
}

pub(crate) fn parse(text: &str) -> Option<Timestamp> {
    text.parse().ok()
}
