//! How full the file system of images is, and how much is to be freed of it.

use serde::Serialize;

use super::ImageGcPolicy;

/// The space of a file system, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DiskSpace {
    pub capacity: u64,
    /// To programs without privileges.
    pub available: u64,
}

/// What the space of the file system of images asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskFinding {
    /// It is below the high threshold.
    Enough,
    /// It is not: so many bytes are to be freed.
    Free { bytes: u64, used_percent: u8 },
    /// A file system without a size: nothing can be told of it.
    NoCapacity,
}

impl DiskFinding {
    /// The message about a file system without a size.
    pub const NO_CAPACITY: &str = "invalid capacity 0 on image filesystem";
}

/// Judges the space of the file system of images. More available than there is counts as all of it.
pub fn judge(policy: &ImageGcPolicy, space: DiskSpace) -> DiskFinding {
    let (capacity, available) = (
        u128::from(space.capacity),
        u128::from(space.available.min(space.capacity)),
    );
    if capacity == 0 {
        return DiskFinding::NoCapacity;
    }
    let used_percent = 100 - u8::try_from(available * 100 / capacity).unwrap_or(100);
    if used_percent < policy.high_threshold {
        return DiskFinding::Enough;
    }
    let wanted = capacity * u128::from(100 - policy.low_threshold) / 100;
    DiskFinding::Free {
        bytes: u64::try_from(wanted.saturating_sub(available)).unwrap_or(u64::MAX),
        used_percent,
    }
}

/// The event of a collection that freed less than it should, in upstream's words.
pub fn insufficient(space: DiskSpace, used_percent: u8, freed: u64) -> String {
    format!(
        "Insufficient free disk space on the node's image filesystem ({used_percent}% of {} used). Failed to free \
         sufficient space by deleting unused images (freed {freed} bytes). Investigate disk usage, as it could be used \
         by active images, logs, volumes, or other data.",
        bytes_text(space.capacity)
    )
}

/// Bytes for people: `10.0 GiB`.
pub fn bytes_text(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut size = bytes as f64 / 1024.0;
    let mut units = UNITS.into_iter();
    let mut unit = units.next().unwrap_or_default();
    while size >= 1024.0 {
        let Some(next) = units.next() else { break };
        (size, unit) = (size / 1024.0, next);
    }
    format!("{size:.1} {unit}")
}
