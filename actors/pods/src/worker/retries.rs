//! The worker's back-offs, and the reasons of its failures.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use kernel::TimerId;
use logic_api::types::WaitingReason;

/// The pause before a pod's sandbox is replaced for the second time in a row, and the longest such pause.
const SANDBOX_PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// A sandbox that has lasted this long beyond its predecessor's pause is replaced at once again.
const SANDBOX_LASTS: Duration = Duration::from_secs(60);

/// When the pod's last sandbox was made, and the pause before the one after it.
#[derive(Debug, Clone, Copy)]
struct LastSandbox {
    made: Instant,
    pause: Duration,
}

/// Back-offs, and why they were needed.
#[derive(Debug, Default)]
pub(super) struct Retries {
    /// The earliest time of each retry.
    not_before: BTreeMap<RetryKey, Instant>,
    /// The reason of each failure until it succeeds; the status shows it.
    reasons: BTreeMap<RetryKey, WaitingReason>,
    /// None before this worker has made one.
    sandbox: Option<LastSandbox>,
    /// The timer of the next sync.
    pub(super) timer: Option<TimerId>,
}

impl Retries {
    /// Adds a back-off; without a reason the known one stays.
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

    /// A sandbox was made. The first one that replaces it is never delayed, the next ones ever more, unless it lasts.
    ///
    /// Upstream makes one with each look at the runtime, so once a second, without end.
    pub(super) fn sandbox_made(&mut self, at: Instant) {
        let lasted = |last: LastSandbox| at.saturating_duration_since(last.made);
        let (first, longest) = SANDBOX_PAUSE;
        let pause = match self.sandbox {
            Some(last) if lasted(last) < last.pause + SANDBOX_LASTS => {
                (last.pause * 2).clamp(first, longest)
            }
            Some(_) | None => Duration::ZERO,
        };
        self.sandbox = Some(LastSandbox { made: at, pause });
        if !pause.is_zero() {
            self.add(RetryKey::SandboxReplacement, at + pause, None);
        }
    }

    /// Forgets the reasons of a container that was started or resized.
    pub(super) fn forget_reasons(&mut self, container: &str) {
        self.reasons
            .remove(&RetryKey::Container(container.to_owned()));
        self.reasons.remove(&RetryKey::Resize(container.to_owned()));
    }

    /// Forgets failed resizes, and tries at once: other resources are allocated.
    pub(super) fn forget_resizes(&mut self) {
        let is_resize = |key: &RetryKey| matches!(key, RetryKey::Resize(_));
        self.not_before.retain(|key, _| !is_resize(key));
        self.reasons.retain(|key, _| !is_resize(key));
    }

    /// Forgets the back-offs that have passed.
    pub(super) fn forget_due(&mut self, now: Instant) {
        self.not_before.retain(|_, until| *until > now);
    }

    /// Whether a retry must still wait.
    pub(super) fn is_backed_off(&self, key: &RetryKey) -> bool {
        self.not_before.contains_key(key)
    }

    /// The ends of the back-offs.
    pub(super) fn times(&self) -> impl Iterator<Item = Instant> {
        self.not_before.values().copied()
    }

    pub(super) fn reason(&self, key: &RetryKey) -> Option<&WaitingReason> {
        self.reasons.get(key)
    }

    /// By container name: why it could not be started.
    pub(super) fn start_reasons(&self) -> impl Iterator<Item = (&String, &WaitingReason)> {
        self.reasons.iter().filter_map(|(key, reason)| match key {
            RetryKey::Container(name) => Some((name, reason)),
            RetryKey::Sandbox
            | RetryKey::SandboxReplacement
            | RetryKey::Teardown
            | RetryKey::Garbage
            | RetryKey::Resize(_) => None,
        })
    }

    /// The current back-offs, as snapshots show them.
    pub(super) fn keys(&self) -> Vec<String> {
        self.not_before.keys().map(RetryKey::to_string).collect()
    }
}

/// An operation with its own back-off.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RetryKey {
    /// Creating the pod's sandbox, or reading its addresses.
    Sandbox,
    /// Creating a sandbox again, although the last one was created.
    SandboxReplacement,
    /// Kills, stops and removals.
    Teardown,
    /// Removing dead instances.
    Garbage,
    /// Resizing the container of this name.
    Resize(String),
    /// Starting the container of this name.
    Container(String),
}

/// As snapshots show it: a container by its name, all others by texts that no container's name can be.
impl fmt::Display for RetryKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sandbox => Ok(()),
            Self::SandboxReplacement => f.write_str("\u{0}another sandbox"),
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
    fn a_sandbox_is_replaced_at_once_and_then_after_growing_pauses_unless_it_lasts() {
        let mut retries = Retries::default();
        let mut at = kernel::now();
        let mut pauses = Vec::new();
        for _ in 0..9 {
            retries.sandbox_made(at);
            let until = retries.times().max().unwrap_or(at);
            pauses.push(until.saturating_duration_since(at).as_secs());
            at = until;
        }
        assert_eq!(pauses, [0, 1, 2, 4, 8, 16, 32, 60, 60]);
        at += SANDBOX_LASTS;
        retries.forget_due(at);
        retries.sandbox_made(at);
        assert!(!retries.is_backed_off(&RetryKey::SandboxReplacement));
    }

    #[test]
    fn snapshots_show_a_key_as_ever_and_in_the_same_order() {
        let keys = [
            (RetryKey::Sandbox, ""),
            (RetryKey::SandboxReplacement, "\u{0}another sandbox"),
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
