//! The order of attachments: a clock that never goes back within a boot.

use std::fmt;
use std::fs;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// A moment of a boot. Those of one boot are ordered; those of another one are earlier, as they are over.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Moment {
    /// The kernel's id of the boot.
    pub(crate) boot: String,
    /// Nanoseconds since then.
    pub(crate) at: u64,
}

/// Why a text is no mark of this boot.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum MarkError {
    #[error("mark {0:?} is none of this plugin's")]
    Unknown(String),
    #[error("mark {0:?} is of an earlier boot")]
    OtherBoot(String),
}

/// Hands out moments, no two the same. Clones are one clock.
#[derive(Clone, Debug)]
pub(crate) struct Clock {
    boot: Arc<str>,
    last: Arc<Mutex<u64>>,
}

impl Clock {
    /// Reads which boot this is.
    pub(crate) fn start() -> Self {
        // Without it, records of before a reboot are taken for those of today: their namespaces are gone all the same.
        let boot = fs::read_to_string(BOOT_ID).unwrap_or_default();
        Self {
            boot: boot.trim().into(),
            last: Arc::default(),
        }
    }

    pub(crate) fn now(&self) -> Moment {
        let since = clock_gettime(ClockId::Boottime);
        let seconds = u64::try_from(since.tv_sec).unwrap_or_default();
        let nanos = u64::try_from(since.tv_nsec).unwrap_or_default();
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        *last = (*last + 1).max(seconds.saturating_mul(1_000_000_000).saturating_add(nanos));
        Moment {
            boot: self.boot.to_string(),
            at: *last,
        }
    }

    /// Returns the moment so long ago.
    pub(crate) fn ago(&self, span: Duration) -> Moment {
        let now = self.now();
        let span = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        Moment {
            at: now.at.saturating_sub(span),
            ..now
        }
    }

    /// Tells whether a moment is of this boot.
    pub(crate) fn is_of_today(&self, moment: &Moment) -> bool {
        *moment.boot == *self.boot
    }

    /// Tells whether something that began at `began` was there at `mark`, a moment of this boot.
    pub(crate) fn is_before(&self, began: &Moment, mark: &Moment) -> bool {
        !self.is_of_today(began) || began.at <= mark.at
    }

    /// Reads a mark that [`Moment`] wrote.
    pub(crate) fn mark(&self, text: &str) -> Result<Moment, MarkError> {
        let unknown = || MarkError::Unknown(text.to_owned());
        let (boot, at) = text.rsplit_once('/').ok_or_else(unknown)?;
        let mark = Moment {
            boot: boot.to_owned(),
            at: at.parse().map_err(|_| unknown())?,
        };
        match self.is_of_today(&mark) {
            true => Ok(mark),
            false => Err(MarkError::OtherBoot(text.to_owned())),
        }
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.boot, self.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_parts_what_was_there_from_what_came_later() {
        let clock = Clock::start();
        let (before, mark, after) = (clock.now(), clock.now(), clock.now());
        let read = clock.mark(&mark.to_string()).unwrap();
        assert_eq!(read, mark);
        assert!(clock.is_before(&before, &read) && !clock.is_before(&after, &read));
    }

    #[test]
    fn what_is_of_another_boot_was_there_before_and_its_marks_are_void() {
        let clock = Clock::start();
        let other = Moment {
            boot: "other".to_owned(),
            at: u64::MAX,
        };
        assert!(clock.is_before(&other, &clock.now()));
        assert_eq!(
            clock.mark("other/5"),
            Err(MarkError::OtherBoot("other/5".to_owned()))
        );
        assert_eq!(clock.mark("7"), Err(MarkError::Unknown("7".to_owned())));
    }
}
