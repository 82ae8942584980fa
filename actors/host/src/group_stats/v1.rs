//! A group of cgroup version 1: one folder a controller.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use logic_resources::group_stats::{
    DeviceIo, GroupCpu, GroupDetail, GroupIo, GroupMemory, GroupStats, GroupTasks, IoOperation,
};

use super::GroupTarget;
use super::files::{FileReader, field};
use crate::units;

const SECOND: u64 = 1_000_000_000;

/// What counts operations, the scheduler's files before those of the throttle, which count always.
const IO_FILES: [[&str; 2]; 4] = [
    [
        "blkio.bfq.io_service_bytes_recursive",
        "blkio.bfq.io_serviced_recursive",
    ],
    [
        "blkio.io_service_bytes_recursive",
        "blkio.io_serviced_recursive",
    ],
    [
        "blkio.throttle.io_service_bytes_recursive",
        "blkio.throttle.io_serviced_recursive",
    ],
    [
        "blkio.throttle.io_service_bytes",
        "blkio.throttle.io_serviced",
    ],
];

pub(super) fn read(
    files: &mut FileReader,
    trees: &BTreeMap<String, PathBuf>,
    target: GroupTarget<'_>,
) -> GroupStats {
    let folder = |controller: &str| {
        let folder = trees.get(controller)?;
        let folder = folder.join(target.name.trim_start_matches('/'));
        folder.is_dir().then_some(folder)
    };
    let detail = target.detail;
    let (cpu_group, usage_group) = (folder("cpu"), folder("cpuacct"));
    let is_cpu = cpu_group.is_some() || usage_group.is_some();
    let io_group = folder("blkio").filter(|_| detail > GroupDetail::CpuAndMemory);
    GroupStats {
        cpu: is_cpu.then(|| {
            let mut stats = GroupCpu::default();
            if let Some(group) = &usage_group {
                usage(files, group, detail, &mut stats);
            }
            if let Some(group) = cpu_group.filter(|_| detail == GroupDetail::Everything) {
                schedule(files, &group, &mut stats);
            }
            stats
        }),
        memory: folder("memory").map(|group| memory(files, &group, detail)),
        io: io_group.map(|group| GroupIo {
            devices: match detail {
                GroupDetail::Everything => devices(files, &group),
                GroupDetail::CpuAndMemory | GroupDetail::Summary => Vec::new(),
            },
            ..GroupIo::default()
        }),
        tasks: match folder("pids") {
            Some(group) if detail == GroupDetail::Everything => tasks(files, &group),
            Some(_) | None => GroupTasks::default(),
        },
        ..GroupStats::default()
    }
}

fn usage(files: &mut FileReader, group: &Path, detail: GroupDetail, stats: &mut GroupCpu) {
    stats.usage = files.count(&group.join("cpuacct.usage"));
    if detail == GroupDetail::Everything {
        let text = files.text(&group.join("cpuacct.stat"));
        let tick = SECOND / units::clock_ticks().max(1);
        let time = |name: &str| field(text, name).unwrap_or(0).saturating_mul(tick);
        (stats.user, stats.system) = (time("user"), time("system"));
    }
}

fn schedule(files: &mut FileReader, group: &Path, stats: &mut GroupCpu) {
    let text = files.text(&group.join("cpu.stat"));
    let count = |name: &str| field(text, name).unwrap_or(0);
    stats.periods = count("nr_periods");
    stats.throttled_periods = count("nr_throttled");
    stats.throttled = count("throttled_time");
    stats.bursts = count("nr_bursts");
    stats.burst = count("burst_time");
    stats.shares = files.count(&group.join("cpu.shares"));
    stats.period = files.count(&group.join("cpu.cfs_period_us"));
    // No limit is -1.
    stats.quota = files.count(&group.join("cpu.cfs_quota_us"));
}

fn memory(files: &mut FileReader, group: &Path, detail: GroupDetail) -> GroupMemory {
    let text = files.text(&group.join("memory.stat"));
    let count = |name: &str| field(text, name).unwrap_or(0);
    // With the groups below it, as far as the kernel counts them.
    let all = |total: &str, own: &str| field(text, total).unwrap_or_else(|| count(own));
    let mut stats = GroupMemory {
        cache: all("total_cache", "cache"),
        rss: all("total_rss", "rss"),
        swap: all("total_swap", "swap"),
        mapped_file: all("total_mapped_file", "mapped_file"),
        active_file: count("total_active_file"),
        inactive_file: count("total_inactive_file"),
        page_faults: count("pgfault"),
        major_page_faults: count("pgmajfault"),
        ..GroupMemory::default()
    };
    stats.usage = files.count(&group.join("memory.usage_in_bytes"));
    stats.limit = files.limit(&group.join("memory.limit_in_bytes"));
    stats.swap_limit = files.count(&group.join("memory.memsw.limit_in_bytes"));
    if detail == GroupDetail::Everything {
        stats.max_usage = files.count(&group.join("memory.max_usage_in_bytes"));
        stats.failures = files.count(&group.join("memory.failcnt"));
        stats.kernel = files.count(&group.join("memory.kmem.usage_in_bytes"));
        stats.reservation = files.count(&group.join("memory.soft_limit_in_bytes"));
        let text = files.text(&group.join("memory.oom_control"));
        stats.oom_kills = field(text, "oom_kill").unwrap_or(0);
    }
    stats
}

fn devices(files: &mut FileReader, group: &Path) -> Vec<DeviceIo> {
    for [bytes, operations] in IO_FILES {
        let mut devices = BTreeMap::new();
        add(files.text(&group.join(bytes)), &mut devices, |device| {
            &mut device.bytes
        });
        if !devices.is_empty() {
            add(
                files.text(&group.join(operations)),
                &mut devices,
                |device| &mut device.operations,
            );
            return devices.into_values().collect();
        }
    }
    Vec::new()
}

/// Adds lines such as `8:0 Read 4096`.
fn add(
    text: &str,
    devices: &mut BTreeMap<(u32, u32), DeviceIo>,
    table: impl Fn(&mut DeviceIo) -> &mut Vec<(IoOperation, u64)>,
) {
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let number = words.next().and_then(device_number);
        let operation = words.next().and_then(IoOperation::parse);
        let value = words.next().and_then(|word| word.parse().ok());
        if let (Some((major, minor)), Some(operation), Some(value)) = (number, operation, value) {
            let device = devices.entry((major, minor)).or_insert_with(|| DeviceIo {
                major,
                minor,
                ..DeviceIo::default()
            });
            table(device).push((operation, value));
        }
    }
}

/// A device's number, such as `8:0`.
pub(super) fn device_number(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

fn tasks(files: &mut FileReader, group: &Path) -> GroupTasks {
    GroupTasks {
        threads: files.count(&group.join("pids.current")),
        max_threads: match files.count(&group.join("pids.max")) {
            u64::MAX => 0,
            limit => limit,
        },
        ..GroupTasks::default()
    }
}
