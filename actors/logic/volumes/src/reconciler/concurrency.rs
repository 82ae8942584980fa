//! How much is done at once, so that nobody takes all places.
//!
//! A *lane* is what hangs together: a CSI driver, an NFS server, else a kind of volumes. In all, [`MAX_ACTIVE`] operations
//! are under way, of one lane [`MAX_PER_BACKEND`] or [`MAX_PER_KIND`], for one pod [`MAX_PER_POD`]. One that takes longer
//! than [`SLOW_AFTER`] gives its place in all to the next one, up to [`MAX_RUNNING`], but not its place in its lane: a dozen
//! hung drivers slow down nobody but those who use them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use logic_api::types::PodUid;

use super::operation::OperationTarget;
use crate::{Volume, VolumeSource};

const MAX_ACTIVE: usize = 64;
const MAX_RUNNING: usize = 512;
const MAX_PER_KIND: usize = 32;
const MAX_PER_BACKEND: usize = 8;
/// Less than a backend's, so that a pod with many volumes leaves some to others.
const MAX_PER_POD: usize = 6;
const SLOW_AFTER: Duration = Duration::from_secs(10);

/// Who is slow together.
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

/// Who asks for a place.
#[derive(Clone, Debug)]
pub(super) struct SlotRequest {
    pub(super) lane: ConcurrencyGroup,
    pub(super) pod: Option<PodUid>,
}

/// What is under way.
#[derive(Debug, Default)]
pub(super) struct RunningOperations {
    running: BTreeMap<OperationTarget, (SlotRequest, Instant)>,
    lanes: BTreeMap<ConcurrencyGroup, usize>,
    pods: BTreeMap<PodUid, usize>,
}

/// The places that were free when a plan began.
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
            let ends = self.running.values().map(|(_, since)| *since + SLOW_AFTER);
            ends.filter(|end| now < *end)
        };
        let left = MAX_ACTIVE.saturating_sub(fresh().count());
        FreeSlots {
            left: left.min(MAX_RUNNING.saturating_sub(self.running.len())),
            next: fresh().min(),
        }
    }

    /// Whether there is a place; taken at once.
    pub(super) fn begin(
        &mut self,
        subject: &OperationTarget,
        claim: &SlotRequest,
        places: &mut FreeSlots,
        now: Instant,
    ) -> bool {
        let lane = self.lanes.get(&claim.lane).copied().unwrap_or_default();
        let pod = claim.pod.as_ref().and_then(|pod| self.pods.get(pod));
        let full = lane >= claim.lane.most() || pod.is_some_and(|count| *count >= MAX_PER_POD);
        if full || places.is_full() {
            return false;
        }
        places.left -= 1;
        *self.lanes.entry(claim.lane.clone()).or_default() += 1;
        if let Some(pod) = &claim.pod {
            *self.pods.entry(pod.clone()).or_default() += 1;
        }
        self.running.insert(subject.clone(), (claim.clone(), now));
        true
    }

    /// Whether it was under way.
    pub(super) fn end(&mut self, subject: &OperationTarget) -> bool {
        let Some((claim, _)) = self.running.remove(subject) else {
            return false;
        };
        leave(&mut self.lanes, &claim.lane);
        if let Some(pod) = &claim.pod {
            leave(&mut self.pods, pod);
        }
        true
    }

    pub(super) fn is_running(&self, subject: &OperationTarget) -> bool {
        self.running.contains_key(subject)
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
