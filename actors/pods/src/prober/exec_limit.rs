//! The limit of exec probes that run at once.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use super::probe::ProbeId;

/// Exec probes at once. Each is a process that the runtime starts, for some tens of milliseconds of a core: more
/// of them at once would only be slower, and use what the pods need.
const MAX_EXECS: usize = 32;
/// How long an exec probe keeps its slot. One that takes longer waits rather than works, and a pod whose
/// commands hang must not hold up the others'.
pub(super) const EXEC_SLOT_TIMEOUT: Duration = Duration::from_secs(1);

/// The slots and the queue for them: in order of arrival, each probe at most once.
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

    /// Takes a slot; returns false if none is free, and queues the probe.
    pub(super) fn enter(&mut self, probe: ProbeId) -> bool {
        let room = self.placed.len() < MAX_EXECS;
        match room {
            true => drop(self.placed.insert(probe)),
            false => self.queue.push_back(probe),
        }
        room
    }

    /// Gives up the probe's slot, or its position in the queue; returns the probe that takes over the slot.
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
