//! A group of cgroup version 1: one folder a controller.

use std::collections::BTreeMap;

use logic_resources::group_stats::{
    DeviceIo, GroupCpu, GroupDetail, GroupIo, GroupMemory, GroupStats, GroupTasks, IoOperation,
};

use super::GroupTarget;
use super::files::{FileReader, Folder, field};
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

/// The files of operations that this kernel has, by the top of the tree.
pub(super) fn io_files(top: &Folder) -> Vec<[&'static str; 2]> {
    let mut files = IO_FILES.to_vec();
    files.retain(|[bytes, _]| top.modified(bytes).is_some());
    let [.., with_those_below, own] = IO_FILES;
    // What a group has done itself is in what it has done with those below it.
    if files.contains(&with_those_below) {
        files.retain(|pair| *pair != own);
    }
    files
}

/// The folders of a group that its detail needs.
pub(super) struct Folders<'a> {
    pub(super) cpu: Option<&'a Folder>,
    pub(super) usage: Option<Folder>,
    pub(super) memory: Option<&'a Folder>,
    pub(super) io: Option<Folder>,
    /// What its operations are read from, the first that has some.
    pub(super) io_files: &'a [[&'static str; 2]],
    pub(super) tasks: Option<Folder>,
}

/// Reads the group, but for what the target has already.
pub(super) fn read(
    files: &mut FileReader,
    folders: &Folders<'_>,
    target: GroupTarget<'_>,
) -> GroupStats {
    let (detail, known) = (target.detail, target.usage);
    let (mut cpu, mut memory) = match known {
        Some(known) => (known.cpu.clone(), known.memory.clone()),
        None => (
            (folders.cpu.is_some() || folders.usage.is_some()).then(GroupCpu::default),
            folders.memory.map(|group| use_of_memory(files, group)),
        ),
    };
    if let (Some(cpu), Some(group)) = (&mut cpu, &folders.usage) {
        if known.is_none() {
            cpu.usage = files.count(group, "cpuacct.usage");
        }
        if detail == GroupDetail::Everything {
            times(files, group, cpu);
        }
    }
    if detail == GroupDetail::Everything {
        if let (Some(cpu), Some(group)) = (&mut cpu, folders.cpu) {
            schedule(files, group, cpu);
            limits(files, group, cpu, target.descriptors);
        }
        if let (Some(memory), Some(group)) = (&mut memory, folders.memory) {
            history_of_memory(files, group, memory, target.descriptors);
        }
    }
    GroupStats {
        cpu,
        memory,
        io: folders.io.as_ref().map(|group| GroupIo {
            devices: match detail {
                GroupDetail::Everything => devices(files, group, folders.io_files),
                GroupDetail::CpuAndMemory | GroupDetail::Summary => Vec::new(),
            },
            ..GroupIo::default()
        }),
        tasks: match &folders.tasks {
            Some(group) => tasks(files, group, target.descriptors),
            None => GroupTasks::default(),
        },
        ..GroupStats::default()
    }
}

fn times(files: &mut FileReader, group: &Folder, stats: &mut GroupCpu) {
    let text = files.text(group, "cpuacct.stat");
    let tick = SECOND / units::clock_ticks().max(1);
    let time = |name: &str| field(text, name).unwrap_or(0).saturating_mul(tick);
    (stats.user, stats.system) = (time("user"), time("system"));
}

fn schedule(files: &mut FileReader, group: &Folder, stats: &mut GroupCpu) {
    let text = files.text(group, "cpu.stat");
    let count = |name: &str| field(text, name).unwrap_or(0);
    stats.periods = count("nr_periods");
    stats.throttled_periods = count("nr_throttled");
    stats.throttled = count("throttled_time");
    stats.bursts = count("nr_bursts");
    stats.burst = count("burst_time");
}

/// What a group may use; the limits of an earlier pass are not read again.
fn limits(
    files: &mut FileReader,
    group: &Folder,
    stats: &mut GroupCpu,
    earlier: Option<&GroupStats>,
) {
    if let Some(earlier) = earlier.and_then(|earlier| earlier.cpu.as_ref()) {
        stats.take_limits(earlier);
        return;
    }
    stats.shares = files.count(group, "cpu.shares");
    stats.period = files.count(group, "cpu.cfs_period_us");
    // No limit is -1.
    stats.quota = files.count(group, "cpu.cfs_quota_us");
}

fn use_of_memory(files: &mut FileReader, group: &Folder) -> GroupMemory {
    let text = files.text(group, "memory.stat");
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
    stats.usage = files.count(group, "memory.usage_in_bytes");
    stats.limit = files.limit(group, "memory.limit_in_bytes");
    stats.swap_limit = files.count(group, "memory.memsw.limit_in_bytes");
    stats
}

fn history_of_memory(
    files: &mut FileReader,
    group: &Folder,
    stats: &mut GroupMemory,
    earlier: Option<&GroupStats>,
) {
    stats.max_usage = files.count(group, "memory.max_usage_in_bytes");
    stats.failures = files.count(group, "memory.failcnt");
    stats.kernel = files.count(group, "memory.kmem.usage_in_bytes");
    stats.reservation = match earlier.and_then(|earlier| earlier.memory.as_ref()) {
        Some(earlier) => earlier.reservation,
        None => files.count(group, "memory.soft_limit_in_bytes"),
    };
    let text = files.text(group, "memory.oom_control");
    stats.oom_kills = field(text, "oom_kill").unwrap_or(0);
}

fn devices(files: &mut FileReader, group: &Folder, names: &[[&str; 2]]) -> Vec<DeviceIo> {
    for [bytes, operations] in names {
        let mut devices = BTreeMap::new();
        add(files.text(group, bytes), &mut devices, |device| {
            &mut device.bytes
        });
        if !devices.is_empty() {
            add(files.text(group, operations), &mut devices, |device| {
                &mut device.operations
            });
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

/// Threads, and how many there may be; the limit is not read again.
pub(super) fn tasks(
    files: &mut FileReader,
    group: &Folder,
    earlier: Option<&GroupStats>,
) -> GroupTasks {
    let limit = |files: &mut FileReader| match files.count(group, "pids.max") {
        u64::MAX => 0,
        limit => limit,
    };
    GroupTasks {
        threads: files.count(group, "pids.current"),
        max_threads: earlier.map_or_else(|| limit(files), |earlier| earlier.tasks.max_threads),
        ..GroupTasks::default()
    }
}
