//! What a worker does not try again before its time, and why it failed.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Instant;

use kernel::TimerId;
use logic_api::types::WaitingReason;

/// Retries and their back-offs.
#[derive(Debug, Default)]
pub(super) struct Retries {
    /// What is not tried again before its time.
    not_before: BTreeMap<RetryKey, Instant>,
    /// Why what was tried failed, until it succeeds; the status shows it.
    reasons: BTreeMap<RetryKey, WaitingReason>,
    /// When the worker computes again, whatever happens until then.
    pub(super) timer: Option<TimerId>,
}

impl Retries {
    /// Notes a failure; one without a reason leaves the reason that was known.
    pub(super) fn add(
        &mut self,
        key: RetryKey,
        not_before: Instant,
        reason: Option<WaitingReason>,
    ) {
        self.not_before.insert(key.clone(), not_before);
        if let Some(reason) = reason {
            self.reasons.insert(key, reason);
        }
    }

    /// A container was started or resized: nothing is wrong with it any more.
    pub(super) fn forget_reasons(&mut self, container: &str) {
        self.reasons
            .remove(&RetryKey::Container(container.to_owned()));
        self.reasons.remove(&RetryKey::Resize(container.to_owned()));
    }

    /// Forgets the back-offs that are over.
    pub(super) fn forget_due(&mut self, now: Instant) {
        self.not_before.retain(|_, until| *until > now);
    }

    /// Whether this must not be tried yet.
    pub(super) fn is_backed_off(&self, key: &RetryKey) -> bool {
        self.not_before.contains_key(key)
    }

    /// When the back-offs end.
    pub(super) fn times(&self) -> impl Iterator<Item = Instant> {
        self.not_before.values().copied()
    }

    pub(super) fn reason(&self, key: &RetryKey) -> Option<&WaitingReason> {
        self.reasons.get(key)
    }

    /// Why containers could not be started, by name.
    pub(super) fn start_reasons(&self) -> impl Iterator<Item = (&String, &WaitingReason)> {
        self.reasons.iter().filter_map(|(key, reason)| match key {
            RetryKey::Container(name) => Some((name, reason)),
            RetryKey::Sandbox | RetryKey::Teardown | RetryKey::Garbage | RetryKey::Resize(_) => {
                None
            }
        })
    }

    /// What is backed off, as snapshots show it.
    pub(super) fn keys(&self) -> Vec<String> {
        self.not_before.keys().map(RetryKey::to_string).collect()
    }
}

/// What is retried on its own, each after a back-off of its own.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RetryKey {
    /// Creating the pod's sandbox, or learning its addresses.
    Sandbox,
    /// Kills, stops and removals.
    Teardown,
    /// Removing dead instances.
    Garbage,
    /// Resizing the container of this name.
    Resize(String),
    /// Starting the container of this name.
    Container(String),
}

/// As snapshots show it: a container by its name, all else by what no name can be.
impl fmt::Display for RetryKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sandbox => Ok(()),
            Self::Teardown => f.write_str("\u{0}ending"),
            Self::Garbage => f.write_str("\u{0}garbage"),
            Self::Resize(name) => write!(f, "\u{0}resize {name}"),
            Self::Container(name) => f.write_str(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshots_show_a_key_as_ever_and_in_the_same_order() {
        let keys = [
            (RetryKey::Sandbox, ""),
            (RetryKey::Teardown, "\u{0}ending"),
            (RetryKey::Garbage, "\u{0}garbage"),
            (RetryKey::Resize("app".to_owned()), "\u{0}resize app"),
            (RetryKey::Container("app".to_owned()), "app"),
        ];
        assert!(keys.is_sorted());
        for (key, text) in keys {
            assert_eq!(key.to_string(), text);
        }
    }
}
