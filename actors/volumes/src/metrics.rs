//! Metrics of volume operations, by upstream's names: pkg/volume/util/operationexecutor/operation_generator.go (1.36).

use std::time::Instant;

use logic_resources::summary::plugin_name;
use logic_volumes::reconciler::{OperationResult, VolumeOperation};
use logic_volumes::{ReconstructedState, ReconstructedVolume, Volume, VolumeMode, VolumeSource};
use metrics::node::volumes::{
    MEASURING, ORPHANS_CLEANED, ORPHANS_CLEANED_ERRORS, RECONSTRUCTED, RECONSTRUCTED_ERRORS,
    operated,
};
use metrics::runtime::CallResult;

/// Counts an operation that has ended. Upstream's `volume_mount` stages and mounts; here the two are counted apart.
pub(super) fn count(task: &VolumeOperation, ending: &OperationResult, began: Instant) {
    let (kind, id, operation) = match task {
        VolumeOperation::Stage { volume } => (volume.kind, &volume.id, "mount_device"),
        VolumeOperation::Unstage(staged) => match staged.mode {
            VolumeMode::FileSystem => (staged.kind, &staged.id, "unmount_device"),
            VolumeMode::Block => (staged.kind, &staged.id, "unmap_device"),
        },
        VolumeOperation::Mount { place, volume } => match place.mode {
            VolumeMode::FileSystem => (place.kind, &volume.id, "volume_mount"),
            VolumeMode::Block => (place.kind, &volume.id, "map_volume"),
        },
        VolumeOperation::Unmount { place, id } => match place.mode {
            VolumeMode::FileSystem => (place.kind, id, "volume_unmount"),
            VolumeMode::Block => (place.kind, id, "unmap_volume"),
        },
        VolumeOperation::Expand { volume, place, .. } => {
            (place.kind, &volume.id, "volume_fs_resize")
        }
        VolumeOperation::Remove { .. } => return count_removal(ending),
    };
    let end = match ending {
        OperationResult::Failed { .. } | OperationResult::Stuck { .. } => CallResult::InError,
        OperationResult::Done | OperationResult::Mounted { .. } => CallResult::Well,
    };
    let took = kernel::now().saturating_duration_since(began);
    operated(&plugin_name(kind.as_str(), &id.0), operation, took, end);
}

fn count_removal(ending: &OperationResult) {
    let removals = match ending {
        OperationResult::Failed { .. } | OperationResult::Stuck { .. } => &ORPHANS_CLEANED_ERRORS,
        OperationResult::Done | OperationResult::Mounted { .. } => &ORPHANS_CLEANED,
    };
    removals.inc();
}

/// Counts a sweep for volumes that belong to no pod.
pub(super) fn sweep() {
    ORPHANS_CLEANED.set(0.0);
    ORPHANS_CLEANED_ERRORS.set(0.0);
}

/// Counts the volumes that plugins found, and those of them that cannot be assigned to a pod.
pub(super) fn count_found(found: &[ReconstructedVolume]) {
    let lost = found.iter().filter(|found| {
        let at_a_pod = match found.state {
            ReconstructedState::Mounted
            | ReconstructedState::LeftOver
            | ReconstructedState::Mapped => true,
            ReconstructedState::Staged | ReconstructedState::StagedBlock => false,
        };
        at_a_pod && found.pod.is_none()
    });
    RECONSTRUCTED_ERRORS.inc_by(u64::try_from(lost.count()).unwrap_or(0));
    RECONSTRUCTED.inc_by(u64::try_from(found.len()).unwrap_or(0));
}

/// The label of a volume's figures: upstream's name of the plugin, or the driver's name.
pub(super) fn source(volume: &Volume) -> String {
    let source = match &volume.source {
        VolumeSource::Csi(csi) => return csi.driver.clone(),
        _ if volume.mode == VolumeMode::Block => "block",
        VolumeSource::EmptyDir(_) | VolumeSource::Files(_) => "du",
        VolumeSource::HostPath { .. }
        | VolumeSource::Local { .. }
        | VolumeSource::Nfs { .. }
        | VolumeSource::Image => "statfs",
    };
    source.to_owned()
}

/// Records the duration of a measurement, failed or not.
pub(super) fn measured(source: &str, began: Instant) {
    let took = kernel::now().saturating_duration_since(began);
    let duration = MEASURING.with_label_values(&[source]);
    duration.observe(took.as_secs_f64());
}
