//! What is done with an event before it is kept: similar events are combined, and a flood is cut off.
//!
//! Mirrors client-go's tools/record/events_cache.go (EventAggregator, EventSourceObjectSpamFilter) at v1.36:
//! its limits and message prefix. Equal events are counted: by the actor that keeps events, and for the API in
//! [`PostedEvents`] (eventLogger there), where one object stands for all of them.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use jiff::{SignedDuration, Timestamp};

/// From so many different messages of one reason on, they are combined.
const MAX_SIMILAR: usize = 10;
/// Events further apart than this are not combined.
const AGGREGATION_WINDOW: SignedDuration = SignedDuration::from_secs(600);
/// The most events of one object at once.
const BURST: u32 = 25;
/// How long it takes until an object may emit one more.
const REFILL_PERIOD: SignedDuration = SignedDuration::from_secs(300);
/// Objects and groups in the cache: several for each of 1,000 pods.
const MAX_CACHED: usize = 4096;
const COMBINED: &str = "(combined from similar events): ";

/// What is done with an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CorrelateResult {
    Keep,
    /// Kept with this message, which stands for all that are like it.
    Combine(String),
    /// There are too many of this object.
    Drop,
}

/// Combines similar events and drops excess ones; its cache is bounded.
#[derive(Debug, Default)]
pub struct Correlator {
    groups: BTreeMap<(String, String), SimilarEvents>,
    buckets: BTreeMap<String, EventTokenBucket>,
}

/// Messages of one object and reason.
#[derive(Debug)]
struct SimilarEvents {
    /// Fingerprints: which texts they were is of no interest.
    messages: Vec<u64>,
    last: Timestamp,
}

/// The token bucket of one object's events.
#[derive(Clone, Copy, Debug)]
struct EventTokenBucket {
    left: u32,
    /// Since when it has refilled.
    since: Timestamp,
    last: Timestamp,
}

impl Correlator {
    /// Decides about an event of an object (its kind, namespace, name and uid in one text).
    pub fn admit(
        &mut self,
        now: Timestamp,
        object: &str,
        reason: &str,
        message: &str,
    ) -> CorrelateResult {
        let fate = self.combine(now, object, reason, message);
        if !self.spend(now, object) {
            return CorrelateResult::Drop;
        }
        fate
    }

    fn combine(
        &mut self,
        now: Timestamp,
        object: &str,
        reason: &str,
        message: &str,
    ) -> CorrelateResult {
        let key = (object.to_owned(), reason.to_owned());
        make_room(&mut self.groups, &key, |group| group.last);
        let group = self.groups.entry(key).or_insert_with(|| SimilarEvents {
            messages: Vec::with_capacity(1),
            last: now,
        });
        if now.duration_since(group.last) > AGGREGATION_WINDOW {
            group.messages.clear();
        }
        group.last = now;
        let print = fingerprint(message);
        if !group.messages.contains(&print) {
            group.messages.push(print);
        }
        if group.messages.len() < MAX_SIMILAR {
            return CorrelateResult::Keep;
        }
        group.messages.remove(0);
        CorrelateResult::Combine(format!("{COMBINED}{message}"))
    }

