//! The node's own part of a summary, read from `/proc` and the root of its cgroups.

use std::fs;
use std::path::PathBuf;
use std::time::SystemTime;

use jiff::Timestamp;
use logic_resources::cgroups::{CgroupDriver, CgroupName, CgroupPolicy, Hierarchy};
use logic_resources::summary::{
    ContainerStats, CpuStats, InterfaceStats, MemoryStats, NetworkStats, ProcessLimit,
    SummaryScope, SwapStats,
};

use crate::cgroup_stats::{self as groups, CgroupStats};
use crate::meminfo::MemInfo;
use crate::{cgroups, units};

/// The interface that counts as the node's own, as cAdvisor has it.
const DEFAULT_INTERFACE: &str = "eth0";
/// Prefixes of pods' interfaces, and the loopback interface.
const IGNORED_INTERFACES: [&str; 4] = ["lo", "veth", "docker", "nerdctl"];

/// The system containers of the summary, by cgroup; an empty name is detected, or not shown.
#[derive(Debug, Clone, Default)]
pub struct SystemGroups {
    /// `kubeletCgroups`; else the group that this process is in.
    pub kubelet: String,
    /// `--runtime-cgroups`
    pub runtime: String,
    /// `systemCgroups`
    pub system: String,
}

/// Reads the machine's statistics.
#[derive(Debug)]
pub struct MachineStats {
    pub proc: PathBuf,
    pub hierarchy: Option<Hierarchy>,
    /// The system containers: the name in the summary, and the cgroup.
    pub shown: Vec<(&'static str, String)>,
    /// The cgroup above the pods'; none where the runtime manages them.
    pub pods: Option<CgroupName>,
}

/// Usage of the node; what the machine does not report is none.
#[derive(Debug, Default)]
pub struct NodeFigures {
    /// When the machine booted.
    pub started: Option<Timestamp>,
    pub cpu: Option<CpuStats>,
    pub memory: Option<MemoryStats>,
    pub swap: Option<SwapStats>,
    pub network: Option<NetworkStats>,
    pub rlimit: Option<ProcessLimit>,
    pub system: Vec<ContainerStats>,
}

impl MachineStats {
    /// Statistics of this machine; the mounts are read once, at the start.
    pub fn here(groups: &SystemGroups, policy: Option<&CgroupPolicy>) -> MachineStats {
        let proc = PathBuf::from("/proc");
        let kubelet = match groups.kubelet.is_empty() {
            true => cgroups::own_group(&proc),
            false => groups.kubelet.clone(),
        };
        let shown = [
            (groups::KUBELET, kubelet),
            (groups::RUNTIME, groups.runtime.clone()),
            (groups::MISC, groups.system.clone()),
        ];
        let named = |(_, name): &(&str, String)| !name.trim_matches('/').is_empty();
        MachineStats {
            hierarchy: cgroups::hierarchy(&proc),
            proc,
            shown: shown.into_iter().filter(named).collect(),
            pods: policy.map(|policy| CgroupName::parse(&policy.root).child("kubepods")),
        }
    }

    /// Usage of the node and its system containers now; `driver` has made the pods' cgroups.
    pub fn read(&self, scope: SummaryScope, at: SystemTime, driver: CgroupDriver) -> NodeFigures {
        let at = Timestamp::try_from(at).ok();
        let meminfo = MemInfo::read(&self.proc).unwrap_or_default();
        let root = self.group("");
        let stat = self.text("stat");
        let mut figures = NodeFigures {
            started: started(&stat),
            cpu: cpu(root.cpu_nanoseconds.or_else(|| busy(&stat)), at),
            memory: self.memory(root.memory, &meminfo, at),
            swap: swap(&meminfo, at),
            system: self.system(at, driver),
            ..NodeFigures::default()
        };
        if scope == SummaryScope::Everything {
            figures.network = Some(network(&self.text("net/dev"), at));
            figures.rlimit = Some(self.limit(at));
        }
        figures
    }

    fn text(&self, file: &str) -> String {
        fs::read_to_string(self.proc.join(file)).unwrap_or_default()
    }

