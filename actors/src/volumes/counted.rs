//! Operations on volumes, measured by upstream's names: pkg/volume/util/operationexecutor/operation_generator.go (1.36).

use std::time::Instant;

use logic::summary::plugin_name;
use logic::volumes::world::{Ending, Task};
use logic::volumes::{Found, FoundState, Mode, Source, Volume};
use metrics::runtime::End;
use metrics::volumes::{
    MEASURING, ORPHANS_CLEANED, ORPHANS_CLEANED_ERRORS, RECONSTRUCTED, RECONSTRUCTED_ERRORS,
    operated,
};

/// Counts an operation that has ended. Upstream's `volume_mount` stages and mounts: here each counts for itself.
pub(super) fn count(task: &Task, ending: &Ending, began: Instant) {
    let (kind, id, operation) = match task {
        Task::Stage { volume } => (volume.kind, &volume.id, "mount_device"),
        Task::Unstage(staged) => match staged.mode {
            Mode::FileSystem => (staged.kind, &staged.id, "unmount_device"),
            Mode::Block => (staged.kind, &staged.id, "unmap_device"),
        },
        Task::Mount { place, volume } => match place.mode {
            Mode::FileSystem => (place.kind, &volume.id, "volume_mount"),
            Mode::Block => (place.kind, &volume.id, "map_volume"),
        },
        Task::Unmount { place, id } => match place.mode {
            Mode::FileSystem => (place.kind, id, "volume_unmount"),
            Mode::Block => (place.kind, id, "unmap_volume"),
        },
        Task::Grow { volume, place, .. } => (place.kind, &volume.id, "volume_fs_resize"),
        Task::Remove { .. } => return count_removal(ending),
    };
    let end = match ending {
        Ending::Failed { .. } | Ending::Stuck { .. } => End::InError,
        Ending::Done | Ending::Mounted { .. } => End::Well,
    };
    let took = kernel::now().saturating_duration_since(began);
    operated(&plugin_name(kind.as_str(), &id.0), operation, took, end);
}

fn count_removal(ending: &Ending) {
    let removals = match ending {
        Ending::Failed { .. } | Ending::Stuck { .. } => &ORPHANS_CLEANED_ERRORS,
        Ending::Done | Ending::Mounted { .. } => &ORPHANS_CLEANED,
    };
    removals.inc();
}

/// A sweep for what belongs to no pod begins.
pub(super) fn sweep() {
    ORPHANS_CLEANED.set(0.0);
    ORPHANS_CLEANED_ERRORS.set(0.0);
}

/// Counts what plugins found, and of it what leads to no pod: nobody can tell whose it is.
pub(super) fn count_found(found: &[Found]) {
    let lost = found.iter().filter(|found| {
        let at_a_pod = match found.state {
            FoundState::Mounted | FoundState::LeftOver | FoundState::Mapped => true,
            FoundState::Staged | FoundState::StagedBlock => false,
        };
        at_a_pod && found.pod.is_none()
    });
    RECONSTRUCTED_ERRORS.inc_by(u64::try_from(lost.count()).unwrap_or(0));
    RECONSTRUCTED.inc_by(u64::try_from(found.len()).unwrap_or(0));
}

/// Where a volume's figures come from: upstream's words, or the driver's name.
pub(super) fn source(volume: &Volume) -> String {
    let source = match &volume.source {
        Source::Csi(csi) => return csi.driver.clone(),
        _ if volume.mode == Mode::Block => "block",
        Source::EmptyDir(_) | Source::Files(_) => "du",
        Source::HostPath { .. } | Source::Local { .. } | Source::Nfs { .. } | Source::Image => {
            "statfs"
        }
    };
    source.to_owned()
}

/// Counts a measurement that has ended, well or not.
pub(super) fn measured(source: &str, began: Instant) {
    let took = kernel::now().saturating_duration_since(began);
    let duration = MEASURING.with_label_values(&[source]);
    duration.observe(took.as_secs_f64());
}
