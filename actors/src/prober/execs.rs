//! How many commands run in containers at once.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use super::probe::ProbeId;

/// Commands at once. Each is a process that the runtime starts, some tens of milliseconds of a core: more of
/// them at once would only be slower, and take from the pods what they need.
const PLACES: usize = 32;
/// How long a command keeps its place. One that takes longer waits rather than works, and a pod whose
/// commands hang must not hold up the others'.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);

/// The places, and who waits for one: first come, first served, and each probe at most once.
#[derive(Debug, Default)]
pub(super) struct Execs {
    placed: BTreeSet<ProbeId>,
    queue: VecDeque<ProbeId>,
}

impl Execs {
    pub(super) fn running(&self) -> usize {
        self.placed.len()
    }

    pub(super) fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// Takes a place; false if there is none, and the probe waits for one.
    pub(super) fn enter(&mut self, probe: ProbeId) -> bool {
        let room = self.placed.len() < PLACES;
        match room {
            true => drop(self.placed.insert(probe)),
            false => self.queue.push_back(probe),
        }
        room
    }

    /// Gives up its place, or its wait for one; returns who takes the place.
    pub(super) fn leave(&mut self, probe: ProbeId) -> Option<ProbeId> {
        self.queue.retain(|waiting| *waiting != probe);
        if !self.placed.remove(&probe) {
            return None;
        }
        let next = self.queue.pop_front()?;
        self.placed.insert(next);
        Some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(count: usize) -> Vec<ProbeId> {
        std::iter::successors(Some(ProbeId::default()), |id| Some(id.next()))
            .take(count)
            .collect()
    }

    #[test]
    fn who_finds_no_place_gets_the_next_one_in_its_turn() {
        let ids = ids(PLACES + 3);
        let mut execs = Execs::default();
        let entered = ids.iter().filter(|id| execs.enter(**id)).count();
        assert_eq!(
            (entered, execs.running(), execs.waiting()),
            (PLACES, PLACES, 3)
        );
        assert_eq!(execs.leave(ids[PLACES + 1]), None);
        assert_eq!(execs.leave(ids[0]), Some(ids[PLACES]));
        assert_eq!(execs.leave(ids[0]), None);
        assert_eq!(execs.leave(ids[1]), Some(ids[PLACES + 2]));
        assert_eq!(execs.leave(ids[2]), None);
        assert_eq!((execs.running(), execs.waiting()), (PLACES - 1, 0));
    }
}
