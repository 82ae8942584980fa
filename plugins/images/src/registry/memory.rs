//! What is remembered of hosts between pulls: those that did not answer, and those that asked for a pause.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::Words;

/// How long a mirror that did not answer is passed over.
pub(super) const AVOIDED_FOR: Duration = Duration::from_secs(60);
/// The longest pause that a registry is granted, whatever it asks for.
const MAX_PAUSE: Duration = Duration::from_secs(300);
/// Hosts of each kind that are remembered; the one whose time ends first makes room.
const MAX_REMEMBERED: usize = 256;

/// The memory of a store's pulls, in this process alone.
#[derive(Debug, Default)]
pub(crate) struct HostMemory {
    avoided: Mutex<BTreeMap<String, MemoryEntry<String>>>,
    paused: Mutex<BTreeMap<String, MemoryEntry<Words>>>,
}

#[derive(Clone, Debug)]
struct MemoryEntry<T> {
    until: Instant,
    why: T,
}

impl HostMemory {
    /// Remembers that the host `origin` did not answer.
    pub(super) fn avoid(&self, origin: &str, why: String) {
        keep(lock(&self.avoided), origin, AVOIDED_FOR, why);
    }

    /// Returns why the host `origin` is passed over, if it is.
    pub(super) fn is_avoided(&self, origin: &str) -> Option<String> {
        find(lock(&self.avoided), origin).map(|(_, why)| why)
    }

    /// Forgets that the host `origin` did not answer: it has.
    pub(super) fn answered(&self, origin: &str) {
        lock(&self.avoided).remove(origin);
    }

    /// Remembers that `whom`, a host and who asks it, has to wait.
    pub(super) fn pause(&self, whom: &str, wait: Duration, words: Words) {
        keep(lock(&self.paused), whom, wait.min(MAX_PAUSE), words);
    }

    /// Returns what is left of the pause of `whom`, and what the host said.
    pub(super) fn pause_left(&self, whom: &str) -> Option<(Duration, Words)> {
        find(lock(&self.paused), whom)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn keep<T>(
    mut kept: MutexGuard<'_, BTreeMap<String, MemoryEntry<T>>>,
    key: &str,
    wait: Duration,
    why: T,
) {
    let now = Instant::now();
    kept.retain(|_, one| one.until > now);
    if kept.len() >= MAX_REMEMBERED
        && let Some(first) = kept
            .iter()
            .min_by_key(|(_, one)| one.until)
            .map(|(key, _)| key.clone())
    {
        kept.remove(&first);
    }
    let until = now + wait;
    kept.insert(key.to_owned(), MemoryEntry { until, why });
}

fn find<T: Clone>(
    kept: MutexGuard<'_, BTreeMap<String, MemoryEntry<T>>>,
    key: &str,
) -> Option<(Duration, T)> {
    let one = kept.get(key)?;
    let left = one.until.checked_duration_since(Instant::now())?;
    (!left.is_zero()).then(|| (left, one.why.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_host_is_remembered_for_a_while_and_a_pause_has_a_bound() {
        let memory = HostMemory::default();
        memory.avoid("a", "gone".to_owned());
        memory.pause("b", Duration::from_secs(86_400), Words::default());
        assert_eq!(memory.is_avoided("a").as_deref(), Some("gone"));
        assert_eq!(memory.pause_left("b"), Some((MAX_PAUSE, Words::default())));
        tokio::time::advance(AVOIDED_FOR).await;
        assert_eq!(memory.is_avoided("a"), None);
        tokio::time::advance(MAX_PAUSE).await;
        assert_eq!(memory.pause_left("b"), None);
        for number in 0..2 * MAX_REMEMBERED {
            memory.avoid(&number.to_string(), String::new());
        }
        assert_eq!(lock(&memory.avoided).len(), MAX_REMEMBERED);
    }
}
