//! Memory, and the stalls of all resources.

use logic_resources::group_stats::GroupMemory;
use metrics::exposition::MetricKind::{Counter, Gauge};

use super::{Family, GroupRow, Sink, cpu, family};

/// The kernel's microseconds of stalls as seconds.
fn stalled(microseconds: u64) -> f64 {
    microseconds as f64 / 1e6
}

fn memory(row: GroupRow<'_>, to: Sink<'_>, value: fn(&GroupMemory) -> u64) {
    to(&[], row.group.memory.as_ref().map_or(0, value) as f64);
}

fn failures(row: GroupRow<'_>, to: Sink<'_>) {
    let memory = row.group.memory.clone().unwrap_or_default();
    for scope in ["container", "hierarchy"] {
        for (kind, count) in [
            ("pgfault", memory.page_faults),
            ("pgmajfault", memory.major_page_faults),
        ] {
            to(&[("failure_type", kind), ("scope", scope)], count as f64);
        }
    }
}

/// Memory.
pub(in crate::stats::cadvisor) static MEMORY: &[Family] = &[
    family(
        Gauge,
        (
            "container_memory_cache",
            "Number of bytes of page cache memory.",
        ),
        |row, to| memory(row, to, |memory| memory.cache),
    ),
    family(
        Gauge,
        ("container_memory_rss", "Size of RSS in bytes."),
        |row, to| memory(row, to, |memory| memory.rss),
    ),
    family(
        Gauge,
        (
            "container_memory_kernel_usage",
            "Size of kernel memory allocated in bytes.",
        ),
        |row, to| memory(row, to, |memory| memory.kernel),
    ),
    family(
        Gauge,
        (
            "container_memory_mapped_file",
            "Size of memory mapped files in bytes.",
        ),
        |row, to| memory(row, to, |memory| memory.mapped_file),
    ),
    family(
        Gauge,
        ("container_memory_swap", "Container swap usage in bytes."),
        |row, to| memory(row, to, |memory| memory.swap),
    ),
    family(
        Counter,
        (
            "container_memory_failcnt",
            "Number of memory usage hits limits",
        ),
        |row, to| memory(row, to, |memory| memory.failures),
    ),
    family(
        Gauge,
        (
            "container_memory_usage_bytes",
            "Current memory usage in bytes, including all memory regardless of when it was accessed",
        ),
        |row, to| memory(row, to, |memory| memory.usage),
    ),
    family(
        Gauge,
        (
            "container_memory_max_usage_bytes",
            "Maximum memory usage recorded in bytes",
        ),
        |row, to| memory(row, to, |memory| memory.max_usage),
    ),
    family(
        Gauge,
        (
            "container_memory_working_set_bytes",
            "Current working set in bytes.",
        ),
        |row, to| memory(row, to, GroupMemory::working_set),
    ),
    family(
        Gauge,
        (
            "container_memory_total_active_file_bytes",
            "Current total active file in bytes.",
        ),
        |row, to| memory(row, to, |memory| memory.active_file),
    ),
    family(
        Gauge,
        (
            "container_memory_total_inactive_file_bytes",
            "Current total inactive file in bytes.",
        ),
        |row, to| memory(row, to, |memory| memory.inactive_file),
    ),
    family(
        Counter,
        (
            "container_memory_failures_total",
            "Cumulative count of memory allocation failures.",
        ),
        failures,
    ),
    family(
        Counter,
        (
            "container_oom_events_total",
            "Count of out of memory events observed for the container",
        ),
        |row, to| memory(row, to, |memory| memory.oom_kills),
    ),
];

/// Stalls, where the kernel measures them.
pub(in crate::stats::cadvisor) static PRESSURE: &[Family] = &[
    family(
        Counter,
        (
            "container_pressure_cpu_stalled_seconds_total",
            "Total time duration no tasks in the container could make progress due to CPU congestion.",
        ),
        |row, to| cpu(row, to, |cpu| stalled(cpu.psi.full.total)),
    ),
    family(
        Counter,
        (
            "container_pressure_cpu_waiting_seconds_total",
            "Total time duration tasks in the container have waited due to CPU congestion.",
        ),
        |row, to| cpu(row, to, |cpu| stalled(cpu.psi.some.total)),
    ),
    family(
        Counter,
        (
            "container_pressure_memory_stalled_seconds_total",
            "Total time duration no tasks in the container could make progress due to memory congestion.",
        ),
        |row, to| {
            to(
                &[],
                row.group
                    .memory
                    .as_ref()
                    .map_or(0.0, |memory| stalled(memory.psi.full.total)),
            )
        },
    ),
    family(
        Counter,
        (
            "container_pressure_memory_waiting_seconds_total",
            "Total time duration tasks in the container have waited due to memory congestion.",
        ),
        |row, to| {
            to(
                &[],
                row.group
                    .memory
                    .as_ref()
                    .map_or(0.0, |memory| stalled(memory.psi.some.total)),
            )
        },
    ),
    family(
        Counter,
        (
            "container_pressure_io_stalled_seconds_total",
            "Total time duration no tasks in the container could make progress due to IO congestion.",
        ),
        |row, to| {
            to(
                &[],
                row.group
                    .io
                    .as_ref()
                    .map_or(0.0, |io| stalled(io.psi.full.total)),
            )
        },
    ),
    family(
        Counter,
        (
            "container_pressure_io_waiting_seconds_total",
            "Total time duration tasks in the container have waited due to IO congestion.",
        ),
        |row, to| {
            to(
                &[],
                row.group
                    .io
                    .as_ref()
                    .map_or(0.0, |io| stalled(io.psi.some.total)),
            )
        },
    ),
];
