//! On which file systems images and writable layers lie, and what follows: which parts of a pod count when one is
//! short, and what can be reclaimed of the node itself before a pod goes.
//!
//! Mirrors upstream's `buildSignalToRankFunc` and `buildSignalToNodeReclaimFuncs` (eviction/helpers.go) at v1.36.

use serde::{Deserialize, Serialize};

use super::usage::{DiskAmount, MeasuredUsage};
use crate::thresholds::Signal;

/// Where the runtime keeps images and writable layers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum FsLayout {
    /// All on the file system of the node's root directory.
    #[default]
    Shared,
    /// Images and writable layers together on one of their own.
    DedicatedImages,
    /// Images on one, writable layers on another, which is the node's own.
    SplitImages,
}

/// The devices of the node's root directory, of the images, and of the writable layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FsDevices {
    pub node: u64,
    /// None where it is not known.
    pub images: Option<u64>,
    /// None where the runtime tells no other than the images'.
    pub containers: Option<u64>,
}

impl FsLayout {
    pub fn of(devices: FsDevices) -> FsLayout {
        let images = devices.images.unwrap_or(devices.node);
        let containers = devices.containers.unwrap_or(images);
        match (images == containers, images == devices.node) {
            (false, _) => FsLayout::SplitImages,
            (true, true) => FsLayout::Shared,
            (true, false) => FsLayout::DedicatedImages,
        }
    }

    /// What of a pod lies on the file system of a signal; read-only layers are shared and count for no pod.
    pub(super) fn amount(self, signal: Signal, used: &MeasuredUsage) -> DiskAmount {
        let own = used.logs.plus(used.volumes);
        match (self, is_of_images(signal), is_of_containers(signal)) {
            (FsLayout::Shared, _, _) => own.plus(used.root),
            (FsLayout::DedicatedImages, false, false) => own,
            (FsLayout::DedicatedImages, true, _) | (FsLayout::DedicatedImages, _, true) => {
                used.root
            }
            (FsLayout::SplitImages, true, _) => DiskAmount::default(),
            (FsLayout::SplitImages, false, _) => own.plus(used.root),
        }
    }

    /// What the node can give back when a signal's threshold is met, in this order.
    pub fn reclaims(self, signal: Signal) -> &'static [NodeReclaim] {
        use NodeReclaim::{DeadContainers, UnusedImages};
        if !signal.is_disk() {
            return &[];
        }
        match (self, is_of_images(signal), is_of_containers(signal)) {
            (FsLayout::Shared, _, _) => &[DeadContainers, UnusedImages],
            (FsLayout::DedicatedImages, false, false) => &[],
            (FsLayout::DedicatedImages, _, _) => &[DeadContainers, UnusedImages],
            (FsLayout::SplitImages, true, _) => &[UnusedImages],
            (FsLayout::SplitImages, false, _) => &[DeadContainers],
        }
    }
}

/// What is reclaimed of the node before a pod goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum NodeReclaim {
    /// All containers that have ended.
    DeadContainers,
    /// All images that no container uses.
    UnusedImages,
}

fn is_of_images(signal: Signal) -> bool {
    matches!(signal, Signal::ImageFsAvailable | Signal::ImageFsInodesFree)
}

fn is_of_containers(signal: Signal) -> bool {
    matches!(
        signal,
        Signal::ContainerFsAvailable | Signal::ContainerFsInodesFree
    )
}
