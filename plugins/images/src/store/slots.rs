//! Places for layers that are downloaded and unpacked, shared fairly by pulls.
//!
//! Each pull has one place of its own, so a pull from a slow registry never keeps another one waiting. There are so many
//! of these as [`Limits::pulls_abreast`](crate::Limits::pulls_abreast) says, and a registry has three quarters of them at
//! most: many pulls from one slow registry leave places to the others. Further places are shared: they go to the pull
//! that has the fewest.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::limits::Limits;

/// The places of a store.
#[derive(Clone, Debug)]
pub(crate) struct Slots(Arc<Mutex<State>>);

/// Who wants places: one pull or import.
#[derive(Clone, Debug)]
pub(crate) struct Puller {
    id: u64,
    registry: Arc<str>,
}

/// A place, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Slot {
    slots: Slots,
    puller: Puller,
    kind: SlotKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SlotKind {
    /// The one place that a pull has to itself.
    Own,
    Shared,
}

#[derive(Debug)]
struct State {
    max_own: usize,
    max_own_of_registry: usize,
    max_shared: usize,
    next: u64,
    /// Places of their own, by registry.
    own: BTreeMap<Arc<str>, usize>,
    shared: usize,
    /// What pulls hold, by their ids.
    held: BTreeMap<u64, Held>,
    waiting: Vec<Waiting>,
}

#[derive(Debug, Default)]
struct Held {
    count: usize,
    has_own: bool,
}

#[derive(Debug)]
struct Waiting {
    puller: Puller,
    sender: oneshot::Sender<Slot>,
}

impl Slots {
    pub(crate) fn new(limits: &Limits) -> Self {
        let max_own = limits.pulls_abreast.max(1);
        Self(Arc::new(Mutex::new(State {
            max_own,
            max_own_of_registry: (max_own * 3 / 4).max(1),
            max_shared: limits.layers_abreast.saturating_sub(1),
            next: 0,
            own: BTreeMap::new(),
            shared: 0,
            held: BTreeMap::new(),
            waiting: Vec::new(),
        })))
    }

    /// Returns who wants places for a pull from `registry`.
    pub(crate) fn puller(&self, registry: &str) -> Puller {
        let mut state = self.state();
        state.next += 1;
        Puller {
            id: state.next,
            registry: registry.into(),
        }
    }

    /// Waits for a place.
    pub(crate) async fn take(&self, puller: &Puller) -> Slot {
        let (sender, receiver) = oneshot::channel();
        self.state().waiting.push(Waiting {
            puller: puller.clone(),
            sender,
        });
        self.grant();
        receiver.await.expect("who waits is given a place or goes")
    }

