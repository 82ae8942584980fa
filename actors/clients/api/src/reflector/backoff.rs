//! How long a watch waits before it is tried again: client-go's reflector's back-off.

use std::time::{Duration, Instant};

/// The first wait; it doubles.
pub(super) const FIRST: Duration = Duration::from_millis(800);
/// The same after a refusal: the server's authorizer follows pods by a watch of its own, and may not have seen yet that one
/// which refers to the object is this node's.
pub(super) const FIRST_REFUSED: Duration = Duration::from_millis(50);
/// No wait is longer, before up to as much again is added so that nodes do not come all at once.
const LONGEST: Duration = Duration::from_secs(30);
/// A watch that made no request for this long begins at the first wait again.
const FORGOTTEN: Duration = Duration::from_mins(2);

/// Doubling waits, forgotten after a good while.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    next: Option<Duration>,
    last: Option<Instant>,
}

impl Backoff {
    /// The wait before the next attempt; `first` for the first one, and at least.
    pub(super) fn wait(&mut self, first: Duration, now: Instant) -> Duration {
        let quiet = self
            .last
            .is_some_and(|last| now.duration_since(last) > FORGOTTEN);
        let base = self.next.filter(|_| !quiet).unwrap_or(first).max(first);
        self.next = Some((base * 2).min(LONGEST));
        self.last = Some(now);
        base + base.mul_f64(kernel::chance())
    }

    pub(super) fn reset(&mut self) {
        *self = Backoff::default();
    }
}
