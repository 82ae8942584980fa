//! What a group is given.

use logic_resources::group_stats::{GroupMemory, MAX_MEMORY_LIMIT};
use metrics::exposition::MetricKind::Gauge;

use super::{Family, GroupRow, Sink, family, quota};

/// What a group is given: samples without a time of their own.
pub(in crate::stats::cadvisor) static SPEC: &[Family] = &[
    family(
        Gauge,
        (
            "container_start_time_seconds",
            "Start time of the container since unix epoch in seconds.",
        ),
        |row, to| {
            if let Some(created) = row.group.created {
                to(&[], created.as_second() as f64);
            }
        },
    ),
    family(
        Gauge,
        ("container_spec_cpu_period", "CPU period of the container."),
        |row, to| {
            if let Some(cpu) = &row.group.cpu {
                to(&[], cpu.period as f64);
            }
        },
    ),
    family(
        Gauge,
        ("container_spec_cpu_quota", "CPU quota of the container."),
        |row, to| quota(row, to, |cpu| cpu.quota as f64),
    ),
    family(
        Gauge,
        ("container_spec_cpu_shares", "CPU share of the container."),
        |row, to| {
            if let Some(cpu) = &row.group.cpu {
                to(&[], cpu.shares as f64);
            }
        },
    ),
    family(
        Gauge,
        (
            "container_spec_memory_limit_bytes",
            "Memory limit for the container.",
        ),
        |row, to| limit(row, to, |memory| memory.limit),
    ),
    family(
        Gauge,
        (
            "container_spec_memory_swap_limit_bytes",
            "Memory swap limit for the container.",
        ),
        |row, to| limit(row, to, |memory| memory.swap_limit),
    ),
    family(
        Gauge,
        (
            "container_spec_memory_reservation_limit_bytes",
            "Memory reservation limit for the container.",
        ),
        |row, to| limit(row, to, |memory| memory.reservation),
    ),
];

/// A limit in bytes; no limit is zero.
fn limit(row: GroupRow<'_>, to: Sink<'_>, value: fn(&GroupMemory) -> u64) {
    if let Some(memory) = &row.group.memory {
        let bytes = value(memory);
        let limited = bytes <= MAX_MEMORY_LIMIT;
        to(&[], if limited { bytes as f64 } else { 0.0 });
    }
}
