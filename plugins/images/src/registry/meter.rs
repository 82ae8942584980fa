//! How fast a registry sends: curl's `--speed-limit` and `--speed-time`.
//!
//! A registry that sends a byte at times never stalls, and would hold a pull's place for as long as it likes.

use std::time::Duration;

use super::Failure;

/// Counts what comes of one answer. Only the time that is spent waiting for the registry counts: a slow disk of this
/// node is not its fault.
#[derive(Debug)]
pub(super) struct Meter {
    window: Duration,
    least: u64,
    waited: Duration,
    bytes: u64,
}

impl Meter {
    /// Wants `least` bytes in each `window` of waiting.
    pub(super) fn new(window: Duration, least: u64) -> Self {
        Self {
            window,
            least,
            waited: Duration::ZERO,
            bytes: 0,
        }
    }

    /// Counts `bytes` that came after waiting so long; fails at the end of a window that brought too few.
    pub(super) fn count(&mut self, waited: Duration, bytes: usize) -> Result<(), Failure> {
        self.waited = self.waited.saturating_add(waited);
        self.bytes = self
            .bytes
            .saturating_add(u64::try_from(bytes).unwrap_or(u64::MAX));
        if self.waited < self.window {
            return Ok(());
        }
        let (waited, bytes) = (self.waited, self.bytes);
        (self.waited, self.bytes) = (Duration::ZERO, 0);
        match bytes < self.least {
            true => Err(Failure::Slow {
                bytes,
                window: waited,
                least: self.least,
            }),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_window_has_to_bring_its_bytes() {
        let second = Duration::from_secs(1);
        let mut meter = Meter::new(10 * second, 100);
        for _ in 0..100 {
            meter.count(second, 10).unwrap();
        }
        for _ in 0..9 {
            meter.count(second, 1).unwrap();
        }
        let slow = meter.count(second, 1).unwrap_err().to_string();
        assert_eq!(slow, "it sent 10 bytes in 10s, expected at least 100");
        // What the disk takes does not count.
        meter.count(Duration::ZERO, 1).unwrap();
    }
}
