//! CPU and tasks.

use metrics::exposition::MetricKind::{Counter, Gauge};

use super::{Family, GroupRow, Sink, cpu, family, quota, seconds};

fn states(_: GroupRow<'_>, to: Sink<'_>) {
    // cAdvisor's reader of loads is off in the kubelet: every state has none.
    for state in [
        "iowaiting",
        "running",
        "sleeping",
        "stopped",
        "uninterruptible",
    ] {
        to(&[("state", state)], 0.0);
    }
}

/// CPU and tasks.
pub(in crate::stats::cadvisor) static CPU: &[Family] = &[
    family(
        Gauge,
        (
            "container_health_state",
            "The result of the container's health check",
        ),
        |_, to| to(&[], -1.0),
    ),
    family(
        Counter,
        (
            "container_cpu_user_seconds_total",
            "Cumulative user cpu time consumed in seconds.",
        ),
        |row, to| cpu(row, to, |cpu| seconds(cpu.user)),
    ),
    family(
        Counter,
        (
            "container_cpu_system_seconds_total",
            "Cumulative system cpu time consumed in seconds.",
        ),
        |row, to| cpu(row, to, |cpu| seconds(cpu.system)),
    ),
    family(
        Counter,
        (
            "container_cpu_usage_seconds_total",
            "Cumulative cpu time consumed in seconds.",
        ),
        |row, to| {
            if let Some(cpu) = row.group.cpu.as_ref().filter(|cpu| cpu.usage > 0) {
                to(&[("cpu", "total")], seconds(cpu.usage));
            }
        },
    ),
    family(
        Counter,
        (
            "container_cpu_cfs_periods_total",
            "Number of elapsed enforcement period intervals.",
        ),
        |row, to| quota(row, to, |cpu| cpu.periods as f64),
    ),
    family(
        Counter,
        (
            "container_cpu_cfs_throttled_periods_total",
            "Number of throttled period intervals.",
        ),
        |row, to| quota(row, to, |cpu| cpu.throttled_periods as f64),
    ),
    family(
        Counter,
        (
            "container_cpu_cfs_throttled_seconds_total",
            "Total time duration the container has been throttled.",
        ),
        |row, to| quota(row, to, |cpu| seconds(cpu.throttled)),
    ),
    family(
        Counter,
        (
            "container_cpu_cfs_burst_periods_total",
            "Number of periods when burst occurs.",
        ),
        |row, to| quota(row, to, |cpu| cpu.bursts as f64),
    ),
    family(
        Counter,
        (
            "container_cpu_cfs_burst_seconds_total",
            "Total time duration the container has been bursted.",
        ),
        |row, to| quota(row, to, |cpu| seconds(cpu.burst)),
    ),
    family(
        Gauge,
        (
            "container_cpu_load_average_10s",
            "Value of container cpu load average over the last 10 seconds.",
        ),
        |_, to| to(&[], 0.0),
    ),
    family(
        Gauge,
        (
            "container_cpu_load_d_average_10s",
            "Value of container cpu load.d average over the last 10 seconds.",
        ),
        |_, to| to(&[], 0.0),
    ),
    family(
        Gauge,
        ("container_tasks_state", "Number of tasks in given state"),
        states,
    ),
    family(
        Gauge,
        (
            "container_processes",
            "Number of processes running inside the container.",
        ),
        |row, to| to(&[], row.group.tasks.processes as f64),
    ),
    family(
        Gauge,
        (
            "container_file_descriptors",
            "Number of open file descriptors for the container.",
        ),
        |row, to| to(&[], row.group.tasks.file_descriptors as f64),
    ),
    family(
        Gauge,
        (
            "container_sockets",
            "Number of open sockets for the container.",
        ),
        |row, to| to(&[], row.group.tasks.sockets as f64),
    ),
    family(
        Gauge,
        (
            "container_threads_max",
            "Maximum number of threads allowed inside the container, infinity if value is zero",
        ),
        |row, to| to(&[], row.group.tasks.max_threads as f64),
    ),
    family(
        Gauge,
        (
            "container_threads",
            "Number of threads running inside the container",
        ),
        |row, to| to(&[], row.group.tasks.threads as f64),
    ),
    family(
        Gauge,
        (
            "container_ulimits_soft",
            "Soft ulimit values for the container root process. Unlimited if -1, except priority and nice",
        ),
        |row, to| {
            if let Some(limit) = row.group.tasks.open_files {
                to(&[("ulimit", "max_open_files")], limit as f64);
            }
        },
    ),
];
