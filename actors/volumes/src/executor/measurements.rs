//! Measures how full volumes are: each one once a period, few at a time, and those in memory together ([`super::batches`]).
//!
//! Upstream: pkg/kubelet/server/stats/volume_stat_calculator.go (1.36).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use clients::storage::{self, StorageError, StoragePlugin};
use kernel::Context;
use logic_api::pod::volume_stats::{VolumeHealthState, VolumeMetrics};
use logic_api::types::PodUid;
use logic_volumes::reconciler::{MeasurableVolume, MountPoint};
use logic_volumes::{VolumeId, VolumeKind, VolumeSource};
use state::events::EventType;

use crate::executor::batches::{Batches, MeasurementMode, is_batched};
use crate::executor::measured_at_once::MeasurementRequest;
use crate::executor::{StuckProcess, hangs};
use crate::{Msg, VolumeCompletion, VolumeManager, VolumeTimer, metrics};

/// Volumes measured at the same time, no two of one driver or server; a batch counts as none.
const MAX_CONCURRENT_MEASUREMENTS: usize = 2;
/// A large volume takes long to walk.
const MEASURE_TIMEOUT: Duration = Duration::from_secs(5 * 60);
/// A volume that cannot be measured is retried with growing periods, up to this many.
const MAX_PERIODS: u32 = 16;
/// How often in a period the due volumes are looked up.
const CHECKS_PER_PERIOD: u32 = 12;

/// The last measurements of volumes, and the queue of due ones.
#[derive(Debug, Default)]
pub(crate) struct VolumeMeasurements {
    pub(super) known: BTreeMap<MountPoint, MeasurementRecord>,
    /// Due volumes, in order.
    pub(super) due: VecDeque<MeasurableVolume>,
    pub(super) running: BTreeMap<MountPoint, MeasurementGroup>,
    pub(super) batches: Batches,
    pub(super) requests: Vec<MeasurementRequest>,
}

#[derive(Debug)]
pub(super) struct MeasurementRecord {
    figures: VolumeMetrics,
    pub(super) next: Instant,
    /// Consecutive failures.
    failures: u32,
    pub(super) mode: MeasurementMode,
}

impl MeasurementRecord {
    fn new(next: Instant) -> MeasurementRecord {
        MeasurementRecord {
            figures: VolumeMetrics::default(),
            next,
            failures: 0,
            mode: MeasurementMode::InBatch,
        }
    }
}

/// Volumes that must not be measured at the same time: the kind, and the driver or server.
type MeasurementGroup = (VolumeKind, String);

/// The result of a measurement.
#[derive(Debug)]
pub struct MeasurementResult {
    place: MountPoint,
    volume: VolumeId,
    figures: Result<VolumeMetrics, StorageError>,
}

impl VolumeMeasurements {
    pub(crate) fn of(&self, place: &MountPoint) -> Option<&VolumeMetrics> {
        Some(&self.known.get(place)?.figures)
    }

    pub(super) fn forget(&mut self, place: &MountPoint) {
        self.known.remove(place);
        self.settle(place);
    }

    /// The volume is measured now, and again then.
    pub(super) fn postpone(&mut self, place: &MountPoint, next: Instant) {
        let record = self.known.entry(place.clone());
        let record = record.or_insert_with(|| MeasurementRecord::new(next));
        record.next = next;
    }

    /// The next volume that may be measured now; none if the limits are reached.
    fn next(
        &mut self,
        busy: impl Fn(&VolumeId) -> bool,
    ) -> Option<(MeasurableVolume, MeasurementGroup)> {
        if self.running.len() >= MAX_CONCURRENT_MEASUREMENTS {
            return None;
        }
        let taken: BTreeSet<&MeasurementGroup> = self.running.values().collect();
        let free = |volume: &MeasurableVolume| {
            !taken.contains(&group_of(volume)) && !busy(&volume.volume.id)
        };
        let at = self.due.iter().position(free)?;
        let volume = self.due.remove(at)?;
        let group = group_of(&volume);
        Some((volume, group))
    }
}

/// As upstream, a hostPath volume is not measured.
fn is_measured(place: &&MountPoint) -> bool {
    place.kind != VolumeKind::HostPath
}

fn group_of(volume: &MeasurableVolume) -> MeasurementGroup {
    let backend = match &volume.volume.source {
        VolumeSource::Csi(csi) => csi.driver.clone(),
        VolumeSource::Nfs { server, .. } => server.clone(),
        // A group each: the node's disk bears two measurements at once.
        VolumeSource::EmptyDir(_)
        | VolumeSource::HostPath { .. }
        | VolumeSource::Files(_)
        | VolumeSource::Local { .. }
        | VolumeSource::Image => volume.volume.id.0.clone(),
    };
    (volume.place.kind, backend)
}

/// A delay by the mount point, so that not all volumes are measured at once.
fn spread(place: &MountPoint, period: Duration) -> Duration {
    let bytes = place.uid.as_str().bytes().chain(place.folder.bytes());
    let sum = bytes.fold(0_u32, |sum, byte| {
        sum.wrapping_mul(31).wrapping_add(u32::from(byte))
    });
    period.mul_f64(f64::from(sum % 1024) / 1024.0)
}

impl VolumeManager {
    pub(crate) fn measure_later(&self, ctx: &mut Context<Msg>) {
        if let Some(period) = self.policy.stats {
            ctx.after(period / CHECKS_PER_PERIOD, Msg::Due(VolumeTimer::Measure));
        }
    }

