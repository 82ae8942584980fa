//! A group of cgroup version 2: one folder for all controllers.

use std::path::Path;

use logic_resources::group_stats::{
    DeviceIo, GroupCpu, GroupDetail, GroupIo, GroupMemory, GroupStats, GroupTasks, IoOperation,
};

use super::files::{FileReader, Folder, field, number};
use super::v1::{device_number, tasks};
use super::{GroupRole, GroupTarget, pressure};
use crate::meminfo::MemInfo;

/// Nanoseconds in the kernel's microsecond.
const MICROSECOND: u64 = 1000;

pub(super) fn read(
    files: &mut FileReader,
    proc: &Path,
    group: &Folder,
    target: GroupTarget<'_>,
) -> GroupStats {
    let detail = target.detail;
    let (mut cpu, mut memory) = match target.usage {
        Some(known) => (known.cpu.clone(), known.memory.clone()),
        None => (
            cpu(files, group),
            use_of_memory(files, proc, group, target.role),
        ),
    };
    if detail == GroupDetail::Everything {
        if let Some(cpu) = &mut cpu {
            limits(files, group, cpu, target.descriptors);
        }
        if let Some(memory) = &mut memory {
            history_of_memory(files, group, memory, target.descriptors);
        }
    }
    GroupStats {
        cpu,
        memory,
        io: (detail > GroupDetail::CpuAndMemory).then(|| io(files, group, detail)),
        tasks: match detail {
            GroupDetail::Everything => tasks(files, group, target.descriptors),
            GroupDetail::CpuAndMemory | GroupDetail::Summary => GroupTasks::default(),
        },
        ..GroupStats::default()
    }
}

fn cpu(files: &mut FileReader, group: &Folder) -> Option<GroupCpu> {
    let text = files.text(group, "cpu.stat");
    let count = |name: &str| field(text, name).unwrap_or(0);
    let time = |name: &str| count(name).saturating_mul(MICROSECOND);
    let mut stats = GroupCpu {
        usage: field(text, "usage_usec")?.saturating_mul(MICROSECOND),
        user: time("user_usec"),
        system: time("system_usec"),
        periods: count("nr_periods"),
        throttled_periods: count("nr_throttled"),
        throttled: time("throttled_usec"),
        bursts: count("nr_bursts"),
        burst: time("burst_usec"),
        ..GroupCpu::default()
    };
    stats.psi = pressure(files.text(group, "cpu.pressure"));
    Some(stats)
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
    let weight = files.count(group, "cpu.weight");
    stats.shares = match weight {
        1..=10_000 => 2 + (weight - 1) * 262_142 / 9999,
        _ => 0,
    };
    let text = files.text(group, "cpu.max");
    let (quota, period) = text.trim().split_once(' ').unwrap_or_default();
    stats.quota = quota.parse().unwrap_or(0);
    stats.period = number(period).unwrap_or(0);
}

fn use_of_memory(
    files: &mut FileReader,
    proc: &Path,
    group: &Folder,
    role: GroupRole,
) -> Option<GroupMemory> {
    let text = files.text(group, "memory.stat");
    if text.is_empty() {
        return None;
    }
    let count = |name: &str| field(text, name).unwrap_or(0);
    let mut stats = GroupMemory {
        cache: count("file"),
        rss: count("anon"),
        mapped_file: count("file_mapped"),
        active_file: count("active_file"),
        inactive_file: count("inactive_file"),
        page_faults: count("pgfault"),
        major_page_faults: count("pgmajfault"),
        ..GroupMemory::default()
    };
    match role {
        // The root has no such files.
        GroupRole::Machine => {
            stats.usage = stats.rss.saturating_add(stats.cache);
            stats.swap = swap_used(proc);
            (stats.limit, stats.swap_limit) = (u64::MAX, u64::MAX);
        }
        GroupRole::Sandbox | GroupRole::Container | GroupRole::Other => {
            stats.usage = files.number(group, "memory.current")?;
            stats.limit = files.limit(group, "memory.max");
            stats.swap = files.count(group, "memory.swap.current");
            stats.swap_limit = files.count(group, "memory.swap.max");
        }
    }
    stats.psi = pressure(files.text(group, "memory.pressure"));
    Some(stats)
}

fn history_of_memory(
    files: &mut FileReader,
    group: &Folder,
    stats: &mut GroupMemory,
    earlier: Option<&GroupStats>,
) {
    stats.max_usage = files.count(group, "memory.peak");
    stats.reservation = match earlier.and_then(|earlier| earlier.memory.as_ref()) {
        Some(earlier) => earlier.reservation,
        None => files.count(group, "memory.min"),
    };
    let own = field(files.text(group, "memory.events.local"), "oom_kill");
    stats.oom_kills = own.unwrap_or(0);
}

fn swap_used(proc: &Path) -> u64 {
    let memory = MemInfo::read(proc).unwrap_or_default();
    let amount = |name: &str| memory.get(name).unwrap_or(0);
    amount("SwapTotal").saturating_sub(amount("SwapFree"))
}

fn io(files: &mut FileReader, group: &Folder, detail: GroupDetail) -> GroupIo {
    let psi = pressure(files.text(group, "io.pressure"));
    let devices = match detail {
        GroupDetail::Everything => files
            .text(group, "io.stat")
            .lines()
            .filter_map(device)
            .collect(),
        GroupDetail::CpuAndMemory | GroupDetail::Summary => Vec::new(),
    };
    GroupIo { devices, psi }
}

/// A line such as `8:0 rbytes=1 wbytes=2 rios=3 wios=4`; none of a device without figures.
fn device(line: &str) -> Option<DeviceIo> {
    let mut words = line.split_whitespace();
    let (major, minor) = device_number(words.next()?)?;
    let mut device = DeviceIo {
        major,
        minor,
        ..DeviceIo::default()
    };
    for (key, value) in words.filter_map(|word| word.split_once('=')) {
        let Ok(value) = value.parse::<u64>() else {
            continue;
        };
        match key {
            "rbytes" => device.bytes.push((IoOperation::Read, value)),
            "wbytes" => device.bytes.push((IoOperation::Write, value)),
            "rios" => device.operations.push((IoOperation::Read, value)),
            "wios" => device.operations.push((IoOperation::Write, value)),
            _ => {}
        }
    }
    (!device.bytes.is_empty() || !device.operations.is_empty()).then_some(device)
}
