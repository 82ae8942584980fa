//! The clocks: the only file that reads one.
//!
//! A test that pauses tokio's clock has thereby paused everything: the wall clock of a paused test
//! goes along with it.

#[cfg(feature = "testing")]
use std::cell::Cell;
use std::time::{Instant, SystemTime};

use jiff::Timestamp;

/// Returns this moment on the clock that durations are measured with.
pub fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// Returns this moment on the calendar's clock, which may step.
#[allow(
    clippy::disallowed_methods,
    reason = "the one place where the wall clock is read"
)]
pub fn wall() -> SystemTime {
    #[cfg(feature = "testing")]
    if let Some(simulated) = simulated_wall() {
        return simulated;
    }
    SystemTime::now()
}

/// Returns this moment on the calendar's clock, as the API's types write it.
pub fn timestamp() -> Timestamp {
    timestamp_of(wall())
}

/// Returns a time of the calendar's clock as the API's types write it.
///
/// A clock that is set beyond the years of [`Timestamp`] reads as its first or last moment.
pub fn timestamp_of(time: SystemTime) -> Timestamp {
    let nearest = match time < SystemTime::UNIX_EPOCH {
        true => Timestamp::MIN,
        false => Timestamp::MAX,
    };
    Timestamp::try_from(time).unwrap_or(nearest)
}

#[cfg(feature = "testing")]
thread_local! {
    /// Where the simulated wall clock started, and when that was on tokio's clock.
    static SIMULATED_WALL: Cell<Option<(SystemTime, tokio::time::Instant)>> = const { Cell::new(None) };
}

/// Starts the thread's simulated wall clock at `start`, or goes back to the real one.
#[cfg(feature = "testing")]
pub(crate) fn simulate_wall(start: Option<SystemTime>) {
    SIMULATED_WALL.set(start.map(|start| (start, tokio::time::Instant::now())));
}

/// Whether this thread runs a paused test.
#[cfg(feature = "testing")]
pub(crate) fn is_simulated() -> bool {
    SIMULATED_WALL.get().is_some()
}

/// Returns the wall clock's time in a paused test.
#[cfg(feature = "testing")]
fn simulated_wall() -> Option<SystemTime> {
    let (start, since) = SIMULATED_WALL.get()?;
    Some(start + since.elapsed())
}
