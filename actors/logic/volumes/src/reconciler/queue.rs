//! What is to be checked, and what is left alone for a while: the queue of volumes, mounts and pods, and the backoffs of
//! their failed operations (upstream's goroutinemap/exponentialbackoff, 1.36).
//!
//! Only what changed is checked. A target that is queued again goes to the end, so that a volume which fails for ever
//! never delays an earlier one.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::operation::{OperationKind, OperationTarget};

const INITIAL_BACKOFF: Duration = Duration::from_millis(500);
/// Slightly off two minutes, as upstream's, so that it is recognized.
const MAX_BACKOFF: Duration = Duration::from_secs(2 * 60 + 2);

#[derive(Debug, Default)]
pub(super) struct OperationQueue {
    order: BTreeMap<u64, OperationTarget>,
    places: BTreeMap<OperationTarget, u64>,
    last: u64,
}

impl OperationQueue {
    /// A target that is queued already keeps its place.
    pub(super) fn push(&mut self, subject: OperationTarget) {
        if self.places.contains_key(&subject) {
            return;
        }
        self.last += 1;
        self.places.insert(subject.clone(), self.last);
        self.order.insert(self.last, subject);
    }

    /// The first one after this position.
    pub(super) fn after(&self, place: u64) -> Option<(u64, OperationTarget)> {
        let (place, subject) = self.order.range(place + 1..).next()?;
        Some((*place, subject.clone()))
    }

    pub(super) fn remove(&mut self, place: u64) {
        if let Some(subject) = self.order.remove(&place) {
            self.places.remove(&subject);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }
}

/// By operation, when it failed last and how long that is held against it.
#[derive(Debug, Default)]
pub(super) struct OperationBackoffs(BTreeMap<(OperationTarget, OperationKind), OperationBackoff>);

#[derive(Clone, Copy, Debug)]
struct OperationBackoff {
    failed: Instant,
    delay: Duration,
}

impl OperationBackoffs {
    /// Until when the operation is left alone, if it is.
    pub(super) fn until(
        &self,
        subject: &OperationTarget,
        verb: OperationKind,
        now: Instant,
    ) -> Option<Instant> {
        let entry = self.0.get(&(subject.clone(), verb))?;
        let until = entry.failed + entry.delay;
        (now < until).then_some(until)
    }

    pub(super) fn failed(&mut self, subject: &OperationTarget, verb: OperationKind, now: Instant) {
        let entry = self.0.entry((subject.clone(), verb));
        entry
            .and_modify(|entry| {
                entry.failed = now;
                entry.delay = (entry.delay * 2).min(MAX_BACKOFF);
            })
            .or_insert(OperationBackoff {
                failed: now,
                delay: INITIAL_BACKOFF,
            });
    }

    pub(super) fn reset(&mut self, subject: &OperationTarget, verb: OperationKind) {
        self.0.remove(&(subject.clone(), verb));
    }

    /// Nothing is known of the subject any more.
    pub(super) fn forget(&mut self, subject: &OperationTarget) {
        for verb in OperationKind::ALL {
            self.reset(subject, verb);
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[allow(
        clippy::disallowed_methods,
        reason = "any moment serves as the tests' noon"
    )]
    fn noon() -> Instant {
        Instant::now()
    }

    /// Upstream's durations of exponentialbackoff.
    #[test]
    fn delay_doubles_from_half_a_second_to_two_minutes_and_two_seconds() {
        let noon = noon();
        let subject = OperationTarget::Pod("a".into());
        let mut backoffs = OperationBackoffs::default();
        let mut delays = Vec::new();
        for _ in 0..10 {
            backoffs.failed(&subject, OperationKind::Remove, noon);
            let until = backoffs
                .until(&subject, OperationKind::Remove, noon)
                .unwrap();
            delays.push((until - noon).as_millis());
        }
        let expected = [
            500, 1000, 2000, 4000, 8000, 16000, 32000, 64000, 122_000, 122_000,
        ];
        assert_eq!(delays, expected);
    }

    #[test]
    fn each_operation_waits_for_itself_and_success_forgets() {
        let noon = noon();
        let subject = OperationTarget::Pod("a".into());
        let mut backoffs = OperationBackoffs::default();
        backoffs.failed(&subject, OperationKind::Mount, noon);
        assert_eq!(backoffs.until(&subject, OperationKind::Unmount, noon), None);
        let later = noon + Duration::from_millis(500);
        assert_eq!(backoffs.until(&subject, OperationKind::Mount, later), None);
        backoffs.failed(&subject, OperationKind::Mount, later);
        backoffs.reset(&subject, OperationKind::Mount);
        assert_eq!(backoffs.until(&subject, OperationKind::Mount, later), None);
        assert_eq!(backoffs.len(), 0);
    }
}
