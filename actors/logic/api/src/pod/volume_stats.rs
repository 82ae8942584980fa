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
    /// When they were taken.
    pub at: Option<Timestamp>,
    /// The volume's abnormal condition as the backend reports it; none where it reports none.
    pub abnormal: Option<VolumeHealthReport>,
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
