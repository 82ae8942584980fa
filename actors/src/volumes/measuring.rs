//! How full volumes are: each one now and then, few at a time.

use std::collections::BTreeMap;
use std::time::Duration;

use kernel::Context;
use logic::types::PodUid;
use logic::volumes::world::{Measurable, Place};
use logic::volumes::{Condition, Figures, Source};

use super::{Msg, Volumes, timestamp};
use crate::events::Type;
use crate::storage::{self, Plugin, StorageError};

/// Volumes that are measured at the same time.
const AT_ONCE: usize = 2;
/// A walk through a large volume is made slowly.
const WITHIN: Duration = Duration::from_secs(5 * 60);

/// What a measurement brought.
#[derive(Debug)]
pub struct Measured {
    place: Place,
    figures: Result<Figures, StorageError>,
}

impl Volumes {
    pub(super) fn measure_later(&self, ctx: &mut Context<Msg>) {
        let Some(period) = self.policy.stats else {
            return;
        };
        // Many steps a period, so that each volume's turn comes about once in it.
        let volumes = u32::try_from(self.world.measurable().count()).unwrap_or(u32::MAX);
        let wait = period / volumes.clamp(10, 600);
        ctx.after(wait.max(Duration::from_millis(100)), Msg::Measure);
    }

    /// Begins with the volume that has waited for longest.
    pub(super) fn measure(&mut self, ctx: &mut Context<Msg>) {
        self.measure_later(ctx);
        let Some(period) = self.policy.stats else {
            return;
        };
        if self.measuring.len() >= AT_ONCE {
            return;
        }
        let now = timestamp(ctx);
        let due = |volume: &Measurable| {
            let at = self.figures.get(&volume.place).and_then(|last| last.at);
            at.is_none_or(|at| now.duration_since(at).unsigned_abs() >= period)
                && !self.measuring.contains(&volume.place)
        };
        let next = self.world.measurable().filter(due).min_by_key(|volume| {
            let last = self.figures.get(&volume.place);
            last.and_then(|last| last.at)
        });
        if let Some(volume) = next {
            self.measuring.insert(volume.place.clone());
            self.begin_measuring(volume, ctx);
        }
    }

    fn begin_measuring(&self, volume: Measurable, ctx: &mut Context<Msg>) {
        let storage = self.peers.storage.clone();
        let (driver, volume_handle) = match &volume.volume.source {
            Source::Csi(csi) => (csi.driver.clone(), csi.volume_handle.clone()),
            Source::EmptyDir(_)
            | Source::HostPath { .. }
            | Source::Files(_)
            | Source::Local { .. }
            | Source::Nfs { .. }
            | Source::Image => (String::new(), String::new()),
        };
        let measured = storage::Measured {
            plugin: Plugin::of(volume.place.kind),
            id: volume.volume.id.clone(),
            kind: volume.place.kind.as_str().to_owned(),
            folder: volume.place.folder.clone(),
            path: volume.path,
            driver,
            volume_handle,
        };
        let place = volume.place;
        ctx.run(async move {
            let figures = storage.stats(&measured, WITHIN).await;
            Msg::Measured(Box::new(Measured { place, figures }))
        });
    }

    pub(super) fn measured(&mut self, measured: Measured, ctx: &Context<Msg>) {
        let Measured { place, figures } = measured;
        self.measuring.remove(&place);
        let now = timestamp(ctx);
        let mut figures = figures.unwrap_or_else(|error| {
            tracing::debug!(pod = %place.uid, volume = place.folder, "not measured: {error}");
            self.figures.get(&place).cloned().unwrap_or_default()
        });
        // When it was asked for decides whose turn is next, even if the answer came from a walk before.
        figures.at = Some(now);
        self.tell_of_health(&place, &figures, ctx);
        if self.world.measurable().any(|volume| volume.place == place) {
            self.figures.insert(place, figures);
        }
    }

    /// Upstream's `VolumeConditionAbnormal`, told when it begins.
    fn tell_of_health(&self, place: &Place, figures: &Figures, ctx: &Context<Msg>) {
        let Some(health) = &figures.abnormal else {
            return;
        };
        let before = self
            .figures
            .get(place)
            .and_then(|last| last.abnormal.as_ref());
        if health.state == Condition::Normal || before == Some(health) {
            return;
        }
        let Some(wanting) = self.pods.get(&place.uid) else {
            return;
        };
        let object = crate::worker::object(&wanting.pod, None);
        let text = format!("Volume {}: {}", place.folder, health.message);
        let recorder = &self.peers.recorder;
        let reason = "VolumeConditionAbnormal";
        recorder.record(timestamp(ctx), Type::Warning, object, reason, text);
    }

    pub(super) fn stats(&self) -> BTreeMap<PodUid, BTreeMap<String, Figures>> {
        let mut stats: BTreeMap<PodUid, BTreeMap<String, Figures>> = BTreeMap::new();
        for volume in self.world.measurable() {
            let Some(figures) = self.figures.get(&volume.place) else {
                continue;
            };
            let pod = stats.entry(volume.place.uid.clone()).or_default();
            for name in volume.names {
                pod.insert(name, figures.clone());
            }
        }
        stats
    }
}
