//! The node's clock: wall time that advances with tokio's clock.
//!
//! A paused tokio clock therefore pauses the simulated containers too, and a test may run a day in a
//! second. A test that opens the same folder again hands the same clock to the new generation.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

use crate::settings::duration::nanos;

/// A timer for longer is set again then.
const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// Wall time in nanoseconds since 1970, driven by tokio's clock.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    base: i64,
    began: Instant,
}

impl Clock {
    /// Returns a clock that shows `wall` now.
    pub fn at(wall: SystemTime) -> Clock {
        Clock {
            base: nanos(wall.duration_since(UNIX_EPOCH).unwrap_or_default()),
            began: Instant::now(),
        }
    }

    /// Returns a clock that shows the machine's wall time now.
    #[allow(
        clippy::disallowed_methods,
        reason = "the one place where this plugin reads the wall"
    )]
    pub fn start() -> Clock {
        Clock::at(SystemTime::now())
    }

    /// Returns this clock, put forward if it is behind `floor`: what is recorded never lies ahead.
    pub(crate) fn not_before(mut self, floor: i64) -> Clock {
        let behind = floor.saturating_sub(self.now()).max(0);
        self.base = self.base.saturating_add(behind);
        self
    }

    /// Returns the time now, in nanoseconds since 1970.
    pub fn now(&self) -> i64 {
        self.base
            .saturating_add(nanos(Instant::now().saturating_duration_since(self.began)))
    }

    /// Returns the instant of tokio's clock at which this clock shows `at`, or one a year away if that is sooner.
    pub(crate) fn instant(&self, at: i64) -> Instant {
        let ahead = u64::try_from(at.saturating_sub(self.now())).unwrap_or(0);
        Instant::now() + Duration::from_nanos(ahead).min(YEAR)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn wall_time_follows_a_paused_clock() {
        let clock = Clock::start();
        let before = clock.now();
        tokio::time::advance(Duration::from_secs(86_400)).await;
        assert_eq!(clock.now() - before, 86_400_000_000_000);
        assert_eq!(clock.not_before(clock.now() + 5).now(), clock.now() + 5);
    }
}
