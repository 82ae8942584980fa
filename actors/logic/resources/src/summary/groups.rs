//! From figures of a cgroup to the types of the summary. Mirrors pkg/kubelet/stats/helper.go (1.36): figures that a
//! group lacks are zero, what it may use further is there where it is limited, and stalls are there always.

use jiff::Timestamp;

use super::{
    ContainerStats, CpuStats, InterfaceStats, IoStats, MemoryStats, NetworkStats, SwapStats,
};
use crate::group_stats::{GroupStats, InterfaceCounters, MAX_MEMORY_LIMIT};

/// The interface that counts as a pod's or node's own.
const DEFAULT_INTERFACE: &str = "eth0";

/// CPU usage; the rate is not set, as it needs two samples.
pub fn cpu(group: &GroupStats) -> CpuStats {
    let cpu = group.cpu.as_ref();
    CpuStats {
        time: group.at,
        usage_nano_cores: None,
        usage_core_nano_seconds: Some(cpu.map_or(0, |cpu| cpu.usage)),
        psi: cpu.map(|cpu| cpu.psi),
    }
}

/// Memory usage, and how much there is below the limit.
pub fn memory(group: &GroupStats) -> MemoryStats {
    let Some(memory) = &group.memory else {
        return MemoryStats {
            time: group.at,
            working_set_bytes: Some(0),
            ..MemoryStats::default()
        };
    };
    let used = memory.working_set();
    MemoryStats {
        time: group.at,
        available_bytes: below(memory.limit, used),
        usage_bytes: Some(memory.usage),
        working_set_bytes: Some(used),
        rss_bytes: Some(memory.rss),
        page_faults: Some(memory.page_faults),
        major_page_faults: Some(memory.major_page_faults),
        psi: Some(memory.psi),
    }
}

/// Swap usage; none of a group whose memory is not counted.
pub fn swap(group: &GroupStats) -> Option<SwapStats> {
    let memory = group.memory.as_ref()?;
    Some(SwapStats {
        time: group.at,
        swap_available_bytes: below(memory.swap_limit, memory.swap),
        swap_usage_bytes: Some(memory.swap),
    })
}

/// Stalls by input and output; none of a group whose devices are not counted.
pub fn io(group: &GroupStats) -> Option<IoStats> {
    let io = group.io.as_ref()?;
    Some(IoStats {
        time: group.at,
        psi: Some(io.psi),
    })
}

/// All interfaces, and the one that counts as the owner's own.
pub fn network(interfaces: &[InterfaceCounters], at: Option<Timestamp>) -> NetworkStats {
    let interfaces: Vec<InterfaceStats> = interfaces.iter().map(InterfaceStats::from).collect();
    let default = interfaces.iter().find(|one| one.name == DEFAULT_INTERFACE);
    NetworkStats {
        time: at,
        default: default.cloned().unwrap_or_default(),
        interfaces,
    }
}

/// A group of the system under its name in the summary.
pub fn system_container(
    name: &str,
    group: &GroupStats,
    started: Option<Timestamp>,
) -> ContainerStats {
    ContainerStats {
        name: name.to_owned(),
        start_time: started,
        cpu: Some(cpu(group)),
        memory: Some(memory(group)),
        io: io(group),
        swap: swap(group),
        ..ContainerStats::default()
    }
}

/// What is left below a limit; none where there is no limit.
fn below(limit: u64, used: u64) -> Option<u64> {
    (limit <= MAX_MEMORY_LIMIT).then(|| limit.saturating_sub(used))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group_stats::{GroupCpu, GroupIo, GroupMemory};
    use crate::summary::{PsiData, PsiStats};

    fn psi(total: u64) -> PsiStats {
        let data = |total| PsiData {
            total,
            avg10: 1.5,
            avg60: 2.5,
            avg300: 3.5,
        };
        PsiStats {
            some: data(total),
            full: data(total + 1),
        }
    }

    fn group() -> GroupStats {
        GroupStats {
            name: "/a".to_owned(),
            at: Timestamp::from_second(9).ok(),
            created: Timestamp::from_second(5).ok(),
            cpu: Some(GroupCpu {
                usage: 11,
                psi: psi(1),
                ..GroupCpu::default()
            }),
            memory: Some(GroupMemory {
                usage: 100,
                inactive_file: 30,
                rss: 40,
                swap: 7,
                page_faults: 3,
                major_page_faults: 1,
                limit: 1000,
                swap_limit: 10,
                psi: psi(2),
                ..GroupMemory::default()
            }),
            io: Some(GroupIo {
                psi: psi(3),
                ..GroupIo::default()
            }),
            ..GroupStats::default()
        }
    }

    /// Upstream's TestGetCgroupStats and TestGetCgroupCPUAndMemoryStats.
    #[test]
    fn a_groups_figures_become_those_of_a_container() {
        let group = group();
        let stats = system_container("pods", &group, group.created);
        assert_eq!(
            (stats.name.as_str(), stats.start_time),
            ("pods", group.created)
        );
        let cpu = stats.cpu.unwrap();
        assert_eq!(
            (cpu.time, cpu.usage_core_nano_seconds),
            (group.at, Some(11))
        );
        let memory = stats.memory.unwrap();
        assert_eq!(
            (memory.usage_bytes, memory.working_set_bytes),
            (Some(100), Some(70))
        );
        assert_eq!(
            (memory.available_bytes, memory.rss_bytes),
            (Some(930), Some(40))
        );
        assert_eq!(
            (memory.page_faults, memory.major_page_faults),
            (Some(3), Some(1))
        );
        let swap = stats.swap.unwrap();
        assert_eq!(
            (swap.swap_usage_bytes, swap.swap_available_bytes),
            (Some(7), Some(3))
        );
        assert!(stats.rootfs.is_none() && stats.logs.is_none());
    }

    /// Upstream's TestCadvisorPSIStructs.
    #[test]
    fn stalls_keep_every_figure() {
        let group = group();
        assert_eq!(cpu(&group).psi, Some(psi(1)));
        assert_eq!(memory(&group).psi, Some(psi(2)));
        assert_eq!(io(&group).unwrap().psi, Some(psi(3)));
    }

    #[test]
    fn what_is_not_limited_or_not_counted_has_no_rest() {
        let mut group = group();
        let limits = group.memory.as_mut().unwrap();
        (limits.limit, limits.swap_limit) = (u64::MAX, 0);
        assert_eq!(memory(&group).available_bytes, None);
        // More is used than allowed: nothing is left, as far as it goes.
        assert_eq!(swap(&group).unwrap().swap_available_bytes, Some(0));
        (group.cpu, group.memory, group.io) = (None, None, None);
        assert_eq!(cpu(&group).usage_core_nano_seconds, Some(0));
        assert_eq!(memory(&group).working_set_bytes, Some(0));
        assert!(swap(&group).is_none() && io(&group).is_none());
    }

    #[test]
    fn the_pods_own_interface_is_eth0_and_all_are_listed() {
        let interfaces = ["net1", "eth0"].map(|name| InterfaceCounters {
            name: name.to_owned(),
            ..InterfaceCounters::default()
        });
        let stats = network(&interfaces, None);
        assert_eq!(
            (stats.default.name.as_str(), stats.interfaces.len()),
            ("eth0", 2)
        );
        assert_eq!(
            network(&interfaces[..1], None).default,
            InterfaceStats::default()
        );
    }
}
