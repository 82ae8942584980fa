//! How many operations run at once, so that no backend takes all slots.
//!
//! Operations are limited by group: a CSI driver, an NFS server, else a kind of volumes. In all, [`MAX_ACTIVE`]
//! operations run, of one group [`MAX_PER_BACKEND`] or [`MAX_PER_KIND`], for one pod [`MAX_PER_POD`]. One that takes
//! longer than [`SLOW_AFTER`] frees its slot in all, up to [`MAX_RUNNING`], but not its slot in its group: a dozen
//! hung drivers slow down only the pods that use them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use logic_api::types::PodUid;

use super::operation::{OperationTarget, VolumeOperation};
use super::overdue::DriverCall;
use crate::{Volume, VolumeSource};

/// Operations that run at a time and do not take long: a disk serves no more of them faster.
const MAX_ACTIVE: usize = 64;
/// Operations that run at a time, those included that hang: each is a call that a plugin holds.
const MAX_RUNNING: usize = 512;
/// Operations of one kind of volumes at a time: half of all, so that no kind keeps the others out.
const MAX_PER_KIND: usize = 32;
/// Operations of one CSI driver or NFS server at a time: drivers serve few calls in parallel.
const MAX_PER_BACKEND: usize = 8;
/// Less than a backend's, so that a pod with many volumes leaves some to others.
const MAX_PER_POD: usize = 6;
const SLOW_AFTER: Duration = Duration::from_secs(10);

/// Operations of one group may be slow together: they use the same backend.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ConcurrencyGroup {
    Kind(&'static str),
    Backend(&'static str, String),
    Folders,
}

impl ConcurrencyGroup {
    pub(super) fn of(volume: &Volume) -> Self {
        let kind = volume.kind.as_str();
        match &volume.source {
            VolumeSource::Csi(csi) => Self::Backend(kind, csi.driver.clone()),
            VolumeSource::Nfs { server, .. } => Self::Backend(kind, server.clone()),
            VolumeSource::EmptyDir(_)
            | VolumeSource::HostPath { .. }
            | VolumeSource::Files(_)
            | VolumeSource::Local { .. }
            | VolumeSource::Image => Self::Kind(kind),
        }
    }

    fn most(&self) -> usize {
        match self {
            Self::Kind(_) => MAX_PER_KIND,
            Self::Backend(..) | Self::Folders => MAX_PER_BACKEND,
        }
    }
}

/// The group and the pod that a slot is taken for.
#[derive(Clone, Debug)]
pub(super) struct SlotRequest {
    pub(super) lane: ConcurrencyGroup,
    pub(super) pod: Option<PodUid>,
}

/// One running operation, with the slots that it holds.
#[derive(Debug)]
pub(super) struct RunningOperation {
    pub(super) claim: SlotRequest,
    pub(super) since: Instant,
    /// None where no driver is called.
    pub(super) call: Option<DriverCall>,
}

/// The running operations.
#[derive(Debug, Default)]
pub(super) struct RunningOperations {
    running: BTreeMap<OperationTarget, RunningOperation>,
    lanes: BTreeMap<ConcurrencyGroup, usize>,
    pods: BTreeMap<PodUid, usize>,
}

/// The slots that were free when a plan began.
#[derive(Clone, Copy, Debug)]
pub(super) struct FreeSlots {
    left: usize,
    /// When the next one comes free though nothing ends.
    pub(super) next: Option<Instant>,
}

impl FreeSlots {
    pub(super) fn is_full(&self) -> bool {
        self.left == 0
    }
}

impl RunningOperations {
    pub(super) fn places(&self, now: Instant) -> FreeSlots {
        let fresh = || {
            let ends = self.running.values().map(|one| one.since + SLOW_AFTER);
            ends.filter(|end| now < *end)
        };
        let left = MAX_ACTIVE.saturating_sub(fresh().count());
        FreeSlots {
            left: left.min(MAX_RUNNING.saturating_sub(self.running.len())),
            next: fresh().min(),
        }
    }

    /// Takes a slot if there is one; returns whether it did.
    pub(super) fn begin(
        &mut self,
        task: &VolumeOperation,
        claim: &SlotRequest,
        places: &mut FreeSlots,
        now: Instant,
    ) -> bool {
        let running = self.lanes.get(&claim.lane).copied().unwrap_or_default();
        let pod = claim.pod.as_ref().and_then(|pod| self.pods.get(pod));
        let full = running >= claim.lane.most() || pod.is_some_and(|count| *count >= MAX_PER_POD);
        if full || places.is_full() {
            return false;
        }
        places.left -= 1;
        *self.lanes.entry(claim.lane.clone()).or_default() += 1;
        if let Some(pod) = &claim.pod {
            *self.pods.entry(pod.clone()).or_default() += 1;
        }
        let running = RunningOperation {
            call: DriverCall::of(task, &claim.lane),
            claim: claim.clone(),
            since: now,
        };
        self.running.insert(task.subject(), running);
        true
    }

    /// Frees the slots of an operation; none if it was not under way.
    pub(super) fn end(&mut self, subject: &OperationTarget) -> Option<RunningOperation> {
        let ended = self.running.remove(subject)?;
        leave(&mut self.lanes, &ended.claim.lane);
        if let Some(pod) = &ended.claim.pod {
            leave(&mut self.pods, pod);
        }
        Some(ended)
    }

    pub(super) fn of(&self, subject: &OperationTarget) -> Option<&RunningOperation> {
        self.running.get(subject)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &RunningOperation> {
        self.running.values()
    }

    pub(super) fn iter_mut(
        &mut self,
    ) -> impl Iterator<Item = (&OperationTarget, &mut RunningOperation)> {
        self.running.iter_mut()
    }

    pub(super) fn len(&self) -> usize {
        self.running.len()
    }
}

fn leave<K: Ord>(counts: &mut BTreeMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}
