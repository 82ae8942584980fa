//! Lets calls of one kind into the runtime, starts or stops, a limited number abreast: the pod of the highest priority
//! first, of equal ones the one that has waited longest since its first start.
//!
//! Each of a pod's calls waits for itself, so that a pod that has begun ends before a later one begins. Pulls, volumes,
//! hooks and grace periods don't count. Upstream lets all of them in at once.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Instant;

use logic_pods::runtime::call_limit::{CallLimit, RuntimeCall};
use tokio::sync::oneshot;

/// The limiter of all pods' starts, or of all their stops. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct CallLimiter(Rc<RefCell<CallQueue>>);

/// A pod's place among those that wait: the higher priority first, then the earlier moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CallRank {
    priority: Reverse<i32>,
    since: Instant,
}

impl CallRank {
    pub fn new(priority: i32, since: Instant) -> Self {
        CallRank {
            priority: Reverse(priority),
            since,
        }
    }

    /// Behind every pod's: nothing waits for this call.
    pub fn last() -> Self {
        CallRank::new(i32::MIN, kernel::now())
    }
}

#[derive(Debug, Default)]
struct CallQueue {
    limit: CallLimit,
    waiting: BTreeMap<(CallRank, u64), WaitingCall>,
    running: BTreeMap<u64, (RuntimeCall, Instant)>,
    next: u64,
}

#[derive(Debug)]
struct WaitingCall {
    call: RuntimeCall,
    turn: oneshot::Sender<()>,
}

/// The right to make one call; it ends when this is dropped, also while it is waited for.
#[derive(Debug)]
#[must_use = "the call is made while this lives"]
pub struct CallPermit {
    limiter: CallLimiter,
    place: (CallRank, u64),
}

impl CallLimiter {
    /// Whether no call is under way.
    pub fn is_idle(&self) -> bool {
        self.0.borrow().running.is_empty()
    }

    /// Waits for the call's turn.
    pub async fn enter(&self, call: RuntimeCall, rank: CallRank) -> CallPermit {
        let (turn, mut came) = oneshot::channel();
        let permit = CallPermit {
            limiter: self.clone(),
            place: self.0.borrow_mut().queue(rank, WaitingCall { call, turn }),
        };
        loop {
            self.0.borrow_mut().admit(kernel::now());
            let next_stuck = self.0.borrow().next_stuck(kernel::now());
            let stuck = async {
                match next_stuck {
                    Some(at) => tokio::time::sleep_until(at.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                // An error would say that the sender was dropped unsent, which this permit alone does.
                _ = &mut came => return permit,
                () = stuck => {}
            }
        }
    }
}

impl CallQueue {
    fn queue(&mut self, rank: CallRank, call: WaitingCall) -> (CallRank, u64) {
        self.next += 1;
        let place = (rank, self.next);
        self.waiting.insert(place, call);
        place
    }

    fn stuck_at(&self, (call, since): &(RuntimeCall, Instant)) -> Instant {
        *since + self.limit.stuck_after(*call)
    }

    /// How many calls are under way that count.
    fn abreast(&self, now: Instant) -> usize {
        let calls = self.running.values();
        calls.filter(|call| self.stuck_at(call) > now).count()
    }

    /// When the next call that counts stops to count.
    fn next_stuck(&self, now: Instant) -> Option<Instant> {
        let moments = self.running.values().map(|call| self.stuck_at(call));
        moments.filter(|at| *at > now).min()
    }

    fn admit(&mut self, now: Instant) {
        while self.abreast(now) < self.limit.allowed() {
            let Some(((_, id), start)) = self.waiting.pop_first() else {
                return;
            };
            self.running.insert(id, (start.call, now));
            // One that has gone gives its place back as its permit is dropped.
            let _ = start.turn.send(());
        }
    }
}

impl CallPermit {
    /// The call ended well: how long it took counts for the limit.
    pub fn end(self) {
        let mut queue = self.limiter.0.borrow_mut();
        let now = kernel::now();
        let abreast = queue.abreast(now);
        if let Some((call, since)) = queue.running.get(&self.place.1).copied() {
            let took = now.saturating_duration_since(since);
            queue.limit.ended(call, took, abreast);
        }
    }
}

impl Drop for CallPermit {
    fn drop(&mut self) {
        let mut queue = self.limiter.0.borrow_mut();
        queue.waiting.remove(&self.place);
        queue.running.remove(&self.place.1);
        queue.admit(kernel::now());
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use kernel::testing::{pass, run_paused};

    use super::*;

    const MOMENT: Duration = Duration::from_millis(10);

    /// Starts that tell their names as their turns come, and each take a while.
    struct Rig {
        limiter: CallLimiter,
        order: Rc<RefCell<Vec<String>>>,
        began: Instant,
    }

    impl Rig {
        fn new() -> Rig {
            Rig {
                limiter: CallLimiter::default(),
                order: Rc::default(),
                began: kernel::now(),
            }
        }

        fn start(&self, name: &str, priority: i32, takes: Duration) -> tokio::task::JoinHandle<()> {
            let (limiter, order) = (self.limiter.clone(), self.order.clone());
            let rank = CallRank::new(priority, self.began);
            let name = name.to_owned();
            tokio::task::spawn_local(async move {
                let permit = limiter.enter(RuntimeCall::Sandbox, rank).await;
                order.borrow_mut().push(name);
                tokio::time::sleep(takes).await;
                permit.end();
            })
        }

        fn fill(&self, takes: Duration) {
            for nth in 0..CallLimit::default().allowed() {
                drop(self.start(&format!("first-{nth}"), 0, takes));
            }
        }

        fn order(&self) -> Vec<String> {
            std::mem::take(&mut self.order.borrow_mut())
        }
    }

    #[test]
    fn the_highest_priority_is_let_in_first_and_then_who_came_first() {
        run_paused(|| async {
            let rig = Rig::new();
            rig.fill(MOMENT);
            drop(rig.start("late", 0, MOMENT));
            drop(rig.start("later", 0, MOMENT));
            drop(rig.start("critical", 2_000_000_000, MOMENT));
            pass(MOMENT / 2).await;
            assert_eq!(rig.order().len(), 8);
            pass(MOMENT * 3).await;
            assert_eq!(rig.order(), ["critical", "late", "later"]);
        });
    }

    #[test]
    fn starts_that_hang_hold_up_nobody() {
        run_paused(|| async {
            let rig = Rig::new();
            rig.fill(Duration::from_secs(3600));
            drop(rig.start("next", 0, MOMENT));
            pass(Duration::from_secs(1)).await;
            assert_eq!(rig.order().len(), 8);
            pass(Duration::from_secs(2)).await;
            assert_eq!(rig.order(), ["next"]);
        });
    }

    #[test]
    fn one_that_gives_up_waiting_or_working_leaves_its_place() {
        run_paused(|| async {
            let rig = Rig::new();
            let working = rig.start("working", 0, Duration::from_secs(3600));
            for nth in 1..8 {
                drop(rig.start(&format!("first-{nth}"), 0, Duration::from_secs(3600)));
            }
            let waiting = rig.start("waiting", 0, MOMENT);
            drop(rig.start("next", 0, MOMENT));
            pass(MOMENT).await;
            assert_eq!(rig.order().len(), 8);
            waiting.abort();
            working.abort();
            pass(MOMENT).await;
            assert_eq!(rig.order(), ["next"]);
        });
    }
}
