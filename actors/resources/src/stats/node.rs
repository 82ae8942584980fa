//! The node's own part of a summary, and a summary with CPU and memory alone.

use clients::runtime::FileSystems;
use host::stats::NodeFigures;
use logic_resources::summary::pods::WritableLayer;
use logic_resources::summary::rates::CpuRates;
use logic_resources::summary::{
    CpuStats, FsStats, NodeStats, RuntimeStats, StatsSummary, SummaryScope,
};

use super::{DiskStats, SummaryProvider};

impl SummaryProvider {
    pub(super) fn node(
        &self,
        figures: NodeFigures,
        scope: SummaryScope,
        file_systems: &FileSystems,
        seen: &DiskStats,
        rates: &mut CpuRates,
    ) -> NodeStats {
        let mut node = NodeStats {
            node_name: self.0.peers.rules.node.node_name.clone(),
            system_containers: figures.system,
            start_time: figures.started,
            cpu: figures.cpu,
            memory: figures.memory,
            io: figures.io,
            network: figures.network,
            rlimit: figures.rlimit,
            swap: figures.swap,
            ..NodeStats::default()
        };
        rate("", node.cpu.as_mut(), rates);
        for system in &mut node.system_containers {
            rate(&system.name, system.cpu.as_mut(), rates);
        }
        if scope == SummaryScope::Everything {
            node.fs.clone_from(&seen.root);
            node.runtime = Some(runtime_stats(file_systems, seen));
        }
        node
    }
}

/// The runtime's file systems: the one of containers is the one of images where the runtime names no other.
fn runtime_stats(file_systems: &FileSystems, seen: &DiskStats) -> RuntimeStats {
    let layer = |layer: &WritableLayer| FsStats {
        time: layer.used.time,
        used_bytes: layer.used.used_bytes,
        inodes_used: layer.used.inodes_used,
        ..seen
            .file_systems
            .get(&layer.mountpoint)
            .cloned()
            .unwrap_or_default()
    };
    let image_fs = file_systems.images.as_ref().map(layer);
    let container_fs = file_systems.containers.as_ref().map(layer);
    RuntimeStats {
        container_fs: container_fs.or_else(|| image_fs.clone()),
        image_fs,
    }
}

/// Sets the rate of CPU usage; upstream says zero until there are two samples.
fn rate(whose: &str, cpu: Option<&mut CpuStats>, rates: &mut CpuRates) {
    if let Some(cpu) = cpu {
        rates.rate(whose, cpu);
        cpu.usage_nano_cores.get_or_insert(0);
    }
}

/// The parts of a summary that `only_cpu_and_memory=true` leaves.
pub(super) fn lessened(summary: &StatsSummary) -> StatsSummary {
    let mut summary = summary.clone();
    let node = &mut summary.node;
    (node.network, node.fs, node.runtime, node.rlimit) = (None, None, None, None);
    node.io = None;
    for system in &mut node.system_containers {
        system.io = None;
    }
    for pod in &mut summary.pods {
        (pod.network, pod.io, pod.processes) = (None, None, None);
        (pod.ephemeral_storage, pod.volumes) = (None, Vec::new());
        for container in &mut pod.containers {
            (container.rootfs, container.logs, container.io) = (None, None, None);
        }
    }
    summary
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Upstream's TestCRIImagesFsStats, TestCadvisorImagesFsStats, TestCadvisorImagesFsStatsKubeletSeparateDiskOff,
    /// TestCadvisorSplitImagesFsStats, TestCadvisorSameDiskDifferentLocations and TestImageFsStatsCustomResponse.
    #[test]
    fn images_and_containers_have_one_file_system_or_one_each() {
        let layer = |mountpoint: &str, used| WritableLayer {
            mountpoint: mountpoint.to_owned(),
            used: FsStats {
                used_bytes: Some(used),
                ..FsStats::default()
            },
        };
        let disk = |capacity| FsStats {
            capacity_bytes: Some(capacity),
            used_bytes: Some(9999),
            ..FsStats::default()
        };
        let seen = DiskStats {
            file_systems: [("/a".to_owned(), disk(1)), ("/b".to_owned(), disk(2))].into(),
            ..DiskStats::default()
        };
        let found = |images: Option<(&str, u64)>, containers: Option<(&str, u64)>| {
            let layer = |place: Option<(&str, u64)>| place.map(|(point, used)| layer(point, used));
            let file_systems = FileSystems {
                images: layer(images),
                containers: layer(containers),
            };
            let stats = runtime_stats(&file_systems, &seen);
            let figures = |fs: Option<FsStats>| fs.map(|fs| (fs.capacity_bytes, fs.used_bytes));
            (figures(stats.image_fs), figures(stats.container_fs))
        };
        let (a, b) = ((Some(1), Some(10)), (Some(2), Some(20)));
        assert_eq!(
            found(Some(("/a", 10)), Some(("/b", 20))),
            (Some(a), Some(b))
        );
        assert_eq!(found(Some(("/a", 10)), None), (Some(a), Some(a)));
        assert_eq!(
            found(Some(("/a", 10)), Some(("/a", 20))),
            (Some(a), Some((Some(1), Some(20))))
        );
        // A file system that this machine does not know has the runtime's figures alone.
        assert_eq!(found(Some(("/c", 10)), None).0, Some((None, Some(10))));
        assert_eq!(found(None, None), (None, None));
    }
}
