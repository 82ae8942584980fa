//! Pods that take more of the node's disk than they may: emptyDirs, whole pods, containers.
//!
//! Mirrors upstream's `localStorageEviction` (eviction/eviction_manager.go) at v1.36.

use k8s_openapi::api::core::v1::{Container, Pod, Volume};
use logic_api::pod::PodView;
use logic_api::pod::requests::{self, EPHEMERAL_STORAGE, OverheadPolicy, RequestBasis};
use logic_api::quantity::Quantity;

use super::FsLayout;
use crate::summary::{ContainerStats, FsStats, PodStats};

/// A limit of local storage that a pod exceeds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitBreach {
    pub kind: StorageLimit,
    /// The message of the pod's status and event.
    pub message: String,
}

/// Which limit is exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StorageLimit {
    EmptyDir,
    Pod,
    Container,
}

impl StorageLimit {
    /// The value of the label `eviction_signal`.
    pub fn signal(self) -> &'static str {
        match self {
            Self::EmptyDir => "emptydirfs.limit",
            Self::Pod => "ephemeralpodfs.limit",
            Self::Container => "ephemeralcontainerfs.limit",
        }
    }
}

/// Whether the pod has a limit that only measuring keeps.
pub fn is_limited(pod: &Pod) -> bool {
    let limited = |container: &Container| limit(container).is_some();
    let containers = pod.app_containers().iter().chain(pod.init_containers());
    containers.into_iter().any(limited) || volumes(pod).any(|volume| size_limit(volume).is_some())
}

/// The first limit that the pod exceeds: of an emptyDir, of the pod, of a container.
pub fn breach(pod: &Pod, stats: &PodStats, layout: FsLayout) -> Option<LimitBreach> {
    of_empty_dir(pod, stats)
        .or_else(|| of_pod(pod, stats))
        .or_else(|| of_container(pod, stats, layout))
}

fn volumes(pod: &Pod) -> impl Iterator<Item = &Volume> {
    let volumes = pod.spec().and_then(|spec| spec.volumes.as_deref());
    volumes.into_iter().flatten()
}

/// The limit of an emptyDir; zero and less are none.
fn size_limit(volume: &Volume) -> Option<Quantity> {
    let limit = volume.empty_dir.as_ref()?.size_limit.as_ref()?;
    requests::parse(limit).filter(|limit| !limit.is_zero() && !limit.is_negative())
}

fn of_empty_dir(pod: &Pod, stats: &PodStats) -> Option<LimitBreach> {
    volumes(pod).find_map(|volume| {
        let limit = size_limit(volume)?;
        let stats = stats
            .volumes
            .iter()
            .find(|stats| stats.name == volume.name)?;
        let used = stats.fs.used_bytes?;
        is_above(used, &limit).then(|| LimitBreach {
            kind: StorageLimit::EmptyDir,
            message: format!(
                "Usage of EmptyDir volume {:?} exceeds the limit {:?}. ",
                volume.name,
                limit.to_string()
            ),
        })
    })
}

fn of_pod(pod: &Pod, stats: &PodStats) -> Option<LimitBreach> {
    let limits = requests::pod_limits(pod, RequestBasis::Spec, OverheadPolicy::Counted);
    let limit = limits.get(EPHEMERAL_STORAGE)?;
    let used = stats.ephemeral_storage.as_ref()?.used_bytes?;
    is_above(used, limit).then(|| LimitBreach {
        kind: StorageLimit::Pod,
        message: format!(
            "Pod ephemeral local storage usage exceeds the total limit of containers {limit}. "
        ),
    })
}

fn limit(container: &Container) -> Option<Quantity> {
    let limits = container.resources.as_ref()?.limits.as_ref()?;
    let limit = requests::parse(limits.get(EPHEMERAL_STORAGE)?)?;
    (!limit.is_zero()).then_some(limit)
}

/// App containers alone have a limit of their own; the writable layer counts where it lies beside the logs.
fn of_container(pod: &Pod, stats: &PodStats, layout: FsLayout) -> Option<LimitBreach> {
    let used = |container: &ContainerStats| {
        let bytes = |fs: &Option<FsStats>| fs.as_ref().and_then(|fs| fs.used_bytes).unwrap_or(0);
        let root = match layout {
            FsLayout::Shared => bytes(&container.rootfs),
            FsLayout::DedicatedImages | FsLayout::SplitImages => 0,
        };
        bytes(&container.logs).saturating_add(root)
    };
    stats.containers.iter().find_map(|container| {
        let mut named = pod.app_containers().iter();
        let limit = limit(named.find(|c| c.name == container.name)?)?;
        is_above(used(container), &limit).then(|| LimitBreach {
            kind: StorageLimit::Container,
            message: format!(
                "Container {} exceeded its local ephemeral storage limit {:?}. ",
                container.name,
                limit.to_string()
            ),
        })
    })
}

fn is_above(used: u64, limit: &Quantity) -> bool {
    i64::try_from(used).unwrap_or(i64::MAX) > limit.value()
}
