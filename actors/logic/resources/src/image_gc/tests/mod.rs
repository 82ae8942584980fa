//! Laws of image garbage collection: upstream's tables (image_gc_manager_test.go), and what is ours.

mod detection;
mod freeing;
mod policy;

use jiff::SignedDuration;

use super::*;

/// Upstream's zero time.
fn zero() -> Timestamp {
    Timestamp::UNIX_EPOCH
}

fn at(seconds: i64) -> Timestamp {
    zero() + SignedDuration::from_secs(seconds)
}

fn policy() -> ImageGcPolicy {
    ImageGcPolicy::new((90, 80), Duration::ZERO, Duration::ZERO, KeyedBy::Id).unwrap()
}

fn aged(min: u64, max: u64) -> ImageGcPolicy {
    let (min, max) = (Duration::from_secs(min), Duration::from_secs(max));
    ImageGcPolicy::new((90, 80), min, max, KeyedBy::Id).unwrap()
}

fn id(number: u32) -> String {
    format!("image-{number}")
}

fn key(number: u32) -> ImageKey {
    ImageKey {
        id: id(number),
        handler: String::new(),
    }
}

fn image(number: u32, bytes: u64) -> ImageFacts {
    ImageFacts {
        id: id(number),
        bytes,
        ..ImageFacts::default()
    }
}

fn pinned(number: u32, bytes: u64) -> ImageFacts {
    ImageFacts {
        pinned: true,
        ..image(number, bytes)
    }
}

/// A container of the default handler that uses the image of this number.
fn container(number: u32) -> ImageUse {
    ImageUse {
        image: id(number),
        handler: ImageUseHandler::Only(String::new()),
    }
}

/// A node's images, and what uses them.
struct Node {
    policy: ImageGcPolicy,
    images: Vec<ImageFacts>,
    uses: Vec<ImageUse>,
    records: ImageRecords,
}

impl Node {
    fn new(policy: ImageGcPolicy, images: &[ImageFacts], uses: &[ImageUse]) -> Node {
        Node {
            records: ImageRecords::new(policy.keyed_by),
            policy,
            images: images.to_vec(),
            uses: uses.to_vec(),
        }
    }

    fn detect(&mut self, detected: Timestamp, now: Timestamp) {
        self.records.detect(&self.images, &self.uses, detected, now);
    }

    /// Removes images until so many bytes are free; returns how many are.
    fn free(&mut self, wanted: u64, began: Timestamp) -> u64 {
        self.detect(began, began);
        let unused = self.records.in_eviction_order();
        let mut freed = 0;
        for image in freeable(&self.policy, unused, began) {
            if freed >= wanted {
                break;
            }
            self.remove(&image.key);
            freed += image.record.bytes;
        }
        freed
    }

    fn free_old(&mut self, began: Timestamp, tracked_since: Timestamp) -> usize {
        let unused = self.records.in_eviction_order();
        let (old, _) = too_old(&self.policy, unused, began, tracked_since);
        old.iter().for_each(|image| self.remove(&image.key));
        old.len()
    }

    fn remove(&mut self, key: &ImageKey) {
        let at = self.images.iter().position(|image| image.id == key.id);
        self.images.remove(at.unwrap());
        self.records.forget(key);
    }

    fn left(&self) -> Vec<&str> {
        self.images.iter().map(|image| image.id.as_str()).collect()
    }
}