    fn group(&self, name: &str) -> CgroupStats {
        let hierarchy = self.hierarchy.as_ref();
        hierarchy.map_or_else(CgroupStats::default, |hierarchy| {
            CgroupStats::read(hierarchy, name)
        })
    }

    /// The machine's memory: its working set from the root cgroup, or from `/proc/meminfo`.
    fn memory(
        &self,
        root: Option<MemoryStats>,
        meminfo: &MemInfo,
        at: Option<Timestamp>,
    ) -> Option<MemoryStats> {
        let (total, free) = (meminfo.get("MemTotal")?, meminfo.get("MemFree")?);
        let mut memory = root.unwrap_or_default();
        if memory.usage_bytes.is_none() {
            let usage = total.saturating_sub(free);
            let inactive = self.hierarchy.as_ref().and_then(groups::inactive_files);
            let inactive = inactive.or_else(|| meminfo.get("Inactive(file)"));
            memory.usage_bytes = Some(usage);
            memory.working_set_bytes = Some(usage.saturating_sub(inactive.unwrap_or(0)));
        }
        let used = memory.working_set_bytes.unwrap_or(0);
        memory.available_bytes = Some(total.saturating_sub(used));
        memory.time = at;
        Some(memory)
    }

    fn system(&self, at: Option<Timestamp>, driver: CgroupDriver) -> Vec<ContainerStats> {
        let pods = self.pods.as_ref().map(|pods| pods.path(driver));
        let pods = pods.as_deref().map(|group| (groups::PODS, group));
        let shown = self
            .shown
            .iter()
            .map(|(name, group)| (*name, group.as_str()));
        let stats = shown.chain(pods).filter_map(|(name, group)| {
            let CgroupStats {
                cpu_nanoseconds,
                memory,
                made,
            } = self.group(group);
            let memory = memory.map(|memory| MemoryStats { time: at, ..memory });
            (cpu_nanoseconds.is_some() || memory.is_some()).then(|| ContainerStats {
                name: name.to_owned(),
                start_time: made.and_then(|made| Timestamp::try_from(made).ok()),
                cpu: cpu(cpu_nanoseconds, at),
                memory,
                ..ContainerStats::default()
            })
        });
        stats.collect()
    }

    fn limit(&self, at: Option<Timestamp>) -> ProcessLimit {
        let limits = ["sys/kernel/pid_max", "sys/kernel/threads-max"];
        let limits = limits.map(|file| self.text(file).trim().parse::<u64>().ok());
        let load = self.text("loadavg");
        let tasks = load
            .split(' ')
            .nth(3)
            .and_then(|tasks| tasks.split_once('/'));
        ProcessLimit {
            time: at,
            maxpid: limits.into_iter().flatten().min(),
            curproc: tasks.and_then(|(_, all)| all.parse().ok()),
        }
    }
}

fn cpu(nanoseconds: Option<u64>, at: Option<Timestamp>) -> Option<CpuStats> {
    nanoseconds.map(|nanoseconds| CpuStats {
        time: at,
        usage_core_nano_seconds: Some(nanoseconds),
        ..CpuStats::default()
    })
}

/// When the machine booted.
fn started(stat: &str) -> Option<Timestamp> {
    let line = stat.lines().find_map(|line| line.strip_prefix("btime "))?;
    Timestamp::from_second(line.trim().parse().ok()?).ok()
}

/// CPU time of all states but idle and iowait, in nanoseconds.
fn busy(stat: &str) -> Option<u64> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks = line.split_whitespace().map(|word| word.parse::<u64>().ok());
    let ticks: Vec<u64> = ticks.collect::<Option<_>>()?;
    let waits = |index: &usize| *index == 3 || *index == 4;
    let busy = ticks.iter().enumerate().take(8);
    let busy: u64 = busy
        .filter(|(index, _)| !waits(index))
        .map(|(_, n)| n)
        .sum();
    busy.checked_mul(1_000_000_000 / units::clock_ticks())
}

