//! Limits as properties of systemd's slices, which have its own names and units.
//!
//! Follows what runc writes (opencontainers/cgroups, systemd/{common,v1,v2}.go), since runc makes the scopes below these
//! slices. What systemd has no property for is written to the group's files alone.

use serde::Serialize;

use super::files::cpu_weight;
use super::{CgroupLimits, CgroupName, CpuQuota, Hierarchy};

/// systemd's word for no limit.
const INFINITY: u64 = u64::MAX;
/// Versions since which systemd has the property.
const QUOTA_PERIOD_SINCE: u32 = 242;
const CPUS_SINCE: u32 = 244;

/// A value of a property, by its D-Bus type.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum PropertyValue {
    /// `b`
    Flag(bool),
    /// `t`
    Number(u64),
    /// `s`
    Text(String),
    /// `as`
    Names(Vec<String>),
    /// `ay`
    Bits(Vec<u8>),
}

/// Properties of a slice, in the order in which they are sent.
pub type SliceProperties = Vec<(&'static str, PropertyValue)>;

/// The unit's name: the last part of the group's path.
pub fn slice_name(name: &CgroupName) -> String {
    let path = name.path(super::CgroupDriver::Systemd);
    match path.rsplit('/').next() {
        Some(last) if !last.is_empty() => last.to_owned(),
        _ => "-.slice".to_owned(),
    }
}

/// The properties that a slice is made with.
pub fn made_with(name: &CgroupName, hierarchy: &Hierarchy) -> SliceProperties {
    let unit = slice_name(name);
    let parent = name
        .parent()
        .map_or_else(|| "-.slice".to_owned(), |parent| slice_name(&parent));
    let io = match hierarchy {
        Hierarchy::V1(_) => "BlockIOAccounting",
        Hierarchy::V2(_) => "IOAccounting",
    };
    vec![
        (
            "Description",
            PropertyValue::Text(format!("libcontainer container {unit}")),
        ),
        ("Wants", PropertyValue::Names(vec![parent])),
        ("MemoryAccounting", PropertyValue::Flag(true)),
        ("CPUAccounting", PropertyValue::Flag(true)),
        (io, PropertyValue::Flag(true)),
        ("TasksAccounting", PropertyValue::Flag(true)),
        ("DefaultDependencies", PropertyValue::Flag(false)),
    ]
}

/// The limits as properties, by systemd's own version.
pub fn slice_properties(
    limits: &CgroupLimits,
    hierarchy: &Hierarchy,
    systemd: u32,
) -> SliceProperties {
    let mut list = Vec::new();
    let mut number = |name, value| list.push((name, PropertyValue::Number(value)));
    let memory = limits.memory.and_then(|memory| u64::try_from(memory).ok());
    let memory = memory.filter(|memory| *memory != 0);
    let shares = limits
        .cpu_shares
        .and_then(|shares| u64::try_from(shares).ok());
    match hierarchy {
        Hierarchy::V1(_) => {
            memory
                .into_iter()
                .for_each(|bytes| number("MemoryLimit", bytes));
            shares
                .into_iter()
                .for_each(|shares| number("CPUShares", shares));
        }
        Hierarchy::V2(_) => {
            memory
                .into_iter()
                .for_each(|bytes| number("MemoryMax", bytes));
            let weight = limits.cpu_shares.map(cpu_weight);
            let weight = weight.and_then(|weight| u64::try_from(weight).ok());
            weight
                .into_iter()
                .for_each(|weight| number("CPUWeight", weight));
        }
    }
    if let Some(cpu) = limits.cpu {
        let period = u64::try_from(cpu.period).unwrap_or(0);
        if period != 0 && systemd >= QUOTA_PERIOD_SINCE {
            number("CPUQuotaPeriodUSec", period);
        }
        if period != 0 || cpu.quota != 0 {
            number("CPUQuotaPerSecUSec", quota_per_second(cpu));
        }
    }
    if let Some(pids) = limits.pids {
        number("TasksMax", tasks_max(pids));
    }
    if let Hierarchy::V2(_) = hierarchy {
        for (file, value) in &limits.unified {
            if let (Some(name), Some(value)) = (property_of(file), amount(value)) {
                number(name, value);
            }
        }
    }
    let cpus = limits.cpus.as_deref().filter(|_| systemd >= CPUS_SINCE);
    if let Some(bits) = cpus.and_then(bits) {
        list.push(("AllowedCPUs", PropertyValue::Bits(bits)));
    }
    list
}

/// The limits as they are written to the files beside systemd's properties: with the quota that systemd rounds to.
pub fn rounded(limits: &CgroupLimits) -> CgroupLimits {
    let mut limits = limits.clone();
    if let Some(cpu) = limits
        .cpu
        .as_mut()
        .filter(|cpu| cpu.quota > 0 && cpu.period > 0)
    {
        let per_second = i128::from(quota_per_second(*cpu));
        let quota = per_second * i128::from(cpu.period) / 1_000_000;
        cpu.quota = i64::try_from(quota).unwrap_or(i64::MAX);
    }
    limits
}

/// Microseconds of CPU a second, in whole percents of a CPU, rounded up.
fn quota_per_second(cpu: CpuQuota) -> u64 {
    const PERCENT: i128 = 10_000;
    const DEFAULT_PERIOD: i64 = 100_000;
    if cpu.quota <= 0 {
        return INFINITY;
    }
    let period = if cpu.period == 0 {
        DEFAULT_PERIOD
    } else {
        cpu.period
    };
    let exact = i128::from(cpu.quota) * 1_000_000 / i128::from(period);
    let rounded = (exact + PERCENT - 1) / PERCENT * PERCENT;
    u64::try_from(rounded).unwrap_or(INFINITY)
}

/// systemd takes no 0.
fn tasks_max(pids: i64) -> u64 {
    match pids {
        ..0 => INFINITY,
        0 => 1,
        pids => u64::try_from(pids).unwrap_or(INFINITY),
    }
}

fn property_of(file: &str) -> Option<&'static str> {
    Some(match file {
        "memory.high" => "MemoryHigh",
        "memory.low" => "MemoryLow",
        "memory.min" => "MemoryMin",
        "memory.max" => "MemoryMax",
        "memory.swap.max" => "MemorySwapMax",
        _ => return None,
    })
}

fn amount(text: &str) -> Option<u64> {
    match text {
        "max" => Some(INFINITY),
        number => number.parse().ok(),
    }
}

/// A list of CPUs as a mask, the lowest byte first; none for a list that makes no sense.
fn bits(cpus: &str) -> Option<Vec<u8>> {
    /// Beyond what any kernel has.
    const MAX_CPU: usize = 1 << 16;
    let mut mask = Vec::new();
    for range in cpus.split(',').filter(|range| !range.trim().is_empty()) {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (usize, usize) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        if first > last || last > MAX_CPU {
            return None;
        }
        for cpu in first..=last {
            if mask.len() <= cpu / 8 {
                mask.resize(cpu / 8 + 1, 0);
            }
            mask[cpu / 8] |= 1 << (cpu % 8);
        }
    }
    (!mask.is_empty()).then_some(mask)
}
