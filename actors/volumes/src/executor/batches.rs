//! Volumes in memory are measured together: a node has one with every pod's token, and a call for each would be most of
//! what it does at rest.
//!
//! One that a batch got stuck over is not known by name: all of the batch are then measured one by one, until each has been.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use clients::storage::{MeasureTarget, StorageError, StoragePlugin};
use kernel::Context;
use logic_api::pod::volume_stats::VolumeMetrics;
use logic_volumes::VolumeKind;
use logic_volumes::reconciler::{MeasurableVolume, MountPoint};

use crate::executor::measurements::asked;
use crate::executor::{StuckProcess, hangs};
use crate::{Msg, VolumeCompletion, VolumeManager, metrics};

/// The contract's.
const MAX_BATCH: usize = 256;
/// Nothing in a batch is walked through.
const BATCH_TIMEOUT: Duration = Duration::from_secs(30);

/// How a volume in memory is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MeasurementMode {
    InBatch,
    /// By itself, until that succeeds: it may be the one that a batch got stuck over.
    AloneUntilMeasured,
    /// By itself: its plugin does not measure it in a batch.
    Alone,
}

/// Whether its files are few, written by the node itself, in memory, and measured together with others.
pub(super) fn is_batched(place: &MountPoint, mode: MeasurementMode) -> bool {
    matches!(place.kind, VolumeKind::Secret | VolumeKind::Projected)
        && mode == MeasurementMode::InBatch
}

/// The batches under way, and when the next one is due.
#[derive(Debug, Default)]
pub(super) struct Batches {
    running: BTreeSet<MountPoint>,
    next: Option<Instant>,
}

impl Batches {
    pub(super) fn holds(&self, place: &MountPoint) -> bool {
        self.running.contains(place)
    }

    /// When what is measured in a batch now is due again: all at the same time.
    pub(super) fn next(&mut self, now: Instant, period: Duration) -> Instant {
        let next = self.next.filter(|next| *next > now);
        *self.next.insert(next.unwrap_or(now + period))
    }
}

/// The result of a batch.
#[derive(Debug)]
pub struct BatchResult {
    places: Vec<MountPoint>,
    figures: Result<Vec<Result<VolumeMetrics, String>>, StorageError>,
}

impl super::measurements::VolumeMeasurements {
    /// A volume that was measured by itself may have been stuck over by a batch, but is not now.
    pub(super) fn rejoin(&mut self, place: &MountPoint) {
        if let Some(record) = self.known.get_mut(place)
            && record.mode == MeasurementMode::AloneUntilMeasured
        {
            record.mode = MeasurementMode::InBatch;
        }
    }

    /// The volume is measured by itself next, at once.
    fn set_alone(&mut self, place: &MountPoint, mode: MeasurementMode, now: Instant) {
        if let Some(record) = self.known.get_mut(place) {
            record.mode = mode;
            record.next = now;
        }
    }
}

impl VolumeManager {
    pub(super) fn measure_batch(
        &mut self,
        mut volumes: Vec<MeasurableVolume>,
        ctx: &mut Context<Msg>,
    ) {
        volumes.retain(|volume| !hangs(&self.world, &self.stuck_processes, &volume.volume.id));
        for volumes in volumes.chunks(MAX_BATCH) {
            let mut places = Vec::new();
            let mut targets: Vec<MeasureTarget> = Vec::new();
            let mut sources = Vec::new();
            for volume in volumes {
                sources.push(metrics::source(&volume.volume));
                let (place, target) = asked(volume.clone());
                self.measures.batches.running.insert(place.clone());
                places.push(place);
                targets.push(target);
            }
            let storage = self.peers.storage.clone();
            ctx.run(async move {
                let began = kernel::now();
                let figures = storage.batch_stats(StoragePlugin::Local, &targets, BATCH_TIMEOUT);
                let figures = figures.await;
                for source in &sources {
                    metrics::measured(source, began);
                }
                VolumeCompletion::BatchMeasured(BatchResult { places, figures }).into()
            });
        }
    }

    pub(crate) fn on_batch_measured(&mut self, result: BatchResult, ctx: &mut Context<Msg>) {
        let BatchResult { places, figures } = result;
        for place in &places {
            self.measures.batches.running.remove(place);
        }
        let now = ctx.now();
        match figures {
            Ok(figures) => {
                for (place, figures) in places.iter().zip(figures) {
                    match figures {
                        Ok(figures) => {
                            let figures = self.policy.health.apply(figures);
                            self.store_metrics(place, figures, ctx);
                        }
                        Err(why) => {
                            tracing::debug!(pod = %place.uid, volume = place.folder, "not measured in a batch: {why}");
                            self.measures.set_alone(place, MeasurementMode::Alone, now);
                        }
                    }
                }
            }
            Err(error) => self.on_batch_failed(&places, &error, ctx),
        }
    }

    fn on_batch_failed(
        &mut self,
        places: &[MountPoint],
        error: &StorageError,
        ctx: &mut Context<Msg>,
    ) {
        tracing::debug!(
            "{} volumes in memory are not measured: {error}",
            places.len()
        );
        let mode = match error {
            // The plugin was restarted: the next batch may do.
            StorageError::Unanswered { .. } => return,
            error if error.transient() => MeasurementMode::AloneUntilMeasured,
            StorageError::Stuck { .. } | StorageError::Refused { .. } => MeasurementMode::Alone,
        };
        let now = ctx.now();
        for place in places {
            self.measures.set_alone(place, mode, now);
        }
        if let Some(stuck) = StuckProcess::of(StoragePlugin::Local, None, error) {
            self.replace(stuck, ctx);
        }
    }
}
