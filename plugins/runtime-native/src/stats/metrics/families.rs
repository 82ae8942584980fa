//! The families: names and labels are cAdvisor's.

use proto::cri::MetricType;

use super::details::DeviceUse;
use super::{Facts, Sample};

/// One family of a container's samples.
pub(super) struct Family {
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    pub(super) kind: MetricType,
    /// Its own labels, after those of every sample.
    pub(super) labels: &'static [&'static str],
    pub(super) samples: fn(&Facts) -> Vec<Sample>,
}

/// One family of a pod's network.
pub(super) struct NetworkFamily {
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    /// Its column in `/proc/net/dev`.
    pub(super) place: usize,
}

type Samples = fn(&Facts) -> Vec<Sample>;

const fn gauge(name: &'static str, help: &'static str, samples: Samples) -> Family {
    family(name, help, MetricType::Gauge, &[], samples)
}

const fn counter(name: &'static str, help: &'static str, samples: Samples) -> Family {
    family(name, help, MetricType::Counter, &[], samples)
}

const fn family(
    name: &'static str,
    help: &'static str,
    kind: MetricType,
    labels: &'static [&'static str],
    samples: Samples,
) -> Family {
    Family {
        name,
        help,
        kind,
        labels,
        samples,
    }
}

/// The sample of a family without labels of its own.
fn one(value: Option<u64>) -> Vec<Sample> {
    value.map(|value| (Vec::new(), value)).into_iter().collect()
}

/// The sample of the container's file system.
fn on_disk(facts: &Facts, value: Option<u64>) -> Vec<Sample> {
    let sample = |value| (vec![facts.disk.device.clone()], value);
    value.map(sample).into_iter().collect()
}

/// A sample a device.
fn by_device(facts: &Facts, value: fn(&DeviceUse) -> u64) -> Vec<Sample> {
    let devices = facts.details.devices.iter();
    devices.map(|one| (vec![one.name()], value(one))).collect()
}

/// The bytes that went to and from each device.
fn by_device_and_operation(facts: &Facts) -> Vec<Sample> {
    let mut samples = Vec::new();
    for one in &facts.details.devices {
        for (operation, value) in ["Read", "Write"].into_iter().zip(one.bytes) {
            let (major, minor) = (one.major.to_string(), one.minor.to_string());
            samples.push((vec![one.name(), major, minor, operation.to_owned()], value));
        }
    }
    samples
}

fn failures(facts: &Facts) -> Vec<Sample> {
    let (own, all) = (facts.details.own_faults, facts.details.all_faults);
    let mut samples = Vec::new();
    for (scope, values) in [("container", own), ("hierarchy", all)] {
        for (kind, value) in ["pgfault", "pgmajfault"].into_iter().zip(values) {
            let labels = vec![kind.to_owned(), scope.to_owned()];
            samples.extend(value.map(|value| (labels, value)));
        }
    }
    samples
}

fn open_files(facts: &Facts) -> Vec<Sample> {
    let limit = facts.processes.max_open_files;
    let sample = |value| (vec!["max_open_files".to_owned()], value);
    limit.map(sample).into_iter().collect()
}

/// Where there is a limit.
fn set(value: u64) -> Option<u64> {
    Some(value).filter(|value| *value > 0)
}

const DEVICE: &[&str] = &["device"];

