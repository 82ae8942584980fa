//! How many commands run in containers at once.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use super::probe::ProbeId;

/// Commands at once. Each is a process that the runtime starts, some tens of milliseconds of a core: more of
/// them at once would only be slower, and take from the pods what they need.
const MAX_EXECS: usize = 32;
/// How long a command keeps its place. One that takes longer waits rather than works, and a pod whose
/// commands hang must not hold up the others'.
pub(super) const EXEC_SLOT_TIMEOUT: Duration = Duration::from_secs(1);

/// The places, and who waits for one: first come, first served, and each probe at most once.
#[derive(Debug, Default)]
pub(super) struct ExecLimit {
    placed: BTreeSet<ProbeId>,
    queue: VecDeque<ProbeId>,
}

impl ExecLimit {
    pub(super) fn running(&self) -> usize {
        self.placed.len()
    }

    pub(super) fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// Takes a place; false if there is none, and the probe waits for one.
    pub(super) fn enter(&mut self, probe: ProbeId) -> bool {
        let room = self.placed.len() < MAX_EXECS;
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
        let ids = ids(MAX_EXECS + 3);
        let mut exec_limit = ExecLimit::default();
        let entered = ids.iter().filter(|id| exec_limit.enter(**id)).count();
        assert_eq!(
            (entered, exec_limit.running(), exec_limit.waiting()),
            (MAX_EXECS, MAX_EXECS, 3)
        );
        assert_eq!(exec_limit.leave(ids[MAX_EXECS + 1]), None);
        assert_eq!(exec_limit.leave(ids[0]), Some(ids[MAX_EXECS]));
        assert_eq!(exec_limit.leave(ids[0]), None);
        assert_eq!(exec_limit.leave(ids[1]), Some(ids[MAX_EXECS + 2]));
        assert_eq!(exec_limit.leave(ids[2]), None);
        assert_eq!(
            (exec_limit.running(), exec_limit.waiting()),
            (MAX_EXECS - 1, 0)
        );
    }
}
