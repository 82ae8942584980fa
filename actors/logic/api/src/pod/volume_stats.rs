//! What a volume's backend measures of it.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// A volume's figures; none is not known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeMetrics {
    /// Bytes, as `available` and `used`.
    pub capacity: Option<u64>,
    /// Bytes; none where the volume does not tell, as for all figures.
    pub available: Option<u64>,
    /// Bytes.
    pub used: Option<u64>,
    /// All of the file system.
    pub inodes: Option<u64>,
    /// Of the file system.
    pub inodes_free: Option<u64>,
    /// Of the volume.
    pub inodes_used: Option<u64>,
    /// Whether more may be used than `used` and `inodes_used`: not everything was counted.
    #[serde(skip)]
    pub at_least: bool,
    /// When they were taken.
    pub at: Option<Timestamp>,
    /// The volume's abnormal condition as the backend reports it; none where it reports none.
    pub abnormal: Option<VolumeHealthReport>,
}

impl VolumeMetrics {
    /// A count that is not whole never lowers what was counted before: a pod could hide by it what it has written.
    #[must_use]
    pub fn after(mut self, before: &Self) -> Self {
        if self.at_least {
            self.used = self.used.max(before.used);
            self.inodes_used = self.inodes_used.max(before.inodes_used);
        }
        self
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeHealthReport {
    pub state: VolumeHealthState,
    /// In the driver's words.
    pub message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum VolumeHealthState {
    Normal,
    Abnormal,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(used: u64, at_least: bool) -> VolumeMetrics {
        VolumeMetrics {
            used: Some(used),
            inodes_used: Some(used),
            at_least,
            ..VolumeMetrics::default()
        }
    }

    #[test]
    fn a_count_that_is_not_whole_never_lowers_the_figures() {
        for (used, at_least, expected) in [(3, false, 3), (3, true, 5), (7, true, 7)] {
            let found = counted(used, at_least).after(&counted(5, false));
            let expected = (Some(expected), Some(expected));
            assert_eq!((found.used, found.inodes_used), expected);
        }
        let first = counted(3, true).after(&VolumeMetrics::default());
        assert_eq!(first.used, Some(3));
    }
}
