//! Actual state, desired state, and the next operations.
//!
//! [`StateOfWorld`] takes mount requests, releases and what was found on the node; [`StateOfWorld::plan`] returns the
//! operations to start now, and [`StateOfWorld::ended`] takes their results. Nothing else changes it.
//!
//! **Invariants.** Of one volume at most one operation is under way. A volume is staged before it is mounted and
//! unstaged after its last unmount. It is mounted only when it is resolved and, if a controller attaches it, reported
//! in use, which it is from the mount request on. It is unmounted only when its pod no longer wants it, and no subpath
//! operation works within it. Whatever was found after a restart is uncertain: a pod that wants it has it mounted
//! again, which changes nothing if it was whole; it is unmounted only when it is certain that no pod will want it.
//!
//! Upstream: pkg/kubelet/volumemanager/{reconciler,cache}, pkg/volume/util/{operationexecutor,nestedpendingoperations},
//! pkg/util/goroutinemap/exponentialbackoff (1.36).

mod actual_state;
mod concurrency;
mod content;
mod decide;
mod desired_state;
mod events;
mod operation;
mod overdue;
mod queue;
mod reconstruct;
mod results;
mod staging;
#[cfg(test)]
pub(crate) mod tests;
mod view;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use logic_api::types::PodUid;

use self::actual_state::{PendingOperation, PodVolumes, SharedVolume};
use self::concurrency::{FreeSlots, RunningOperations, SlotRequest};
pub use self::desired_state::{DesiredVolume, ResolveTrigger};
use self::operation::OperationTarget;
pub use self::operation::{
    FailureEffect, KindCapabilities, MountPoint, OperationResult, PodVolumeEvent, UnstageOperation,
    VolumeOperation,
};
use self::queue::{OperationBackoffs, OperationQueue};
pub use self::view::{MeasurableVolume, VolumeRow};
use super::{VolumeId, VolumeKind};

/// The desired and the actual, and what is under way between them.
#[derive(Debug, Default)]
pub struct StateOfWorld {
    /// The node's name, for events.
    node_name: String,
    plugins: PluginKnowledge,
    pods_on_node: PodsOnNode,
    /// The volumes that the node's status reports in use.
    reported: BTreeSet<VolumeId>,

    pods: BTreeMap<PodUid, PodVolumes>,
    /// By pod, what it wants and a controller is to attach before it can be resolved.
    awaited: BTreeMap<PodUid, BTreeSet<VolumeId>>,
    shared: BTreeMap<VolumeId, SharedVolume>,
    /// What was found staged, and no pod has asked for yet.
    found: BTreeSet<VolumeId>,

    queue: OperationQueue,
    running: RunningOperations,
    backoffs: OperationBackoffs,
    output: ReconcileOutput,
}

/// What the storage plugins said of themselves.
#[derive(Debug, Default)]
struct PluginKnowledge {
    /// The capabilities of each kind's plugin; other kinds are not known yet.
    capabilities: BTreeMap<VolumeKind, KindCapabilities>,
    /// The kinds of which it is known what was mounted before.
    listed: BTreeSet<VolumeKind>,
}

/// The pods that may have volumes on this node.
#[derive(Debug, Default)]
struct PodsOnNode {
    /// The pods of the pod manager; none before its first list.
    known: Option<BTreeSet<PodUid>>,
    /// Pods whose volume directories exist on the node, until the desired pods are known.
    folders: BTreeSet<PodUid>,
}

/// What others are to be told since they last asked.
#[derive(Debug, Default)]
struct ReconcileOutput {
    /// Events for users.
    events: Vec<PodVolumeEvent>,
    /// Pods whose volumes may all be there now, or all gone.
    touched: BTreeSet<PodUid>,
    /// Pods that waited for a volume which another pod left.
    unblocked: BTreeSet<PodUid>,
    /// Whether a call became overdue, or an overdue one was answered.
    overdue_changed: bool,
}

/// The operations to start, and when to plan again if nothing happens before.
#[derive(Debug, Default)]
pub struct ReconcilePlan {
    pub tasks: Vec<VolumeOperation>,
    pub wake: Option<Instant>,
}

/// The decision about one volume, mount or pod.
#[derive(Debug)]
enum ReconcileDecision {
    /// Nothing, until something happens.
    Rest,
    Wait(Instant),
    Do(Box<VolumeOperation>, SlotRequest),
}

