//! A cache of decisions with an expiry; equal requests under way share one review.
//!
//! Refusals lie apart from what was accepted, and whoever was accepted before has turns of its own for the next review: a
//! caller who invents requests pushes nobody out and keeps nobody waiting.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::Future;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::{LocalBoxFuture, Shared};
use tokio::sync::Semaphore;

use crate::reviews::{RequestHistory, ReviewError};

/// Accepted requests kept: far more callers than a node has; each takes a few hundred bytes.
const MOST: usize = 1024;
/// Refusals kept: a client that does not give up sends the same again and again.
const MOST_REFUSED: usize = 256;
/// Reviews under way at once of requests that were accepted before.
const AT_ONCE: usize = 32;
/// Reviews under way at once of other requests: enough for a node's callers, and no burden for the API server.
const UNKNOWN_AT_ONCE: usize = 8;
/// The reviews have deadlines of their own; this one is for all reviews of a request.
const TIMEOUT: Duration = Duration::from_secs(30);

type SharedLookup<V> = Shared<LocalBoxFuture<'static, Result<V, ReviewError>>>;

/// Decisions by request, bounded: the least recently used makes room.
pub(crate) struct DecisionCache<K, V: Clone> {
    accepts: fn(&V) -> bool,
    /// Those that have expired are kept as long as there is room: they tell who was accepted before.
    accepted: RefCell<Decisions<K, V>>,
    refused: RefCell<Decisions<K, V>>,
    asking: RefCell<BTreeMap<K, SharedLookup<V>>>,
    turns: Semaphore,
    unknown_turns: Semaphore,
}

struct Decisions<K, V> {
    most: usize,
    by_request: BTreeMap<K, CachedDecision<V>>,
}

struct CachedDecision<V> {
    answer: V,
    until: Instant,
    used: Instant,
}

impl<K: Ord + Clone, V: Clone + 'static> DecisionCache<K, V> {
    /// A cache of decisions, of which `accepts` says whether they are in the caller's favour.
    pub(crate) fn new(accepts: fn(&V) -> bool) -> Self {
        DecisionCache {
            accepts,
            accepted: RefCell::new(Decisions::new(MOST)),
            refused: RefCell::new(Decisions::new(MOST_REFUSED)),
            asking: RefCell::default(),
            turns: Semaphore::new(AT_ONCE),
            unknown_turns: Semaphore::new(UNKNOWN_AT_ONCE),
        }
    }

    /// Returns the cached decision.
    pub(crate) fn known(&self, key: &K) -> Option<V> {
        let accepted = self.accepted.borrow_mut().get(key);
        accepted.or_else(|| self.refused.borrow_mut().get(key))
    }

    pub(crate) fn history(&self, key: &K) -> RequestHistory {
        match self.accepted.borrow().by_request.contains_key(key) {
            true => RequestHistory::Accepted,
            false => RequestHistory::Unknown,
        }
    }

    /// Returns the cached decision, or requests one. It is kept as long as `keep` says; an error is not.
    pub(crate) async fn answer(
        &self,
        key: K,
        keep: impl Fn(&V) -> Duration,
        ask: impl Future<Output = Result<V, ReviewError>> + 'static,
    ) -> Result<V, ReviewError> {
        if let Some(answer) = self.known(&key) {
            return Ok(answer);
        }
        let shared = self.asking.borrow().get(&key).cloned();
        let answer = match shared {
            Some(asking) => within(asking).await,
            None => {
                let turns = match self.history(&key) {
                    RequestHistory::Accepted => &self.turns,
                    RequestHistory::Unknown => &self.unknown_turns,
                };
                let turn = tokio::time::timeout(TIMEOUT, turns.acquire()).await;
                let Ok(Ok(_turn)) = turn else {
                    return Err(late());
                };
                let asking = ask.boxed_local().shared();
                self.asking.borrow_mut().insert(key.clone(), asking.clone());
                let _forget = ForgetOnDrop {
                    asking: &self.asking,
                    key: &key,
                };
                within(asking).await
            }
        }?;
        self.keep(key, &answer, keep(&answer));
        Ok(answer)
    }

    fn keep(&self, key: K, answer: &V, lasting: Duration) {
        let (to, from) = match (self.accepts)(answer) {
            true => (&self.accepted, &self.refused),
            false => (&self.refused, &self.accepted),
        };
        from.borrow_mut().by_request.remove(&key);
        if !lasting.is_zero() {
            to.borrow_mut().keep(key, answer, lasting);
        }
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.accepted.borrow().by_request.len() + self.refused.borrow().by_request.len()
    }
}

impl<K: Ord + Clone, V: Clone> Decisions<K, V> {
    fn new(most: usize) -> Self {
        Decisions {
            most,
            by_request: BTreeMap::new(),
        }
    }

    fn get(&mut self, key: &K) -> Option<V> {
        let now = kernel::now();
        let entry = self.by_request.get_mut(key);
        let entry = entry.filter(|entry| now < entry.until)?;
        entry.used = now;
        Some(entry.answer.clone())
    }

    fn keep(&mut self, key: K, answer: &V, lasting: Duration) {
        let (now, most, known) = (kernel::now(), self.most, &mut self.by_request);
        if known.len() >= most && !known.contains_key(&key) {
            known.retain(|_, entry| now < entry.until);
        }
        if known.len() >= most && !known.contains_key(&key) {
            let oldest = known.iter().min_by_key(|(_, entry)| entry.used);
            if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
                known.remove(&oldest);
            }
        }
        let entry = CachedDecision {
            answer: answer.clone(),
            until: now + lasting,
            used: now,
        };
        known.insert(key, entry);
    }
}

