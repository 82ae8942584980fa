//! Very many pods on the native runtime.

use super::{BenchGoal, FULL_NODE, Figure, figure};

pub(super) const FIGURES: &[Figure] = &[
    figure(
        "full-running",
        FULL_NODE,
        "on the native runtime: {most} pods at once to the last container started",
        "ms",
        BenchGoal::Under(45_000.0),
    ),
    figure(
        "full-start-all",
        FULL_NODE,
        "on the native runtime: {most} pods at once, the node's processor time per pod",
        "ms",
        BenchGoal::None,
    ),
    figure(
        "full-start-first",
        FULL_NODE,
        "on the native runtime: {many} pods at once on an empty node, the node's processor time per pod",
        "ms",
        BenchGoal::None,
    ),
    figure(
        "full-start-last",
        FULL_NODE,
        "on the native runtime: the last {many} of {most} pods, the node's processor time per pod",
        "ms",
        BenchGoal::None,
    ),
    figure(
        "full-start-growth",
        FULL_NODE,
        "on the native runtime: processor time of a start on the full node, by that on the empty one",
        "times",
        BenchGoal::Under(1.5),
    ),
    figure(
        "full-pss",
        FULL_NODE,
        "whole node on the native runtime: memory, {most} pods",
        "MiB",
        BenchGoal::Under(130.0),
    ),
    figure(
        "full-cpu",
        FULL_NODE,
        "whole node on the native runtime: processor time, {most} idle pods",
        "% of a core",
        BenchGoal::None,
    ),
];
