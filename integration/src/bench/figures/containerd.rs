//! On a real runtime.

use super::{Aim, CONTAINERD, Figure, figure};

pub(super) const FIGURES: &[Figure] = &[
    figure(
        "real-pss-none",
        CONTAINERD,
        "memory with the adapter, 0 pods",
        "MiB",
        Aim::AtMost(15.0),
    ),
    figure(
        "real-pss-some",
        CONTAINERD,
        "memory with the adapter, {real} pods",
        "MiB",
        Aim::None,
    ),
    figure(
        "real-direct",
        CONTAINERD,
        "containerd's own time: sandbox, create, start, median",
        "ms",
        Aim::None,
    ),
    figure(
        "real-drop",
        CONTAINERD,
        "on containerd: manifest dropped to container started, median",
        "ms",
        Aim::None,
    ),
    figure(
        "real-drop-own",
        CONTAINERD,
        "of it ours",
        "ms",
        Aim::AtMost(20.0),
    ),
    figure(
        "real-again",
        CONTAINERD,
        "containerd's own time: create, start, median",
        "ms",
        Aim::None,
    ),
    figure(
        "real-restart",
        CONTAINERD,
        "on containerd: container killed to started again, median",
        "ms",
        Aim::None,
    ),
    figure(
        "real-restart-own",
        CONTAINERD,
        "of it ours, and containerd's time to notice",
        "ms",
        Aim::Under(50.0),
    ),
];