    /// Queues the volumes that are due, behind those still queued.
    pub(crate) fn measure(&mut self, ctx: &mut Context<Msg>) {
        self.measure_later(ctx);
        let Some(period) = self.policy.stats else {
            return;
        };
        let now = ctx.now();
        let mut old = std::mem::take(&mut self.measures.due);
        old.retain(|volume| self.world.is_mounted(&volume.place));
        let waiting: BTreeSet<MountPoint> = old.iter().map(|volume| volume.place.clone()).collect();
        let mut batch = Vec::new();
        let measures = &mut self.measures;
        let batch_next = measures.batches.next(now, period);
        for place in self.world.mounted_places().filter(is_measured) {
            // A new volume is measured at once, the others are spread.
            let measure = match measures.known.get_mut(place) {
                Some(measure) => measure,
                None => measures
                    .known
                    .entry(place.clone())
                    .or_insert_with(|| MeasurementRecord::new(now)),
            };
            let running = measures.running.contains_key(place) || measures.batches.holds(place);
            if measure.next > now || running || waiting.contains(place) {
                continue;
            }
            let Some(volume) = self.world.measurable_at(place) else {
                continue;
            };
            if is_batched(place, measure.mode) {
                measure.next = batch_next;
                batch.push(volume);
            } else {
                measure.next = now + period + spread(place, period);
                old.push_back(volume);
            }
        }
        measures.due = old;
        self.measure_batch(batch, ctx);
        self.measure_next(ctx);
    }

    pub(super) fn measure_next(&mut self, ctx: &mut Context<Msg>) {
        let (world, worn) = (&self.world, &self.stuck_processes);
        let hangs = |id: &VolumeId| hangs(world, worn, id);
        while let Some((volume, lane)) = self.measures.next(hangs) {
            self.measures.running.insert(volume.place.clone(), lane);
            let storage = self.peers.storage.clone();
            let source = metrics::source(&volume.volume);
            let (place, measured) = asked(volume);
            ctx.run(async move {
                let began = kernel::now();
                let figures = storage.stats(&measured, MEASURE_TIMEOUT).await;
                metrics::measured(&source, began);
                let result = MeasurementResult {
                    place,
                    volume: measured.id,
                    figures,
                };
                VolumeCompletion::Measured(result).into()
            });
        }
    }

    pub(crate) fn on_measured(&mut self, measured: MeasurementResult, ctx: &mut Context<Msg>) {
        let MeasurementResult {
            place,
            volume,
            figures,
        } = measured;
        self.measures.running.remove(&place);
        match figures {
            Ok(figures) => {
                let figures = self.policy.health.apply(figures);
                self.store_metrics(&place, figures, ctx);
                self.measures.rejoin(&place);
            }
            Err(error) => {
                tracing::debug!(pod = %place.uid, volume = place.folder, "not measured: {error}");
                if let Some(worn) =
                    StuckProcess::of(StoragePlugin::of(place.kind), Some(&volume), &error)
                {
                    self.replace(worn, ctx);
                }
                self.back_off_measurement(&place);
            }
        }
        self.measures.settle(&place);
        self.measure_next(ctx);
    }

    pub(super) fn store_metrics(
        &mut self,
        place: &MountPoint,
        mut figures: VolumeMetrics,
        ctx: &Context<Msg>,
    ) {
        figures.at.get_or_insert_with(|| ctx.timestamp());
        let Some(measure) = self.measures.known.get_mut(place) else {
            return;
        };
        measure.failures = 0;
        let figures = figures.after(&measure.figures);
        let before = std::mem::replace(&mut measure.figures, figures.clone());
        let Some(health) = figures.abnormal else {
            return;
        };
        // An event when a volume becomes abnormal, and when the condition changes.
        if health.state == VolumeHealthState::Normal || before.abnormal.as_ref() == Some(&health) {
            return;
        }
        for name in self.world.names(place) {
            let text = format!("Volume {name}: {}", health.message);
            let event = ("VolumeConditionAbnormal", text);
            self.record_event(&place.uid, EventType::Warning, event, ctx);
        }
    }

    fn back_off_measurement(&mut self, place: &MountPoint) {
        let Some(period) = self.policy.stats else {
            return;
        };
        if let Some(measure) = self.measures.known.get_mut(place) {
            measure.failures = measure.failures.saturating_add(1);
            let periods = 2_u32.saturating_pow(measure.failures).min(MAX_PERIODS);
            measure.next += period * periods;
        }
    }

    pub(crate) fn stats(&self) -> BTreeMap<PodUid, BTreeMap<String, VolumeMetrics>> {
        let mut stats: BTreeMap<PodUid, BTreeMap<String, VolumeMetrics>> = BTreeMap::new();
        for (place, measure) in &self.measures.known {
            if measure.figures.at.is_none() {
                continue;
            }
            for name in self.world.names(place) {
                let pod = stats.entry(place.uid.clone()).or_default();
                pod.insert(name, measure.figures.clone());
            }
        }
        stats
    }
}

pub(super) fn asked(volume: MeasurableVolume) -> (MountPoint, storage::MeasureTarget) {
    let (driver, volume_handle) = match &volume.volume.source {
        VolumeSource::Csi(csi) => (csi.driver.clone(), csi.volume_handle.clone()),
        VolumeSource::EmptyDir(_)
        | VolumeSource::HostPath { .. }
        | VolumeSource::Files(_)
        | VolumeSource::Local { .. }
        | VolumeSource::Nfs { .. }
        | VolumeSource::Image => (String::new(), String::new()),
    };
    let measured = storage::MeasureTarget {
        plugin: StoragePlugin::of(volume.place.kind),
        id: volume.volume.id.clone(),
        kind: volume.place.kind.as_str().to_owned(),
        folder: volume.place.folder.clone(),
        path: volume.path,
        driver,
        volume_handle,
    };
    (volume.place, measured)
}
