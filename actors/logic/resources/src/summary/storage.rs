//! A pod's disk usage. Mirrors `calcEphemeralStorage` and volume_stat_calculator.go (1.36).

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, Volume};
use logic_api::pod::volume_stats::{VolumeHealthState, VolumeMetrics};

use super::pods::{DiskUsage, PodDiskUsage};
use super::{ClaimRef, ContainerStats, FsStats, VolumeHealth, VolumeStats};

/// The stats of a container's log on one of the node's file systems.
pub(super) fn logs(amount: DiskUsage, root: &FsStats) -> FsStats {
    FsStats {
        used_bytes: Some(amount.bytes),
        inodes_used: Some(amount.inodes),
        ..on(root)
    }
}

/// The stats of a file system, without a usage of one's own.
fn on(root: &FsStats) -> FsStats {
    FsStats {
        used_bytes: None,
        inodes_used: None,
        ..root.clone()
    }
}

/// A pod's volumes that were measured, those that count as the pod's own first.
pub(super) fn volumes(
    pod: &Pod,
    figures: &BTreeMap<String, VolumeMetrics>,
) -> (Vec<VolumeStats>, Vec<VolumeStats>) {
    let spec = pod.spec.as_ref();
    let volumes = spec.and_then(|spec| spec.volumes.as_deref());
    let (mut own, mut others) = (Vec::new(), Vec::new());
    for (name, figures) in figures {
        let volume = volumes.into_iter().flatten().find(|v| v.name == *name);
        let stats = VolumeStats {
            fs: file_system(figures),
            name: name.clone(),
            pvc_ref: volume.and_then(|volume| claim(pod, volume)),
            volume_health_stats: figures.abnormal.as_ref().map(|told| VolumeHealth {
                abnormal: told.state == VolumeHealthState::Abnormal,
            }),
        };
        match volume.is_some_and(is_local_ephemeral) {
            true => own.push(stats),
            false => others.push(stats),
        }
    }
    (own, others)
}

/// Upstream writes noughts where nothing is known of a volume.
fn file_system(figures: &VolumeMetrics) -> FsStats {
    let known = |value: Option<u64>| Some(value.unwrap_or(0));
    FsStats {
        time: figures.at,
        available_bytes: known(figures.available),
        capacity_bytes: known(figures.capacity),
        used_bytes: known(figures.used),
        inodes_free: known(figures.inodes_free),
        inodes: known(figures.inodes),
        inodes_used: known(figures.inodes_used),
    }
}

/// The claim behind a volume: its own name, or the one that is made for an ephemeral volume.
pub(super) fn claim(pod: &Pod, volume: &Volume) -> Option<ClaimRef> {
    let namespace = pod.metadata.namespace.clone().unwrap_or_default();
    let name = match (&volume.persistent_volume_claim, &volume.ephemeral) {
        (Some(claim), _) => claim.claim_name.clone(),
        (None, Some(_)) => {
            let pod = pod.metadata.name.as_deref().unwrap_or_default();
            format!("{pod}-{}", volume.name)
        }
        (None, None) => return None,
    };
    Some(ClaimRef { name, namespace })
}

/// What lies on the node's disk and ends with the pod.
fn is_local_ephemeral(volume: &Volume) -> bool {
    let empty = volume.empty_dir.as_ref();
    let on_disk = empty.is_some_and(|empty| empty.medium.as_deref().unwrap_or_default().is_empty());
    on_disk || volume.config_map.is_some() || volume.git_repo.is_some()
}

/// Everything that a pod takes of the node's disk.
pub(super) fn ephemeral(
    containers: &[ContainerStats],
    volumes: &[VolumeStats],
    disk: &PodDiskUsage,
    root: &FsStats,
) -> FsStats {
    let mut sum = on(root);
    for container in containers {
        for part in [&container.rootfs, &container.logs].into_iter().flatten() {
            add(&mut sum, part.used_bytes, part.inodes_used, None);
        }
    }
    for volume in volumes {
        let fs = &volume.fs;
        add(&mut sum, fs.used_bytes, fs.inodes_used, fs.time);
    }
    for amount in [disk.logs, disk.mounted_files].into_iter().flatten() {
        add(&mut sum, Some(amount.bytes), Some(amount.inodes), None);
    }
    sum
}

fn add(sum: &mut FsStats, bytes: Option<u64>, inodes: Option<u64>, at: Option<Timestamp>) {
    sum.used_bytes = plus(sum.used_bytes, bytes);
    sum.inodes_used = plus(sum.inodes_used, inodes);
    sum.time = sum.time.max(at);
}

/// The sum; an unknown amount adds nothing, and two unknown ones stay unknown.
pub(super) fn plus(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.saturating_add(other)),
        (one, other) => one.or(other),
    }
}
