//! Disks.

use host::block_devices::MountedFileSystem;
use logic_resources::group_stats::{DeviceIo, IoOperation};
use metrics::exposition::MetricKind::{Counter, Gauge};

use super::{Family, GroupRow, Sink, family, seconds};

fn file_systems(row: GroupRow<'_>, to: Sink<'_>, value: fn(&MountedFileSystem) -> f64) {
    for one in row.file_systems {
        to(&[("device", &one.device)], value(one));
    }
}

/// A figure of the devices' tables of bytes or operations.
fn devices(
    row: GroupRow<'_>,
    to: Sink<'_>,
    operation: IoOperation,
    table: fn(&DeviceIo) -> &[(IoOperation, u64)],
) {
    for device in row.group.io.iter().flat_map(|io| &io.devices) {
        let name = row.devices.name((device.major, device.minor));
        let value = table(device).iter().find(|(one, _)| *one == operation);
        to(
            &[("device", name)],
            value.map_or(0, |(_, value)| *value) as f64,
        );
    }
}

fn block_io(row: GroupRow<'_>, to: Sink<'_>) {
    for device in row.group.io.iter().flat_map(|io| &io.devices) {
        let name = row.devices.name((device.major, device.minor));
        let (major, minor) = (device.major.to_string(), device.minor.to_string());
        for (operation, value) in &device.bytes {
            let labels = [
                ("device", name),
                ("major", &major),
                ("minor", &minor),
                ("operation", operation.as_str()),
            ];
            to(&labels, *value as f64);
        }
    }
}

/// A sample of the file systems whose device has none from the kernel's counters of the group: a series stands once.
fn only_file_systems(row: GroupRow<'_>, to: Sink<'_>, value: fn(&MountedFileSystem) -> f64) {
    let counted = row.group.io.iter().flat_map(|io| &io.devices);
    let counted: Vec<&str> = counted
        .map(|device| row.devices.name((device.major, device.minor)))
        .collect();
    for one in row.file_systems {
        if !counted.contains(&one.device.as_str()) {
            to(&[("device", &one.device)], value(one));
        }
    }
}

/// Disks: of each group what the kernel counts by device, of the machine its file systems and their devices.
pub(in crate::stats::cadvisor) static DISK: &[Family] = &[
    family(
        Gauge,
        ("container_fs_inodes_free", "Number of available Inodes"),
        |row, to| file_systems(row, to, |one| one.inodes_free as f64),
    ),
    family(
        Gauge,
        ("container_fs_inodes_total", "Number of Inodes"),
        |row, to| file_systems(row, to, |one| one.inodes as f64),
    ),
    family(
        Gauge,
        (
            "container_fs_limit_bytes",
            "Number of bytes that can be consumed by the container on this filesystem.",
        ),
        |row, to| file_systems(row, to, |one| one.capacity as f64),
    ),
    family(
        Gauge,
        (
            "container_fs_usage_bytes",
            "Number of bytes that are consumed by the container on this filesystem.",
        ),
        |row, to| file_systems(row, to, |one| one.capacity.saturating_sub(one.free) as f64),
    ),
    family(
        Counter,
        (
            "container_fs_reads_bytes_total",
            "Cumulative count of bytes read",
        ),
        |row, to| devices(row, to, IoOperation::Read, |device| &device.bytes),
    ),
    family(
        Counter,
        (
            "container_fs_reads_total",
            "Cumulative count of reads completed",
        ),
        |row, to| {
            devices(row, to, IoOperation::Read, |device| &device.operations);
            only_file_systems(row, to, |one| one.counters.reads as f64);
        },
    ),
    family(
        Counter,
        (
            "container_fs_sector_reads_total",
            "Cumulative count of sector reads completed",
        ),
        |row, to| file_systems(row, to, |one| one.counters.sectors_read as f64),
    ),
    family(
        Counter,
        (
            "container_fs_reads_merged_total",
            "Cumulative count of reads merged",
        ),
        |row, to| file_systems(row, to, |one| one.counters.reads_merged as f64),
    ),
    family(
        Counter,
        (
            "container_fs_read_seconds_total",
            "Cumulative count of seconds spent reading",
        ),
        |row, to| file_systems(row, to, |one| seconds(one.counters.read_time)),
    ),
    family(
        Counter,
        (
            "container_fs_writes_bytes_total",
            "Cumulative count of bytes written",
        ),
        |row, to| devices(row, to, IoOperation::Write, |device| &device.bytes),
    ),
    family(
        Counter,
        (
            "container_fs_writes_total",
            "Cumulative count of writes completed",
        ),
        |row, to| {
            devices(row, to, IoOperation::Write, |device| &device.operations);
            only_file_systems(row, to, |one| one.counters.writes as f64);
        },
    ),
    family(
        Counter,
        (
            "container_fs_sector_writes_total",
            "Cumulative count of sector writes completed",
        ),
        |row, to| file_systems(row, to, |one| one.counters.sectors_written as f64),
    ),
    family(
        Counter,
        (
            "container_fs_writes_merged_total",
            "Cumulative count of writes merged",
        ),
        |row, to| file_systems(row, to, |one| one.counters.writes_merged as f64),
    ),
    family(
        Counter,
        (
            "container_fs_write_seconds_total",
            "Cumulative count of seconds spent writing",
        ),
        |row, to| file_systems(row, to, |one| seconds(one.counters.write_time)),
    ),
    family(
        Gauge,
        (
            "container_fs_io_current",
            "Number of I/Os currently in progress",
        ),
        |row, to| file_systems(row, to, |one| one.counters.in_progress as f64),
    ),
    family(
        Counter,
        (
            "container_fs_io_time_seconds_total",
            "Cumulative count of seconds spent doing I/Os",
        ),
        |row, to| file_systems(row, to, |one| seconds(one.counters.io_time)),
    ),
    family(
        Counter,
        (
            "container_fs_io_time_weighted_seconds_total",
            "Cumulative weighted I/O time in seconds",
        ),
        |row, to| file_systems(row, to, |one| seconds(one.counters.weighted_time)),
    ),
    family(
        Counter,
        (
            "container_blkio_device_usage_total",
            "Blkio Device bytes usage",
        ),
        block_io,
    ),
];