/// The first caller may go away; callers that joined its review go on without it.
struct ForgetOnDrop<'a, K: Ord, V: Clone> {
    asking: &'a RefCell<BTreeMap<K, SharedLookup<V>>>,
    key: &'a K,
}

impl<K: Ord, V: Clone> Drop for ForgetOnDrop<'_, K, V> {
    fn drop(&mut self) {
        self.asking.borrow_mut().remove(self.key);
    }
}

async fn within<V: Clone>(asking: SharedLookup<V>) -> Result<V, ReviewError> {
    tokio::time::timeout(TIMEOUT, asking)
        .await
        .unwrap_or_else(|_| Err(late()))
}

fn late() -> ReviewError {
    ReviewError::Unreachable {
        why: "no answer in time".to_owned(),
    }
}

impl<K, V: Clone> std::fmt::Debug for DecisionCache<K, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DecisionCache")
            .field("accepted", &self.accepted.borrow().by_request.len())
            .field("refused", &self.refused.borrow().by_request.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use kernel::testing::{pass, run_paused};

    use super::*;

    const TTL: Duration = Duration::from_secs(60);

    /// Requests below this are accepted.
    const REFUSED: u32 = 1_000_000;

    fn is_accepted(answer: &u32) -> bool {
        *answer < REFUSED
    }

    async fn asked(known: &DecisionCache<u32, u32>, key: u32, calls: &Rc<Cell<u32>>) -> u32 {
        let calls = Rc::clone(calls);
        let ask = async move {
            calls.set(calls.get() + 1);
            tokio::task::yield_now().await;
            Ok(key * 2)
        };
        known.answer(key, |_| TTL, ask).await.unwrap()
    }

    /// Upstream's TestCachedTokenAuthenticator, and TestExpiredGet and TestLRUOverflow of its cache.
    #[test]
    fn answers_are_kept_for_their_time_and_no_longer() {
        run_paused(|| async {
            let (known, calls) = (DecisionCache::new(is_accepted), Rc::new(Cell::new(0)));
            for _ in 0..3 {
                assert_eq!(asked(&known, 1, &calls).await, 2);
            }
            assert_eq!(calls.get(), 1);
            pass(TTL).await;
            asked(&known, 1, &calls).await;
            assert_eq!(calls.get(), 2);
        });
    }

    #[test]
    fn many_askers_are_one_question() {
        run_paused(|| async {
            let (known, calls) = (DecisionCache::new(is_accepted), Rc::new(Cell::new(0)));
            let all = (0..50).map(|_| asked(&known, 7, &calls));
            assert_eq!(futures_util::future::join_all(all).await, [14; 50]);
            assert_eq!(calls.get(), 1);
        });
    }

    #[test]
    fn what_was_used_longest_ago_makes_room() {
        run_paused(|| async {
            let (known, calls) = (DecisionCache::new(is_accepted), Rc::new(Cell::new(0)));
            for key in 0..3000 {
                asked(&known, key, &calls).await;
                pass(Duration::from_micros(1)).await;
                asked(&known, 0, &calls).await;
            }
            assert_eq!(known.len(), MOST);
            assert_eq!(calls.get(), 3000, "what is used stays");
        });
    }

    #[test]
    fn errors_are_forgotten_and_questions_end() {
        run_paused(|| async {
            let known: DecisionCache<u32, u32> = DecisionCache::new(is_accepted);
            let refused = known.answer(1, |_| TTL, async { Err(ReviewError::Alone) });
            assert_eq!(refused.await, Err(ReviewError::Alone));
            assert_eq!(known.len(), 0);
            let silent = known.answer(1, |_| TTL, std::future::pending()).await;
            assert!(silent.is_err_and(|error| error.transient()));
            assert_eq!(
                known.answer(1, |_| Duration::ZERO, async { Ok(1) }).await,
                Ok(1)
            );
            assert_eq!(known.len(), 0, "what is kept for no time is not kept");
        });
    }

    #[test]
    fn refusals_push_out_no_request_that_was_accepted() {
        run_paused(|| async {
            let (known, calls) = (DecisionCache::new(is_accepted), Rc::new(Cell::new(0)));
            asked(&known, 1, &calls).await;
            for key in 0..5000 {
                pass(Duration::from_micros(1)).await;
                asked(&known, REFUSED + key, &calls).await;
            }
            assert_eq!(known.len(), 1 + MOST_REFUSED);
            let before = calls.get();
            assert_eq!(asked(&known, 1, &calls).await, 2);
            assert_eq!(calls.get(), before, "it is still known");
        });
    }

    #[test]
    fn who_was_accepted_before_waits_behind_no_unknown_request() {
        run_paused(|| async {
            let known = DecisionCache::new(is_accepted);
            let calls = Rc::new(Cell::new(0));
            asked(&known, 1, &calls).await;
            pass(TTL).await;
            let silent = (2..100).map(|key| known.answer(key, |_| TTL, std::future::pending()));
            let silent = futures_util::future::join_all(silent);
            tokio::select! {
                biased;
                _ = silent => unreachable!("nobody answers them"),
                answer = asked(&known, 1, &calls) => assert_eq!(answer, 2),
            }
            assert_eq!(calls.get(), 2, "it was reviewed again");
        });
    }
}