pub(super) const FAMILIES: [Family; 45] = [
    family(
        "container_blkio_device_usage_total",
        "Bytes between the container and a block device.",
        MetricType::Counter,
        &["device", "major", "minor", "operation"],
        by_device_and_operation,
    ),
    counter(
        "container_cpu_cfs_periods_total",
        "Periods of enforcement that have passed.",
        |facts| one(facts.details.periods),
    ),
    counter(
        "container_cpu_cfs_throttled_periods_total",
        "Periods in which the container was throttled.",
        |facts| one(facts.details.throttled_periods),
    ),
    counter(
        "container_cpu_cfs_throttled_seconds_total",
        "Seconds for which the container was throttled.",
        |facts| one(facts.details.throttled_seconds),
    ),
    counter(
        "container_cpu_system_seconds_total",
        "Seconds of CPU in the kernel.",
        |facts| one(facts.details.system_seconds),
    ),
    counter(
        "container_cpu_usage_seconds_total",
        "Seconds of CPU.",
        |facts| one(facts.usage.cpu_nanos.map(|nanos| nanos / 1_000_000_000)),
    ),
    counter(
        "container_cpu_user_seconds_total",
        "Seconds of CPU outside of the kernel.",
        |facts| one(facts.details.user_seconds),
    ),
    gauge(
        "container_file_descriptors",
        "Open descriptors of the container's processes.",
        |facts| one(facts.processes.descriptors),
    ),
    family(
        "container_fs_inodes_free",
        "Inodes of the file system that are free.",
        MetricType::Gauge,
        DEVICE,
        |facts| on_disk(facts, facts.disk.free_inodes),
    ),
    family(
        "container_fs_inodes_total",
        "Inodes of the file system.",
        MetricType::Gauge,
        DEVICE,
        |facts| on_disk(facts, facts.disk.inodes),
    ),
    family(
        "container_fs_limit_bytes",
        "Bytes that the container can use of the file system.",
        MetricType::Gauge,
        DEVICE,
        |facts| on_disk(facts, facts.disk.limit_bytes),
    ),
    family(
        "container_fs_reads_bytes_total",
        "Bytes read from a device.",
        MetricType::Counter,
        DEVICE,
        |facts| by_device(facts, |one| one.bytes[0]),
    ),
    family(
        "container_fs_reads_total",
        "Reads from a device.",
        MetricType::Counter,
        DEVICE,
        |facts| by_device(facts, |one| one.operations[0]),
    ),
    family(
        "container_fs_usage_bytes",
        "Bytes that the container uses of the file system.",
        MetricType::Gauge,
        DEVICE,
        |facts| on_disk(facts, facts.written),
    ),
    family(
        "container_fs_writes_bytes_total",
        "Bytes written to a device.",
        MetricType::Counter,
        DEVICE,
        |facts| by_device(facts, |one| one.bytes[1]),
    ),
    family(
        "container_fs_writes_total",
        "Writes to a device.",
        MetricType::Counter,
        DEVICE,
        |facts| by_device(facts, |one| one.operations[1]),
    ),
    gauge(
        "container_last_seen",
        "When the container was last seen, in seconds since 1970.",
        |facts| one(Some(facts.seen)),
    ),
    gauge("container_memory_cache", "Bytes of page cache.", |facts| {
        one(facts.details.cache_bytes)
    }),
    counter(
        "container_memory_failcnt",
        "Times that the limit of memory was hit.",
        |facts| one(facts.details.limit_hits),
    ),
    family(
        "container_memory_failures_total",
        "Page faults.",
        MetricType::Counter,
        &["failure_type", "scope"],
        failures,
    ),
    gauge(
        "container_memory_kernel_usage",
        "Bytes that the kernel uses for the container.",
        |facts| one(facts.details.kernel_bytes),
    ),
    gauge(
        "container_memory_mapped_file",
        "Bytes of mapped files.",
        |facts| one(facts.details.mapped_bytes),
    ),
    gauge(
        "container_memory_max_usage_bytes",
        "The most bytes of memory so far.",
        |facts| one(facts.details.peak_bytes),
    ),
    gauge(
        "container_memory_rss",
        "Bytes of anonymous memory.",
        |facts| one(facts.usage.rss_bytes),
    ),
    gauge(
        "container_memory_swap",
        "Bytes that are swapped out.",
        |facts| one(facts.details.swap_bytes),
    ),
    gauge(
        "container_memory_usage_bytes",
        "Bytes of memory, whenever they were last used.",
        |facts| one(facts.usage.memory_bytes),
    ),
    gauge(
        "container_memory_working_set_bytes",
        "Bytes of memory without files that nobody has used for a while.",
        |facts| one(facts.usage.working_set_bytes),
    ),
    counter(
        "container_oom_events_total",
        "Processes that were killed for memory.",
        |facts| one(facts.details.oom_kills),
    ),
    counter(
        "container_pressure_cpu_stalled_seconds_total",
        "Seconds in which no process could go on for CPU.",
        |facts| one(facts.details.pressure[0].map(|(_, all)| all)),
    ),
    counter(
        "container_pressure_cpu_waiting_seconds_total",
        "Seconds in which a process waited for CPU.",
        |facts| one(facts.details.pressure[0].map(|(some, _)| some)),
    ),
    counter(
        "container_pressure_io_stalled_seconds_total",
        "Seconds in which no process could go on for its devices.",
        |facts| one(facts.details.pressure[2].map(|(_, all)| all)),
    ),
    counter(
        "container_pressure_io_waiting_seconds_total",
        "Seconds in which a process waited for its devices.",
        |facts| one(facts.details.pressure[2].map(|(some, _)| some)),
    ),
    counter(
        "container_pressure_memory_stalled_seconds_total",
        "Seconds in which no process could go on for memory.",
        |facts| one(facts.details.pressure[1].map(|(_, all)| all)),
    ),
    counter(
        "container_pressure_memory_waiting_seconds_total",
        "Seconds in which a process waited for memory.",
        |facts| one(facts.details.pressure[1].map(|(some, _)| some)),
    ),
    gauge(
        "container_processes",
        "Processes of the container.",
        |facts| one(facts.processes.count),
    ),
    gauge(
        "container_sockets",
        "Open sockets of the container's processes.",
        |facts| one(facts.processes.sockets),
    ),
    gauge(
        "container_spec_cpu_period",
        "The period of enforcement, in microseconds.",
        |facts| one(Some(facts.limits.cpu_period)),
    ),
    gauge(
        "container_spec_cpu_quota",
        "Microseconds of CPU in each period.",
        |facts| one(set(facts.limits.cpu_quota)),
    ),
    gauge("container_spec_cpu_shares", "Shares of CPU.", |facts| {
        one(Some(facts.limits.cpu_shares))
    }),
    gauge(
        "container_spec_memory_limit_bytes",
        "The limit of memory; 0 is none.",
        |facts| one(Some(facts.limits.memory)),
    ),
    gauge(
        "container_spec_memory_swap_limit_bytes",
        "The limit of memory and swap; 0 is none.",
        |facts| one(Some(facts.limits.memory_and_swap)),
    ),
    gauge(
        "container_start_time_seconds",
        "When the container started, in seconds since 1970.",
        |facts| one(Some(facts.started)),
    ),
    gauge("container_threads", "Threads of the container.", |facts| {
        one(facts.details.threads)
    }),
    gauge(
        "container_threads_max",
        "The limit of threads; 0 is none.",
        |facts| one(facts.details.max_threads),
    ),
    family(
        "container_ulimits_soft",
        "Soft limits of the container's first process.",
        MetricType::Gauge,
        &["ulimit"],
        open_files,
    ),
];

pub(super) const NETWORK: [NetworkFamily; 8] = [
    NetworkFamily {
        name: "container_network_receive_bytes_total",
        help: "Bytes received.",
        place: 0,
    },
    NetworkFamily {
        name: "container_network_receive_packets_total",
        help: "Packets received.",
        place: 1,
    },
    NetworkFamily {
        name: "container_network_receive_errors_total",
        help: "Errors while receiving.",
        place: 2,
    },
    NetworkFamily {
        name: "container_network_receive_packets_dropped_total",
        help: "Packets dropped while receiving.",
        place: 3,
    },
    NetworkFamily {
        name: "container_network_transmit_bytes_total",
        help: "Bytes sent.",
        place: 8,
    },
    NetworkFamily {
        name: "container_network_transmit_packets_total",
        help: "Packets sent.",
        place: 9,
    },
    NetworkFamily {
        name: "container_network_transmit_errors_total",
        help: "Errors while sending.",
        place: 10,
    },
    NetworkFamily {
        name: "container_network_transmit_packets_dropped_total",
        help: "Packets dropped while sending.",
        place: 11,
    },
];
