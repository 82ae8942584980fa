//! Operations on volumes, measured by upstream's names: pkg/volume/util/operationexecutor/operation_generator.go (1.36).

use std::time::Instant;

use logic::summary::plugin_name;
use logic::volumes::world::{Ending, Task};
use logic::volumes::{Mode, Source, Volume};
use metrics::runtime::End;
use metrics::volumes::{MEASURING, operated};

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
        Task::Remove { .. } => return,
    };
    let end = match ending {
        Ending::Failed { .. } | Ending::Stuck { .. } => End::InError,
        Ending::Done | Ending::Mounted { .. } => End::Well,
    };
    let took = kernel::now().saturating_duration_since(began);
    operated(&plugin_name(kind.as_str(), &id.0), operation, took, end);
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
