//! On a real runtime.

use super::{BenchGoal, CONTAINERD, Figure, figure};

pub(super) const FIGURES: &[Figure] = &[
    figure(
        "real-pss-none",
        CONTAINERD,
        "memory with the adapter, 0 pods",
        "MiB",
        BenchGoal::AtMost(25.0),
    ),
    figure(
        "real-pss-some",
        CONTAINERD,
        "memory with the adapter, {real} pods",
        "MiB",
        BenchGoal::None,
    ),
    figure(
        "real-direct",
        CONTAINERD,
        "containerd's own time: sandbox, create, start, median",
        "ms",
        BenchGoal::None,
    ),
    figure(
        "real-drop",
        CONTAINERD,
        "on containerd: manifest dropped to container started, median",
        "ms",
        BenchGoal::None,
    ),
    figure(
        "real-drop-own",
        CONTAINERD,
        "of it ours",
        "ms",
        BenchGoal::AtMost(20.0),
    ),
    figure(
        "real-again",
        CONTAINERD,
        "containerd's own time: create, start, median",
        "ms",
        BenchGoal::None,
    ),
    figure(
        "real-restart",
        CONTAINERD,
        "on containerd: container killed to started again, median",
        "ms",
        BenchGoal::None,
    ),
    figure(
        "real-restart-own",
        CONTAINERD,
        "of it ours, and containerd's time to notice",
        "ms",
        BenchGoal::Under(50.0),
    ),
    figure(
        "real-burst-direct",
        CONTAINERD,
        "containerd's own time: 50 pods by eight callers, median",
        "ms",
        BenchGoal::None,
    ),
    figure(
        "real-burst-direct-last",
        CONTAINERD,
        "containerd's own time: 50 pods by eight callers, last",
        "ms",
        BenchGoal::None,
    ),
    figure(
        "real-burst",
        CONTAINERD,
        "on containerd: 50 manifests dropped at once to container started, median",
        "ms",
        BenchGoal::None,
    ),
    figure(
        "real-burst-last",
        CONTAINERD,
        "on containerd: 50 manifests dropped at once to container started, last",
        "ms",
        BenchGoal::None,
    ),
];
