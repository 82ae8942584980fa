//! How far each pod is, for what collects the dead containers of the node.

use std::collections::BTreeSet;

use logic_api::types::PodUid;
use logic_resources::container_gc::{PodStanding, Standings};

use super::PodManager;

impl PodManager {
    /// The standing of every pod that is not gone; none before every source has told its pods.
    pub(super) fn standings(&self) -> Option<Standings> {
        if !self.sources.missing().is_empty() || self.unmanaged.pods.is_none() {
            return None;
        }
        let ended = |(uid, _): (&PodUid, &_)| (uid.clone(), PodStanding::Ended);
        let mut standings: Standings = self.sources.iter().map(ended).collect();
        let kept = self.unmanaged.dead();
        standings.extend(kept.map(|uid| (uid.clone(), PodStanding::Kept)));
        // One that waits for something has nothing in the runtime, or is about to be taken over.
        let waiting = self
            .reservations
            .waiting()
            .map(|pod| super::names::uid_of(pod));
        let deferred = self.deferred.keys().cloned();
        let begins = waiting.chain(deferred);
        standings.extend(begins.map(|uid| (uid, PodStanding::Active)));
        standings.extend(self.workers.standings());
        Some(standings)
    }

    /// The pods that have not ended: with a worker, about to have one, or still there in the runtime.
    pub(super) fn unended(&self) -> Option<BTreeSet<PodUid>> {
        let standings = self.standings()?.into_iter();
        let active = standings.filter(|(_, standing)| *standing == PodStanding::Active);
        let alive = self.unmanaged.alive.iter().cloned();
        Some(active.map(|(uid, _)| uid).chain(alive).collect())
    }
}