    /// Gives places to those who may have one.
    fn grant(&self) {
        loop {
            // A place that its pull no longer wants comes back here, so the lock is not held while it is handed over.
            let Some((waiting, kind)) = self.state().next() else {
                return;
            };
            let slot = Slot {
                slots: self.clone(),
                puller: waiting.puller,
                kind,
            };
            drop(waiting.sender.send(slot));
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Takes the next one out of the queue that may have a place, and counts it.
    fn next(&mut self) -> Option<(Waiting, SlotKind)> {
        self.waiting.retain(|one| !one.sender.is_closed());
        let first = self
            .waiting
            .iter()
            .position(|one| self.may_have_own(&one.puller));
        let (place, kind) = match first {
            Some(place) => (place, SlotKind::Own),
            None if self.shared < self.max_shared => {
                let held =
                    |one: &Waiting| self.held.get(&one.puller.id).map_or(0, |held| held.count);
                // The first of equals: who waits longest.
                let (place, _) = self
                    .waiting
                    .iter()
                    .enumerate()
                    .min_by_key(|(_, one)| held(one))?;
                (place, SlotKind::Shared)
            }
            None => return None,
        };
        let waiting = self.waiting.remove(place);
        let held = self.held.entry(waiting.puller.id).or_default();
        held.count += 1;
        match kind {
            SlotKind::Own => {
                held.has_own = true;
                *self.own.entry(waiting.puller.registry.clone()).or_default() += 1;
            }
            SlotKind::Shared => self.shared += 1,
        }
        Some((waiting, kind))
    }

    fn may_have_own(&self, puller: &Puller) -> bool {
        let of_registry = self.own.get(&puller.registry).copied().unwrap_or(0);
        !self.held.get(&puller.id).is_some_and(|held| held.has_own)
            && of_registry < self.max_own_of_registry
            && self.own.values().sum::<usize>() < self.max_own
    }

    fn give_back(&mut self, puller: &Puller, kind: SlotKind) {
        if let Some(held) = self.held.get_mut(&puller.id) {
            held.count -= 1;
            held.has_own &= kind != SlotKind::Own;
            if held.count == 0 {
                self.held.remove(&puller.id);
            }
        }
        match kind {
            SlotKind::Shared => self.shared -= 1,
            SlotKind::Own => {
                if let Some(count) = self.own.get_mut(&puller.registry) {
                    *count -= 1;
                    if *count == 0 {
                        self.own.remove(&puller.registry);
                    }
                }
            }
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.slots.state().give_back(&self.puller, self.kind);
        self.slots.grant();
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn slots(layers_abreast: usize, pulls_abreast: usize) -> Slots {
        Slots::new(&Limits {
            layers_abreast,
            pulls_abreast,
            ..Limits::default()
        })
    }

    /// Takes what is there now.
    fn take(slots: &Slots, puller: &Puller) -> Option<Slot> {
        slots.take(puller).now_or_never()
    }

    #[tokio::test]
    async fn a_pull_has_a_place_whatever_the_others_have() {
        let slots = slots(3, 4);
        let slow = slots.puller("slow");
        let held: Vec<_> = (0..5).map_while(|_| take(&slots, &slow)).collect();
        assert_eq!(held.len(), 3, "one of its own, two shared ones");
        let good = slots.puller("good");
        let first = take(&slots, &good).unwrap();
        assert!(take(&slots, &good).is_none());
        drop(held);
        assert!(take(&slots, &good).is_some());
        drop(first);
    }

    #[tokio::test]
    async fn a_registry_leaves_places_to_others() {
        let slots = slots(1, 4);
        let slow: Vec<_> = (0..9).map(|_| slots.puller("slow")).collect();
        let held: Vec<_> = slow.iter().filter_map(|one| take(&slots, one)).collect();
        assert_eq!(held.len(), 3);
        let good = slots.puller("good");
        let own = take(&slots, &good).unwrap();
        assert!(
            take(&slots, &slots.puller("other")).is_none(),
            "all are taken"
        );
        drop(own);
        assert!(take(&slots, &slots.puller("other")).is_some());
    }

    #[tokio::test]
    async fn shared_places_go_to_who_has_the_fewest_and_cancelled_waits_take_none() {
        let slots = slots(2, 8);
        let (many, few) = (slots.puller("a"), slots.puller("b"));
        let own_of_many = slots.take(&many).await;
        let shared = slots.take(&many).await;
        let own_of_few = slots.take(&few).await;
        let mut of_many = Box::pin(slots.take(&many));
        assert!((&mut of_many).now_or_never().is_none());
        let mut given_up = Box::pin(slots.take(&few));
        assert!((&mut given_up).now_or_never().is_none());
        let mut of_few = Box::pin(slots.take(&few));
        assert!((&mut of_few).now_or_never().is_none());
        drop(given_up);
        drop(own_of_many);
        // Its own place goes to the pull that has it: the other has one already.
        let again = of_many.now_or_never().unwrap();
        assert!((&mut of_few).now_or_never().is_none());
        drop(shared);
        assert!(of_few.now_or_never().is_some());
        drop((again, own_of_few));
    }
}
