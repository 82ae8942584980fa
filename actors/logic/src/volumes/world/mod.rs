//! What is mounted, what should be, and what is done next.
//!
//! [`World`] hears wishes, releases and what was found on the node; [`World::plan`] says what is to be begun now, and
//! [`World::ended`] takes in how it ended. Nothing else moves it.
//!
//! **Invariants.** Of one volume at most one operation is under way. A volume is staged before it is mounted and
//! unstaged after its last unmount. It is mounted only when it is resolved and, if a controller attaches it, reported
//! in use, which it is from the wish on. It is unmounted only when its pod wants it no more, and nobody works within it. Whatever was found after a
//! restart is uncertain: who wants it has it mounted again, which changes nothing if it was whole; it goes only when
//! it is certain that nobody will want it.
//!
//! Upstream: pkg/kubelet/volumemanager/{reconciler,cache}, pkg/volume/util/{operationexecutor,nestedpendingoperations},
//! pkg/util/goroutinemap/exponentialbackoff (1.36).

mod backoff;
mod content;
mod decide;
mod ended;
mod found;
mod hear;
mod lanes;
mod queue;
mod staging;
mod state;
mod task;
#[cfg(test)]
mod tests;
mod view;
mod wish;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

pub use self::task::{Ability, Ending, News, Place, Task, Trace, Unstage};
pub use self::view::{Measurable, Row};
pub use self::wish::{Cause, Wish};

use self::backoff::Backoffs;
use self::lanes::{Claim, Lanes, Places};
use self::queue::Queue;
use self::state::{Busy, Pod, Shared};
use self::task::Subject;
use super::{Kind, VolumeId};
use crate::types::PodUid;

/// The desired and the actual, and what is under way between them.
#[derive(Debug, Default)]
pub struct World {
    /// As events name it.
    node_name: String,
    /// By kind, what its plugin said; of others nothing is known yet.
    abilities: BTreeMap<Kind, Ability>,
    /// The kinds of which it is known what was mounted before.
    listed: BTreeSet<Kind>,
    /// The pods that there are, as far as that was told.
    known: Option<BTreeSet<PodUid>>,
    /// Pods whose folders lie on the node, until it is known which pods there are.
    folders: BTreeSet<PodUid>,
    /// What the node's status says to be in use.
    reported: BTreeSet<VolumeId>,

    pods: BTreeMap<PodUid, Pod>,
    /// By pod, what it wants and a controller is to attach before it can be resolved.
    awaited: BTreeMap<PodUid, BTreeSet<VolumeId>>,
    shared: BTreeMap<VolumeId, Shared>,
    /// What was found staged, and nobody asked for yet.
    found: BTreeSet<VolumeId>,

    queue: Queue,
    lanes: Lanes,
    backoffs: Backoffs,
    news: Vec<News>,
    touched: BTreeSet<PodUid>,
    freed: BTreeSet<PodUid>,
}

/// What is to be begun, and when to ask again though nothing has happened.
#[derive(Debug, Default)]
pub struct Plan {
    pub tasks: Vec<Task>,
    pub wake: Option<Instant>,
}

/// What becomes of a subject now.
#[derive(Debug)]
enum Decision {
    /// Nothing, until something happens.
    Rest,
    Wait(Instant),
    Do(Box<Task>, Claim),
}

impl World {
    pub fn new(node_name: &str) -> Self {
        World {
            node_name: node_name.to_owned(),
            ..World::default()
        }
    }

    /// What is to be begun now. Everything in it counts as under way until its end is told.
    pub fn plan(&mut self, now: Instant) -> Plan {
        let mut plan = Plan::default();
        let mut places = self.lanes.places(now);
        let mut at = 0;
        while let Some((place, subject)) = self.queue.after(at) {
            at = place;
            match self.decide(&subject, now) {
                Decision::Rest => self.queue.remove(place),
                Decision::Wait(until) => earlier(&mut plan.wake, until),
                Decision::Do(task, claim) => {
                    if self.lanes.begin(&subject, &claim, &mut places, now) {
                        self.queue.remove(place);
                        self.begin(&task);
                        plan.tasks.push(*task);
                    }
                }
            }
        }
        self.wake_when_free(&mut plan, places);
        plan
    }

    fn wake_when_free(&self, plan: &mut Plan, places: Places) {
        if let Some(next) = places.next.filter(|_| places.is_full()) {
            earlier(&mut plan.wake, next);
        }
    }

    /// What a person should hear, since it was last asked.
    pub fn news(&mut self) -> Vec<News> {
        std::mem::take(&mut self.news)
    }

    /// The pods whose volumes may all be there now, or all gone, since it was last asked.
    pub fn touched(&mut self) -> BTreeSet<PodUid> {
        std::mem::take(&mut self.touched)
    }

    /// The pods that wait for a volume which another pod left, since it was last asked: they are to be resolved again.
    pub fn freed(&mut self) -> BTreeSet<PodUid> {
        std::mem::take(&mut self.freed)
    }

    /// Looks at everything again at the next plan. Nothing should come of it.
    pub fn doubt(&mut self) {
        let places = self.pods.values().flat_map(|pod| pod.mounts.keys());
        let places: Vec<Place> = places.cloned().collect();
        places
            .into_iter()
            .for_each(|place| self.queue.push(Subject::Mount(place)));
        let ids: Vec<VolumeId> = self.shared.keys().cloned().collect();
        ids.into_iter()
            .for_each(|id| self.queue.push(Subject::Shared(id)));
        let uids: Vec<PodUid> = self.pods.keys().cloned().collect();
        uids.into_iter()
            .for_each(|uid| self.queue.push(Subject::Pod(uid)));
    }

    /// Looks at a volume, and all that have to do with it, again.
    fn stir(&mut self, id: &VolumeId) {
        self.queue.push(Subject::Shared(id.clone()));
        let users = self.shared.get(id).map(|shared| shared.users.clone());
        for place in users.into_iter().flatten() {
            self.queue.push(Subject::Mount(place));
        }
    }

    fn begin(&mut self, task: &Task) {
        if let Some(shared) = task.volume().and_then(|id| self.shared.get_mut(id)) {
            debug_assert_eq!(shared.busy, Busy::No, "one operation a volume");
            shared.busy = Busy::Yes;
        }
        match task {
            Task::Mount { place, .. } => {
                if let Some(mount) = self.mount_mut(place) {
                    mount.doing = mount.want.as_ref().map(|want| want.content.clone());
                }
            }
            Task::Unmount { place, .. } => {
                if let Some(mount) = self.mount_mut(place) {
                    mount.actual = state::Actual::Uncertain;
                }
            }
            Task::Remove { uid } => {
                if let Some(pod) = self.pods.get_mut(uid) {
                    pod.removal = state::Removal::UnderWay;
                }
            }
            Task::Stage { .. } | Task::Unstage(_) | Task::Grow { .. } => {}
        }
    }

    fn mount(&self, place: &Place) -> Option<&state::Mount> {
        self.pods
            .get(&place.uid)?
            .mounts
            .get(place)
            .map(Box::as_ref)
    }

    fn mount_mut(&mut self, place: &Place) -> Option<&mut state::Mount> {
        self.pods
            .get_mut(&place.uid)?
            .mounts
            .get_mut(place)
            .map(Box::as_mut)
    }
}

fn earlier(wake: &mut Option<Instant>, other: Instant) {
    *wake = Some(wake.map_or(other, |wake| wake.min(other)));
}
