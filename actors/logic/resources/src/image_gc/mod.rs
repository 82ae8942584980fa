//! Which images are removed, when, and for what.
//!
//! Two reasons: an image that has not been used for `imageMaximumGCAge`, and a file system of images that is fuller than
//! `imageGCHighThresholdPercent`, from which the images that were used longest ago go until `imageGCLowThresholdPercent`
//! is reached. Mirrors pkg/kubelet/images/image_gc_manager.go (1.36).

mod disk;
mod records;
#[cfg(test)]
mod tests;

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use thiserror::Error;

pub use self::disk::{DiskFinding, DiskSpace, bytes_text, insufficient, judge};
pub use self::records::{
    ImageFacts, ImageKey, ImageRecord, ImageRecords, ImageUse, ImageUseHandler, KeyedBy,
    RememberedImage, RememberedImages, sandbox_image_of,
};

/// The configuration's section of image garbage collection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageGcPolicy {
    /// Per cent of the file system in use from which images are removed; 100 never.
    pub high_threshold: u8,
    /// Per cent of the file system in use to which images are removed.
    pub low_threshold: u8,
    /// An image that was detected later than this ago is not removed for its space.
    pub min_age: Duration,
    /// An image that was not used for longer is removed; none for no limit.
    pub max_age: Option<Duration>,
    /// What tells images apart (feature gate `RuntimeClassInImageCriApi`).
    pub keyed_by: KeyedBy,
}

/// Why a policy cannot be.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ImageGcPolicyError {
    #[error("invalid {name} {value}, must be in range [0-100]")]
    OutOfRange { name: &'static str, value: i32 },
    #[error("LowThresholdPercent {low} can not be higher than HighThresholdPercent {high}")]
    LowAboveHigh { low: i32, high: i32 },
}

impl ImageGcPolicy {
    /// Reads the thresholds and ages of the configuration; `max_age` of zero is none.
    ///
    /// # Errors
    /// A threshold that is no percentage, or a low one above the high one.
    pub fn new(
        (high, low): (i32, i32),
        min_age: Duration,
        max_age: Duration,
        keyed_by: KeyedBy,
    ) -> Result<Self, ImageGcPolicyError> {
        let (high_threshold, low_threshold) = (
            percentage("HighThresholdPercent", high)?,
            percentage("LowThresholdPercent", low)?,
        );
        if low_threshold > high_threshold {
            return Err(ImageGcPolicyError::LowAboveHigh { low, high });
        }
        Ok(ImageGcPolicy {
            high_threshold,
            low_threshold,
            min_age,
            max_age: (!max_age.is_zero()).then_some(max_age),
            keyed_by,
        })
    }

    /// Images are removed only where eviction asks for it.
    pub fn off() -> Self {
        ImageGcPolicy {
            high_threshold: 100,
            low_threshold: 100,
            min_age: Duration::ZERO,
            max_age: None,
            keyed_by: KeyedBy::Id,
        }
    }

    /// Whether images are never removed unless eviction asks for it.
    pub fn is_off(&self) -> bool {
        self.high_threshold == 100 && self.max_age.is_none()
    }

    /// Whether an image may go for its space: nothing has used it since the collection began, and it is old enough that
    /// no pod is about to use it.
    pub fn may_free(&self, record: &ImageRecord, began: Timestamp) -> bool {
        let is_idle = record.last_used.is_none_or(|used| used < began);
        let age = began.duration_since(record.first_detected);
        is_idle && age >= signed(self.min_age)
    }

    /// Whether an image goes for its age. `tracked_since` is when the agent began to follow the use of images: before
    /// that it knows of none.
    pub fn is_too_old(
        &self,
        record: &ImageRecord,
        began: Timestamp,
        tracked_since: Timestamp,
    ) -> bool {
        let Some(max_age) = self.max_age.map(signed) else {
            return false;
        };
        // An image that no container has used yet may have been pulled for one a moment ago.
        let used = record.last_used.unwrap_or(record.first_detected);
        began.duration_since(tracked_since) > max_age && began.duration_since(used) > max_age
    }
}

/// An image that may be removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnusedImage {
    pub key: ImageKey,
    pub record: ImageRecord,
}

/// The images to remove for their age; the others stay candidates, in their order.
pub fn too_old(
    policy: &ImageGcPolicy,
    unused: Vec<UnusedImage>,
    began: Timestamp,
    tracked_since: Timestamp,
) -> (Vec<UnusedImage>, Vec<UnusedImage>) {
    let is_old = |image: &UnusedImage| policy.is_too_old(&image.record, began, tracked_since);
    unused.into_iter().partition(is_old)
}

/// The images that may go for their space, in the order in which they go.
pub fn freeable(
    policy: &ImageGcPolicy,
    unused: Vec<UnusedImage>,
    began: Timestamp,
) -> Vec<UnusedImage> {
    let may_free = |image: &UnusedImage| policy.may_free(&image.record, began);
    unused.into_iter().filter(may_free).collect()
}

fn percentage(name: &'static str, value: i32) -> Result<u8, ImageGcPolicyError> {
    let percent = u8::try_from(value).ok().filter(|percent| *percent <= 100);
    percent.ok_or(ImageGcPolicyError::OutOfRange { name, value })
}

fn signed(duration: Duration) -> SignedDuration {
    SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX)
}