fn swap(meminfo: &MemInfo, at: Option<Timestamp>) -> Option<SwapStats> {
    let (total, free) = (meminfo.get("SwapTotal")?, meminfo.get("SwapFree")?);
    Some(SwapStats {
        time: at,
        swap_available_bytes: Some(free),
        swap_usage_bytes: Some(total.saturating_sub(free)),
    })
}

fn network(text: &str, at: Option<Timestamp>) -> NetworkStats {
    let interfaces: Vec<InterfaceStats> = text.lines().filter_map(interface).collect();
    let default = interfaces.iter().find(|i| i.name == DEFAULT_INTERFACE);
    NetworkStats {
        time: at,
        default: default.cloned().unwrap_or_default(),
        interfaces,
    }
}

/// A line such as `eth0: RECEIVED-BYTES PACKETS ERRORS ... SENT-BYTES PACKETS ERRORS ...`
fn interface(line: &str) -> Option<InterfaceStats> {
    let (name, numbers) = line.split_once(':')?;
    let name = name.trim();
    if IGNORED_INTERFACES
        .iter()
        .any(|ignored| name.starts_with(ignored))
    {
        return None;
    }
    let numbers: Vec<&str> = numbers.split_whitespace().collect();
    let number = |index: usize| numbers.get(index)?.parse::<u64>().ok();
    Some(InterfaceStats {
        name: name.to_owned(),
        rx_bytes: Some(number(0)?),
        rx_errors: Some(number(2)?),
        tx_bytes: Some(number(8)?),
        tx_errors: Some(number(10)?),
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn write(root: &Path, files: &[(&str, &str)]) {
        for (name, text) in files {
            let path = root.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
    }

    const PROC: [(&str, &str); 7] = [
        (
            "meminfo",
            "MemTotal: 1000 kB\nMemFree: 400 kB\nInactive(file): 100 kB\nSwapTotal: 50 kB\nSwapFree: 20 kB\n",
        ),
        ("stat", "cpu  1 2 3 40 50 6 7 8 9 10\nbtime 1700000000\n"),
        (
            "net/dev",
            "Inter-|   Receive\n face |bytes\n  eth0: 10 1 2 0 0 0 0 0 30 3 4 0 0 0 0 0\n    lo: 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1\nveth12: 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1\n wlan0: 5 0 0 0 0 0 0 0 6 0 0 0 0 0 0 0\n",
        ),
        ("sys/kernel/pid_max", "4194304\n"),
        ("sys/kernel/threads-max", "1000\n"),
        ("loadavg", "0.1 0.2 0.3 2/345 6789\n"),
        ("self/cgroup", "0::/own\n"),
    ];

    #[test]
    fn the_node_is_read_from_a_machine_with_one_tree_of_groups() {
        let folder = tempfile::tempdir().unwrap();
        let (proc, top) = (folder.path().join("proc"), folder.path().join("cgroup"));
        write(&proc, &PROC);
        write(
            &top,
            &[
                ("cpu.stat", "usage_usec 5\nuser_usec 1\n"),
                (
                    "memory.stat",
                    "anon 3000\ninactive_file 2048\npgfault 7\npgmajfault 1\n",
                ),
                ("kubepods/cpu.stat", "usage_usec 4\n"),
                ("kubepods/memory.current", "5000\n"),
                ("kubepods/memory.max", "9000\n"),
                ("kubepods/memory.stat", "anon 1\ninactive_file 1000\n"),
                ("kubepods.slice/cpu.stat", "usage_usec 3\n"),
            ],
        );
        let shown = vec![("misc", "/nowhere".to_owned())];
        let machine = MachineStats {
            proc,
            hierarchy: Some(Hierarchy::V2(top)),
            shown,
            pods: Some(CgroupName::parse("/kubepods")),
        };
        let at = SystemTime::UNIX_EPOCH;
        let driver = CgroupDriver::Cgroupfs;
        let figures = machine.read(SummaryScope::Everything, at, driver);
        let memory = figures.memory.unwrap();
        let used = 600 * 1024 - 2048;
        assert_eq!(
            (
                memory.usage_bytes,
                memory.working_set_bytes,
                memory.available_bytes
            ),
            (Some(600 * 1024), Some(used), Some(1000 * 1024 - used))
        );
        assert_eq!(
            (memory.rss_bytes, memory.page_faults),
            (Some(3000), Some(7))
        );
        assert_eq!(figures.cpu.unwrap().usage_core_nano_seconds, Some(5000));
        assert_eq!(figures.started, Timestamp::from_second(1_700_000_000).ok());
        let swap = figures.swap.unwrap();
        assert_eq!(
            (swap.swap_usage_bytes, swap.swap_available_bytes),
            (Some(30 * 1024), Some(20 * 1024))
        );
        let network = figures.network.unwrap();
        assert_eq!(network.default.tx_errors, Some(4));
        let names: Vec<&str> = network.interfaces.iter().map(|i| i.name.as_str()).collect();
        assert_eq!(names, ["eth0", "wlan0"]);
        let limit = figures.rlimit.unwrap();
        assert_eq!((limit.maxpid, limit.curproc), (Some(1000), Some(345)));
        assert_eq!(figures.system.len(), 1);
        let pods = figures.system[0].memory.as_ref().unwrap();
        assert_eq!(
            (pods.working_set_bytes, pods.available_bytes),
            (Some(4000), Some(5000))
        );
        let slices = machine.read(SummaryScope::CpuAndMemory, at, CgroupDriver::Systemd);
        let pods = slices.system[0].cpu.as_ref().unwrap();
        assert_eq!(pods.usage_core_nano_seconds, Some(3000));
        let small = machine.read(SummaryScope::CpuAndMemory, at, driver);
        assert!(small.network.is_none() && small.rlimit.is_none() && small.cpu.is_some());
    }

    #[test]
    fn the_node_is_read_from_a_machine_with_a_tree_for_each_controller() {
        let folder = tempfile::tempdir().unwrap();
        let (proc, top) = (folder.path().join("proc"), folder.path().join("cgroup"));
        write(&proc, &PROC);
        write(
            &top,
            &[
                ("cpuacct/cpuacct.usage", "77\n"),
                ("memory/memory.usage_in_bytes", "9000\n"),
                ("memory/memory.limit_in_bytes", "9223372036854771712\n"),
                (
                    "memory/memory.stat",
                    "inactive_file 1\ntotal_inactive_file 1000\ntotal_rss 5\n",
                ),
            ],
        );
        let trees = ["cpuacct", "memory"].map(|name| (name.to_owned(), top.join(name)));
        let machine = MachineStats {
            proc,
            hierarchy: Some(Hierarchy::V1(trees.into())),
            shown: Vec::new(),
            pods: None,
        };
        let driver = CgroupDriver::Cgroupfs;
        let figures = machine.read(SummaryScope::CpuAndMemory, SystemTime::UNIX_EPOCH, driver);
        assert_eq!(figures.cpu.unwrap().usage_core_nano_seconds, Some(77));
        let memory = figures.memory.unwrap();
        assert_eq!(
            (
                memory.working_set_bytes,
                memory.rss_bytes,
                memory.available_bytes
            ),
            (Some(8000), Some(5), Some(1000 * 1024 - 8000))
        );
    }

    #[test]
    fn a_machine_that_tells_nothing_is_told_of_without_figures() {
        let machine = MachineStats {
            proc: PathBuf::from("/nonexistent"),
            hierarchy: None,
            shown: Vec::new(),
            pods: Some(CgroupName::parse("/kubepods")),
        };
        let driver = CgroupDriver::Cgroupfs;
        let figures = machine.read(SummaryScope::Everything, SystemTime::UNIX_EPOCH, driver);
        assert!(figures.cpu.is_none() && figures.memory.is_none() && figures.system.is_empty());
        // Without cgroups `/proc/stat` counts: all but idle and iowait.
        assert_eq!(busy("cpu  1 2 3 40 50 6 7 8 9 10\n"), Some(270_000_000));
    }
}
