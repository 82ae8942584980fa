//! Measurements that are asked for: of the volumes that lie on the node's own disk, when that runs short.
//!
//! Upstream ranks pods by figures that are up to a period old.

use std::collections::{BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use kernel::{Context, Reply};
use logic_volumes::VolumeKind;
use logic_volumes::reconciler::{MeasurableVolume, MountPoint};

use crate::{Msg, VolumeManager};

/// Who waits for measurements at the same time. Others are answered at once.
const MAX_REQUESTS: usize = 4;
/// Nobody waits for longer: a volume that hangs does not keep its place.
const MAX_WAIT: Duration = Duration::from_secs(30);

/// A request to be answered when all these volumes are measured, or gone.
#[derive(Debug)]
pub(super) struct MeasurementRequest {
    since: Instant,
    unmeasured: BTreeSet<MountPoint>,
    reply: Reply<()>,
}

impl VolumeManager {
    /// Measures the volumes on the node's disk before any others.
    pub(crate) fn measure_at_once(&mut self, reply: Reply<()>, ctx: &mut Context<Msg>) {
        let (now, requests) = (ctx.now(), &mut self.measures.requests);
        requests.retain(|request| now.saturating_duration_since(request.since) < MAX_WAIT);
        let Some(period) = self.policy.stats.filter(|_| requests.len() < MAX_REQUESTS) else {
            return reply.send(());
        };
        let is_on_disk = |volume: &MeasurableVolume| volume.place.kind == VolumeKind::EmptyDir;
        let mut first = VecDeque::new();
        let mut unmeasured = BTreeSet::new();
        for volume in self.world.measurable().filter(is_on_disk) {
            unmeasured.insert(volume.place.clone());
            // What is under way has begun a moment ago.
            if !self.measures.running.contains_key(&volume.place) {
                self.measures.postpone(&volume.place, now + period);
                first.push_back(volume);
            }
        }
        let mut others = std::mem::take(&mut self.measures.due);
        others.retain(|volume| !unmeasured.contains(&volume.place));
        first.append(&mut others);
        self.measures.due = first;
        self.measures.requests.push(MeasurementRequest {
            since: now,
            unmeasured,
            reply,
        });
        self.measure_next(ctx);
        self.measures.answer();
    }
}

impl super::measurements::VolumeMeasurements {
    /// The volume is measured, cannot be, or is gone.
    pub(super) fn settle(&mut self, place: &MountPoint) {
        for request in &mut self.requests {
            request.unmeasured.remove(place);
        }
        self.answer();
    }

    fn answer(&mut self) {
        let is_done = |request: &mut MeasurementRequest| request.unmeasured.is_empty();
        for request in self.requests.extract_if(.., is_done) {
            request.reply.send(());
        }
    }
}
