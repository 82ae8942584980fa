//! What becomes of an event before it is kept: noise is combined, and a flood is cut off.
//!
//! Mirrors client-go's tools/record/events_cache.go (EventAggregator, EventSourceObjectSpamFilter) at v1.36:
//! its numbers, its words. What says the same as before is counted by whoever keeps events.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use jiff::{SignedDuration, Timestamp};

/// From so many different messages of one reason on, they are combined.
const SIMILAR: usize = 10;
/// What is further apart is not similar.
const WITHIN: SignedDuration = SignedDuration::from_secs(600);
/// Events of one object in a row.
const BURST: u32 = 25;
/// One more each so often.
const REFILL: SignedDuration = SignedDuration::from_secs(300);
/// Objects and groups that are remembered: several for each of 1,000 pods.
const REMEMBERED: usize = 4096;
const COMBINED: &str = "(combined from similar events): ";

/// What becomes of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    Keep,
    /// Kept with this message, which stands for all that are like it.
    Combine(String),
    /// There are too many of this object.
    Drop,
}

/// Remembers what was told of late.
#[derive(Debug, Default)]
pub struct Correlator {
    groups: BTreeMap<(String, String), Group>,
    buckets: BTreeMap<String, Bucket>,
}

/// Messages of one object and reason.
#[derive(Debug)]
struct Group {
    /// Fingerprints: which texts they were is of no interest.
    messages: Vec<u64>,
    last: Timestamp,
}

/// What an object may still tell.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    left: u32,
    /// Since when it has refilled.
    since: Timestamp,
    last: Timestamp,
}

impl Correlator {
    /// Decides about an event of an object (its kind, namespace, name and uid in one text).
    pub fn admit(&mut self, now: Timestamp, object: &str, reason: &str, message: &str) -> Fate {
        let fate = self.combine(now, object, reason, message);
        if !self.spend(now, object) {
            return Fate::Drop;
        }
        fate
    }

    fn combine(&mut self, now: Timestamp, object: &str, reason: &str, message: &str) -> Fate {
        let key = (object.to_owned(), reason.to_owned());
        make_room(&mut self.groups, &key, |group| group.last);
        let group = self.groups.entry(key).or_insert_with(|| Group {
            messages: Vec::with_capacity(1),
            last: now,
        });
        if now.duration_since(group.last) > WITHIN {
            group.messages.clear();
        }
        group.last = now;
        let print = fingerprint(message);
        if !group.messages.contains(&print) {
            group.messages.push(print);
        }
        if group.messages.len() < SIMILAR {
            return Fate::Keep;
        }
        group.messages.remove(0);
        Fate::Combine(format!("{COMBINED}{message}"))
    }

    /// Takes one of what the object may tell.
    fn spend(&mut self, now: Timestamp, object: &str) -> bool {
        let key = object.to_owned();
        make_room(&mut self.buckets, &key, |bucket| bucket.last);
        let bucket = self.buckets.entry(key).or_insert(Bucket {
            left: BURST,
            since: now,
            last: now,
        });
        bucket.last = now;
        let passed = now.duration_since(bucket.since).as_secs() / REFILL.as_secs();
        if let Ok(refills @ 1..) = u32::try_from(passed) {
            bucket.left = bucket.left.saturating_add(refills).min(BURST);
            bucket.since = now;
        }
        if bucket.left == 0 {
            return false;
        }
        if bucket.left == BURST {
            bucket.since = now;
        }
        bucket.left -= 1;
        true
    }
}

fn fingerprint(message: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    message.hash(&mut hasher);
    hasher.finish()
}

/// Forgets who has been silent longest, when a new one would be one too many.
fn make_room<K: Ord + Clone, V>(map: &mut BTreeMap<K, V>, new: &K, last: impl Fn(&V) -> Timestamp) {
    if map.len() < REMEMBERED || map.contains_key(new) {
        return;
    }
    let oldest = map.iter().min_by_key(|(_, value)| last(value));
    if let Some(key) = oldest.map(|(key, _)| key.clone()) {
        map.remove(&key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::at;

    /// Upstream's TestEventAggregatorByReasonFunc and TestEventCorrelator.
    #[test]
    fn similar_messages_are_combined_until_they_are_far_apart() {
        let mut correlator = Correlator::default();
        for n in 0..SIMILAR - 1 {
            let fate = correlator.admit(at(0), "web", "Failed", &n.to_string());
            assert_eq!(fate, Fate::Keep, "{n}");
        }
        let combined = Fate::Combine("(combined from similar events): last".to_owned());
        assert_eq!(correlator.admit(at(1), "web", "Failed", "last"), combined);
        assert_eq!(correlator.admit(at(1), "web", "Other", "last"), Fate::Keep);
        assert_eq!(
            correlator.admit(at(700), "web", "Failed", "new"),
            Fate::Keep
        );
    }

    /// Upstream's TestEventSpamFilter.
    #[test]
    fn an_object_that_floods_is_cut_off_and_others_are_heard() {
        let mut correlator = Correlator::default();
        for _ in 0..BURST {
            assert_ne!(
                correlator.admit(at(0), "web", "BackOff", "again"),
                Fate::Drop
            );
        }
        assert_eq!(
            correlator.admit(at(1), "web", "BackOff", "again"),
            Fate::Drop
        );
        assert_eq!(
            correlator.admit(at(1), "other", "BackOff", "again"),
            Fate::Keep
        );
        assert_eq!(
            correlator.admit(at(301), "web", "BackOff", "again"),
            Fate::Keep
        );
        assert_eq!(
            correlator.admit(at(302), "web", "BackOff", "again"),
            Fate::Drop
        );
    }

    #[test]
    fn what_is_remembered_has_a_bound() {
        let mut correlator = Correlator::default();
        for n in 0..REMEMBERED + 10 {
            correlator.admit(at(0), &n.to_string(), "Started", "it");
        }
        assert_eq!(correlator.buckets.len(), REMEMBERED);
        assert_eq!(correlator.groups.len(), REMEMBERED);
    }
}