impl StateOfWorld {
    pub fn new(node_name: &str) -> Self {
        StateOfWorld {
            node_name: node_name.to_owned(),
            ..StateOfWorld::default()
        }
    }

    /// The operations to start now. Each counts as running until its result is reported.
    pub fn plan(&mut self, now: Instant) -> ReconcilePlan {
        let mut plan = ReconcilePlan::default();
        let mut places = self.running.places(now);
        let mut at = 0;
        while let Some((place, subject)) = self.queue.after(at) {
            at = place;
            match self.decide(&subject, now) {
                ReconcileDecision::Rest => self.queue.remove(place),
                ReconcileDecision::Wait(until) => earlier(&mut plan.wake, until),
                ReconcileDecision::Do(task, claim) => {
                    if self.running.begin(&task, &claim, &mut places, now) {
                        self.queue.remove(place);
                        self.begin(&task);
                        plan.tasks.push(*task);
                    } else {
                        self.tell_blocked(&task, &claim.lane);
                    }
                }
            }
        }
        self.wake_when_free(&mut plan, places);
        plan
    }

    fn wake_when_free(&self, plan: &mut ReconcilePlan, places: FreeSlots) {
        if let Some(next) = places.next.filter(|_| places.is_full()) {
            earlier(&mut plan.wake, next);
        }
    }

    /// Takes the events for users since the last call.
    pub fn take_events(&mut self) -> Vec<PodVolumeEvent> {
        std::mem::take(&mut self.output.events)
    }

    /// The pods whose volumes may all be there now, or all gone, since it was last asked.
    pub fn take_touched_pods(&mut self) -> BTreeSet<PodUid> {
        std::mem::take(&mut self.output.touched)
    }

    /// The pods that wait for a volume which another pod left, since it was last asked: they are to be resolved again.
    pub fn take_unblocked_pods(&mut self) -> BTreeSet<PodUid> {
        std::mem::take(&mut self.output.unblocked)
    }

    /// Checks everything again at the next plan. It should change nothing.
    pub fn requeue_all(&mut self) {
        let places = self.pods.values().flat_map(|pod| pod.mounts.keys());
        let places: Vec<MountPoint> = places.cloned().collect();
        places
            .into_iter()
            .for_each(|place| self.queue.push(OperationTarget::Mount(place)));
        let ids: Vec<VolumeId> = self.shared.keys().cloned().collect();
        ids.into_iter()
            .for_each(|id| self.queue.push(OperationTarget::Volume(id)));
        let uids: Vec<PodUid> = self.pods.keys().cloned().collect();
        uids.into_iter()
            .for_each(|uid| self.queue.push(OperationTarget::Pod(uid)));
    }

    /// Checks a volume, and its mounts and pods, again.
    fn requeue_volume(&mut self, id: &VolumeId) {
        self.queue.push(OperationTarget::Volume(id.clone()));
        let users = self.shared.get(id).map(|shared| shared.users.clone());
        for place in users.into_iter().flatten() {
            self.queue.push(OperationTarget::Mount(place));
        }
    }

    fn begin(&mut self, task: &VolumeOperation) {
        if let Some(shared) = task.volume().and_then(|id| self.shared.get_mut(id)) {
            debug_assert_eq!(shared.busy, PendingOperation::No, "one operation a volume");
            shared.busy = PendingOperation::Yes;
        }
        match task {
            VolumeOperation::Mount { place, .. } => {
                if let Some(mount) = self.mount_mut(place) {
                    mount.doing = mount.want.as_ref().map(|want| want.content.clone());
                }
            }
            VolumeOperation::Unmount { place, .. } => {
                if let Some(mount) = self.mount_mut(place) {
                    mount.actual = actual_state::MountState::Uncertain;
                }
            }
            VolumeOperation::Remove { uid } => {
                if let Some(pod) = self.pods.get_mut(uid) {
                    pod.removal = actual_state::PodRemoval::UnderWay;
                }
            }
            VolumeOperation::Stage { .. }
            | VolumeOperation::Unstage(_)
            | VolumeOperation::Expand { .. } => {}
        }
    }

    fn mount(&self, place: &MountPoint) -> Option<&actual_state::PodMount> {
        self.pods
            .get(&place.uid)?
            .mounts
            .get(place)
            .map(Box::as_ref)
    }

    fn mount_mut(&mut self, place: &MountPoint) -> Option<&mut actual_state::PodMount> {
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
