//! How much is done at once, so that nobody takes all places.
//!
//! A *lane* is what hangs together: a CSI driver, an NFS server, else a kind of volumes. In all, [`IN_ALL`] operations
//! are under way, of one lane [`OF_ONE_BACKEND`] or [`OF_ONE_KIND`], for one pod [`FOR_ONE_POD`]. One that takes longer
//! than [`LINGERS`] gives its place in all to the next one, up to [`AT_MOST`], but not its place in its lane: a dozen
//! hung drivers slow down nobody but those who use them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::task::Subject;
use crate::types::PodUid;
use crate::volumes::{Source, Volume};

const IN_ALL: usize = 64;
const AT_MOST: usize = 512;
const OF_ONE_KIND: usize = 32;
const OF_ONE_BACKEND: usize = 8;
/// Less than a backend's, so that a pod with many volumes leaves some to others.
const FOR_ONE_POD: usize = 6;
const LINGERS: Duration = Duration::from_secs(10);

/// Who is slow together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Lane {
    Kind(&'static str),
    Backend(&'static str, String),
    Folders,
}

impl Lane {
    pub(super) fn of(volume: &Volume) -> Self {
        let kind = volume.kind.as_str();
        match &volume.source {
            Source::Csi(csi) => Self::Backend(kind, csi.driver.clone()),
            Source::Nfs { server, .. } => Self::Backend(kind, server.clone()),
            Source::EmptyDir(_)
            | Source::HostPath { .. }
            | Source::Files(_)
            | Source::Local { .. }
            | Source::Image => Self::Kind(kind),
        }
    }

    fn most(&self) -> usize {
        match self {
            Self::Kind(_) => OF_ONE_KIND,
            Self::Backend(..) | Self::Folders => OF_ONE_BACKEND,
        }
    }
}

/// Who asks for a place.
#[derive(Clone, Debug)]
pub(super) struct Claim {
    pub(super) lane: Lane,
    pub(super) pod: Option<PodUid>,
}

/// What is under way.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    running: BTreeMap<Subject, (Claim, Instant)>,
    lanes: BTreeMap<Lane, usize>,
    pods: BTreeMap<PodUid, usize>,
}

/// The places that were free when a plan began.
#[derive(Clone, Copy, Debug)]
pub(super) struct Places {
    left: usize,
    /// When the next one comes free though nothing ends.
    pub(super) next: Option<Instant>,
}

impl Places {
    pub(super) fn is_full(&self) -> bool {
        self.left == 0
    }
}

impl Lanes {
    pub(super) fn places(&self, now: Instant) -> Places {
        let fresh = || {
            let ends = self.running.values().map(|(_, since)| *since + LINGERS);
            ends.filter(|end| now < *end)
        };
        let left = IN_ALL.saturating_sub(fresh().count());
        Places {
            left: left.min(AT_MOST.saturating_sub(self.running.len())),
            next: fresh().min(),
        }
    }

    /// Whether there is a place; taken at once.
    pub(super) fn begin(
        &mut self,
        subject: &Subject,
        claim: &Claim,
        places: &mut Places,
        now: Instant,
    ) -> bool {
        let lane = self.lanes.get(&claim.lane).copied().unwrap_or_default();
        let pod = claim.pod.as_ref().and_then(|pod| self.pods.get(pod));
        let full = lane >= claim.lane.most() || pod.is_some_and(|count| *count >= FOR_ONE_POD);
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
    pub(super) fn end(&mut self, subject: &Subject) -> bool {
        let Some((claim, _)) = self.running.remove(subject) else {
            return false;
        };
        leave(&mut self.lanes, &claim.lane);
        if let Some(pod) = &claim.pod {
            leave(&mut self.pods, pod);
        }
        true
    }

    pub(super) fn is_running(&self, subject: &Subject) -> bool {
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
