//! What the runtime makes at the moment through this adapter, and the ids of what it has made.
//!
//! containerd reports a container before its CRI part lists it, a sandbox long before. Whoever hears of an id that is
//! not known waits for the answers to the calls that may be making it, instead of asking CRI over and over.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::timeout;

/// How long the answers are waited for: longer than most sandboxes take. Calls are made as well by others than the agent.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// How many are remembered: the event of one comes at the same time as the answer.
const MAX_REMEMBERED: usize = 1024;

/// Sandboxes and containers in the making. Clones are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Creations(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    /// The calls without an answer, by number.
    calls: BTreeSet<u64>,
    /// What was made last, with its sandbox; the oldest first.
    made: VecDeque<(String, String)>,
}

/// A call that makes something, until it is dropped.
#[derive(Debug)]
pub(crate) struct Creation {
    creations: Creations,
    number: u64,
}

impl Creations {
    /// Begins a call.
    pub(crate) fn begin(&self) -> Creation {
        let mut state = self.state();
        state.next += 1;
        let number = state.next;
        state.calls.insert(number);
        Creation {
            creations: self.clone(),
            number,
        }
    }

    /// Returns the sandbox of a container or sandbox, once the call that makes it is answered; `None` when none of the calls
    /// that are on by now has made it.
    pub(crate) async fn sandbox_of(&self, id: &str) -> Option<String> {
        let latest = self.state().next;
        let found = async {
            loop {
                // Before the look: what happens after it wakes this up.
                let changed = self.0.changed.notified();
                {
                    let state = self.state();
                    if let Some((_, sandbox)) = state.made.iter().find(|(made, _)| made == id) {
                        return Some(sandbox.clone());
                    }
                    if state.calls.first().is_none_or(|first| *first > latest) {
                        return None;
                    }
                }
                changed.await;
            }
        };
        timeout(ANSWER_TIMEOUT, found).await.unwrap_or(None)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Creation {
    /// Records what the call has made.
    pub(crate) fn made(self, id: String, sandbox: String) {
        let mut state = self.creations.state();
        state.made.push_back((id, sandbox));
        if state.made.len() > MAX_REMEMBERED {
            state.made.pop_front();
        }
    }
}

impl Drop for Creation {
    fn drop(&mut self) {
        self.creations.state().calls.remove(&self.number);
        self.creations.0.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_id_is_waited_for_as_long_as_a_call_may_make_it() {
        let creations = Creations::default();
        assert_eq!(
            creations.sandbox_of("s").await,
            None,
            "nothing is being made"
        );

        let (first, second) = (creations.begin(), creations.begin());
        let waiting = tokio::spawn({
            let creations = creations.clone();
            async move { creations.sandbox_of("s").await }
        });
        tokio::task::yield_now().await;
        drop(first);
        // Whatever is begun later cannot be what was heard of.
        let third = creations.begin();
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        second.made("s".to_owned(), "s".to_owned());
        assert_eq!(waiting.await.unwrap().as_deref(), Some("s"));
        assert_eq!(creations.sandbox_of("s").await.as_deref(), Some("s"));

        let fourth = creations.begin();
        drop(third);
        let (absent, ()) = tokio::join!(creations.sandbox_of("other"), async { drop(fourth) });
        assert_eq!(absent, None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_without_an_answer_is_not_waited_for_for_ever() {
        let creations = Creations::default();
        let _call = creations.begin();
        assert_eq!(creations.sandbox_of("s").await, None);
    }

    #[tokio::test]
    async fn so_many_are_remembered_and_no_more() {
        let creations = Creations::default();
        for number in 0..=MAX_REMEMBERED {
            creations.begin().made(number.to_string(), "s".to_owned());
        }
        assert_eq!(creations.sandbox_of("0").await, None);
        assert_eq!(creations.sandbox_of("1").await.as_deref(), Some("s"));
    }
}
