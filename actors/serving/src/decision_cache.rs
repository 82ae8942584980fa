//! A cache of decisions with an expiry; equal requests under way share one review.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::Future;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::{LocalBoxFuture, Shared};
use tokio::sync::Semaphore;

use crate::reviews::ReviewError;

/// Decisions kept: far more callers than a node has; each takes a few hundred bytes.
const MOST: usize = 1024;
/// Reviews under way at once: a caller that sends unknown tokens keeps others waiting, not the API server busy.
const AT_ONCE: usize = 32;
/// The reviews have deadlines of their own; this one is for all reviews of a request.
const TIMEOUT: Duration = Duration::from_secs(30);

type SharedLookup<V> = Shared<LocalBoxFuture<'static, Result<V, ReviewError>>>;

/// Decisions by request, bounded: the least recently used makes room.
pub(crate) struct DecisionCache<K, V: Clone> {
    known: RefCell<BTreeMap<K, CachedDecision<V>>>,
    asking: RefCell<BTreeMap<K, SharedLookup<V>>>,
    turns: Semaphore,
}

struct CachedDecision<V> {
    answer: V,
    until: Instant,
    used: Instant,
}

impl<K: Ord + Clone, V: Clone + 'static> DecisionCache<K, V> {
    pub(crate) fn new() -> Self {
        DecisionCache {
            known: RefCell::default(),
            asking: RefCell::default(),
            turns: Semaphore::new(AT_ONCE),
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
                let turn = tokio::time::timeout(TIMEOUT, self.turns.acquire()).await;
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

    fn known(&self, key: &K) -> Option<V> {
        let now = kernel::now();
        let mut known = self.known.borrow_mut();
        let entry = known.get_mut(key).filter(|entry| now < entry.until)?;
        entry.used = now;
        Some(entry.answer.clone())
    }

    fn keep(&self, key: K, answer: &V, lasting: Duration) {
        if lasting.is_zero() {
            return;
        }
        let now = kernel::now();
        let mut known = self.known.borrow_mut();
        if known.len() >= MOST && !known.contains_key(&key) {
            known.retain(|_, entry| now < entry.until);
        }
        if known.len() >= MOST && !known.contains_key(&key) {
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

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.known.borrow().len()
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
        f.debug_struct("Remembered")
            .field("known", &self.known.borrow().len())
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
            let (known, calls) = (DecisionCache::new(), Rc::new(Cell::new(0)));
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
            let (known, calls) = (DecisionCache::new(), Rc::new(Cell::new(0)));
            let all = (0..50).map(|_| asked(&known, 7, &calls));
            assert_eq!(futures_util::future::join_all(all).await, [14; 50]);
            assert_eq!(calls.get(), 1);
        });
    }

    #[test]
    fn what_was_used_longest_ago_makes_room() {
        run_paused(|| async {
            let (known, calls) = (DecisionCache::new(), Rc::new(Cell::new(0)));
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
            let known: DecisionCache<u32, u32> = DecisionCache::new();
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
}