    /// Takes one of what the object may tell.
    fn spend(&mut self, now: Timestamp, object: &str) -> bool {
        let key = object.to_owned();
        make_room(&mut self.buckets, &key, |bucket| bucket.last);
        let bucket = self.buckets.entry(key).or_insert(EventTokenBucket {
            left: BURST,
            since: now,
            last: now,
        });
        bucket.last = now;
        let passed = now.duration_since(bucket.since).as_secs() / REFILL_PERIOD.as_secs();
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

/// The events that the API was sent, as far as they may come again.
#[derive(Debug, Default)]
pub struct PostedEvents {
    /// By the fingerprint of what they say.
    lines: BTreeMap<u64, EventSeries>,
    /// The time in the newest name: the next one has a later time, so that no two events share a name.
    named: Timestamp,
}

/// The API's object for all events that say the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventSeries {
    /// The name that the event has in the API.
    pub name: String,
    /// When it was first recorded.
    pub first: Timestamp,
    /// Greater than one for an object that should be there already.
    pub count: u32,
    last: Timestamp,
}

impl PostedEvents {
    /// Counts an event that is known by `key`, of the object with this name.
    pub fn observe(&mut self, now: Timestamp, key: &str, object: &str) -> EventSeries {
        let key = fingerprint(key);
        make_room(&mut self.lines, &key, |line| line.last);
        let line = self.lines.entry(key).or_insert_with(|| EventSeries {
            name: event_name(object, next_name(&mut self.named, now)),
            first: now,
            count: 0,
            last: now,
        });
        line.count = line.count.saturating_add(1);
        line.last = now;
        line.clone()
    }
}

/// The time for a new name: now, or just after the newest one.
fn next_name(named: &mut Timestamp, now: Timestamp) -> Timestamp {
    let after = named.checked_add(SignedDuration::from_nanos(1));
    *named = after.map_or(now, |after| after.max(now));
    *named
}

/// Upstream's GenerateEventName: an object whose name no event can have gets one that means nothing.
fn event_name(object: &str, at: Timestamp) -> String {
    let nanos = at.as_nanosecond();
    let name = format!("{object}.{nanos:x}");
    match is_subdomain(&name) {
        true => name,
        false => format!("{:016x}.{nanos:x}", fingerprint(object)),
    }
}

fn is_subdomain(name: &str) -> bool {
    let alphanumeric = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let label = |label: &str| {
        label.starts_with(alphanumeric)
            && label.ends_with(alphanumeric)
            && label.chars().all(|c| alphanumeric(c) || c == '-')
    };
    name.len() <= 253 && name.split('.').all(label)
}

fn fingerprint(message: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    message.hash(&mut hasher);
    hasher.finish()
}

/// Evicts the entry that was used least recently, when a new one would exceed the limit.
fn make_room<K: Ord + Clone, V>(map: &mut BTreeMap<K, V>, new: &K, last: impl Fn(&V) -> Timestamp) {
    if map.len() < MAX_CACHED || map.contains_key(new) {
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
        for n in 0..MAX_SIMILAR - 1 {
            let fate = correlator.admit(at(0), "web", "Failed", &n.to_string());
            assert_eq!(fate, CorrelateResult::Keep, "{n}");
        }
        let combined = CorrelateResult::Combine("(combined from similar events): last".to_owned());
        assert_eq!(correlator.admit(at(1), "web", "Failed", "last"), combined);
        assert_eq!(
            correlator.admit(at(1), "web", "Other", "last"),
            CorrelateResult::Keep
        );
        assert_eq!(
            correlator.admit(at(700), "web", "Failed", "new"),
            CorrelateResult::Keep
        );
    }

    /// Upstream's TestEventSpamFilter.
    #[test]
    fn an_object_that_floods_is_cut_off_and_others_are_heard() {
        let mut correlator = Correlator::default();
        for _ in 0..BURST {
            assert_ne!(
                correlator.admit(at(0), "web", "BackOff", "again"),
                CorrelateResult::Drop
            );
        }
        assert_eq!(
            correlator.admit(at(1), "web", "BackOff", "again"),
            CorrelateResult::Drop
        );
        assert_eq!(
            correlator.admit(at(1), "other", "BackOff", "again"),
            CorrelateResult::Keep
        );
        assert_eq!(
            correlator.admit(at(301), "web", "BackOff", "again"),
            CorrelateResult::Keep
        );
        assert_eq!(
            correlator.admit(at(302), "web", "BackOff", "again"),
            CorrelateResult::Drop
        );
    }

    /// Upstream's TestEventCorrelator rows on counts, and its TestUpdateExpiredEvent's name.
    #[test]
    fn one_name_stands_for_all_events_that_say_the_same() {
        let mut posted = PostedEvents::default();
        let first = posted.observe(at(0), "started", "web");
        assert_eq!(
            (first.name.as_str(), first.count),
            ("web.17979cfe362a0000", 1)
        );
        let again = posted.observe(at(9), "started", "web");
        assert_eq!(
            (again.name, again.count, again.first),
            (first.name, 2, at(0))
        );
        let other = posted.observe(at(9), "pulled", "web");
        assert_eq!((other.count, other.first), (1, at(9)));
        for n in 0..MAX_CACHED + 10 {
            posted.observe(at(10), &n.to_string(), "web");
        }
        assert_eq!(posted.lines.len(), MAX_CACHED);
    }

    #[test]
    fn events_of_one_moment_have_names_of_their_own() {
        let mut posted = PostedEvents::default();
        let mut names: Vec<String> = (0..3)
            .map(|n| posted.observe(at(0), &n.to_string(), "web").name)
            .collect();
        names.push(posted.observe(at(-9), "earlier", "web").name);
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 4);
    }

    /// Upstream's TestGenerateEventName.
    #[test]
    fn an_event_has_a_name_that_the_api_takes() {
        assert!(event_name("web-0.b", at(0)).starts_with("web-0.b."));
        for object in ["Web", "web_0", "", "-web", "web..a", &"w".repeat(240)] {
            let name = event_name(object, at(0));
            assert!(is_subdomain(&name) && !name.contains("web"), "{name}");
        }
    }

    #[test]
    fn what_is_remembered_has_a_bound() {
        let mut correlator = Correlator::default();
        for n in 0..MAX_CACHED + 10 {
            correlator.admit(at(0), &n.to_string(), "Started", "it");
        }
        assert_eq!(correlator.buckets.len(), MAX_CACHED);
        assert_eq!(correlator.groups.len(), MAX_CACHED);
    }
}
