//! One reading at a time.

use std::path::Path;
use std::time::{Duration, Instant};

/// A reading that takes longer is worth a line: a disk or network file system does not answer.
const SLOW: Duration = Duration::from_secs(30);

/// Whether a reading is under way; requests meanwhile make one more reading after it.
#[derive(Debug, Default)]
pub struct ReadGate {
    since: Option<Instant>,
    again: bool,
}

impl ReadGate {
    /// Returns whether to read now; the reading behind the one under way will do otherwise.
    pub fn begins(&mut self, now: Instant) -> bool {
        let free = self.since.is_none();
        match free {
            true => self.since = Some(now),
            false => self.again = true,
        }
        free
    }

    /// The reading has ended; returns whether another one is wanted.
    pub fn ends(&mut self) -> bool {
        self.since = None;
        std::mem::take(&mut self.again)
    }

    /// Says so if the reading of `path` takes long.
    pub fn warn_if_slow(&self, path: &Path, now: Instant) {
        let since = self.since.map(|since| now.duration_since(since));
        if let Some(since) = since.filter(|since| *since > SLOW) {
            let seconds = since.as_secs();
            tracing::error!("reading {} takes {seconds} s already", path.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_is_asked_for_during_a_reading_is_one_more_reading() {
        let (mut turns, now) = (ReadGate::default(), kernel::now());
        assert!(turns.begins(now));
        assert!(!turns.begins(now) && !turns.begins(now));
        assert!(turns.ends());
        assert!(turns.begins(now));
        assert!(!turns.ends());
    }
}
