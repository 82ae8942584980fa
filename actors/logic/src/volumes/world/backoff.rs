//! How long what failed is left alone: upstream's goroutinemap/exponentialbackoff (1.36).

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::task::{Subject, Verb};

const FIRST: Duration = Duration::from_millis(500);
/// Slightly off two minutes, as upstream's, so that it is recognized.
const LONGEST: Duration = Duration::from_secs(2 * 60 + 2);

/// By operation, when it failed last and how long that is held against it.
#[derive(Debug, Default)]
pub(super) struct Backoffs(BTreeMap<(Subject, Verb), Entry>);

#[derive(Clone, Copy, Debug)]
struct Entry {
    failed: Instant,
    delay: Duration,
}

impl Backoffs {
    /// Until when the operation is left alone, if it is.
    pub(super) fn until(&self, subject: &Subject, verb: Verb, now: Instant) -> Option<Instant> {
        let entry = self.0.get(&(subject.clone(), verb))?;
        let until = entry.failed + entry.delay;
        (now < until).then_some(until)
    }

    pub(super) fn failed(&mut self, subject: &Subject, verb: Verb, now: Instant) {
        let entry = self.0.entry((subject.clone(), verb));
        entry
            .and_modify(|entry| {
                entry.failed = now;
                entry.delay = (entry.delay * 2).min(LONGEST);
            })
            .or_insert(Entry {
                failed: now,
                delay: FIRST,
            });
    }

    pub(super) fn reset(&mut self, subject: &Subject, verb: Verb) {
        self.0.remove(&(subject.clone(), verb));
    }

    /// Nothing is known of the subject any more.
    pub(super) fn forget(&mut self, subject: &Subject) {
        for verb in Verb::ALL {
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
        let subject = Subject::Pod("a".into());
        let mut backoffs = Backoffs::default();
        let mut delays = Vec::new();
        for _ in 0..10 {
            backoffs.failed(&subject, Verb::Remove, noon);
            let until = backoffs.until(&subject, Verb::Remove, noon).unwrap();
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
        let subject = Subject::Pod("a".into());
        let mut backoffs = Backoffs::default();
        backoffs.failed(&subject, Verb::Mount, noon);
        assert_eq!(backoffs.until(&subject, Verb::Unmount, noon), None);
        let later = noon + Duration::from_millis(500);
        assert_eq!(backoffs.until(&subject, Verb::Mount, later), None);
        backoffs.failed(&subject, Verb::Mount, later);
        backoffs.reset(&subject, Verb::Mount);
        assert_eq!(backoffs.until(&subject, Verb::Mount, later), None);
        assert_eq!(backoffs.len(), 0);
    }
}
