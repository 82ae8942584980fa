//! The node's own part of a summary, read from `/proc` and the root of its cgroups.

use std::fs;
use std::path::PathBuf;
use std::time::SystemTime;

use jiff::Timestamp;
use logic_resources::cgroups::{CgroupDriver, CgroupName, CgroupPolicy};
use logic_resources::group_stats::{GroupDetail, GroupStats};
use logic_resources::summary::{
    ContainerStats, CpuStats, IoStats, MemoryStats, NetworkStats, ProcessLimit, SummaryScope,
    SwapStats, groups,
};

use crate::group_stats::{GroupPass, GroupReader, MACHINE, interfaces};
use crate::meminfo::MemInfo;
use crate::{cgroups, units};

/// The names of groups in the summary; the empty one is the node itself.
pub const NAMES: [&str; 5] = ["", KUBELET, RUNTIME, MISC, PODS];
const KUBELET: &str = "kubelet";
const RUNTIME: &str = "runtime";
const MISC: &str = "misc";
/// The group above the pods'.
pub const PODS: &str = "pods";

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
    /// None where no cgroups are mounted.
    pub groups: Option<GroupReader>,
    /// The system containers: the name in the summary, and the cgroup.
    pub shown: Vec<(&'static str, String)>,
    /// The cgroup above the pods'; none where the runtime manages them.
    pub pods: Option<CgroupName>,
    /// When the agent began.
    pub began: Option<Timestamp>,
}

/// Usage of the node; what the machine does not report is none.
#[derive(Debug, Default)]
pub struct NodeFigures {
    /// When the machine booted.
    pub started: Option<Timestamp>,
    pub cpu: Option<CpuStats>,
    pub memory: Option<MemoryStats>,
    pub swap: Option<SwapStats>,
    pub io: Option<IoStats>,
    pub network: Option<NetworkStats>,
    pub rlimit: Option<ProcessLimit>,
    pub system: Vec<ContainerStats>,
}

impl MachineStats {
    /// Statistics of this machine; the mounts are read once, at the start.
    pub fn here(
        groups: &SystemGroups,
        policy: Option<&CgroupPolicy>,
        began: SystemTime,
    ) -> MachineStats {
        let proc = PathBuf::from("/proc");
        let kubelet = match groups.kubelet.is_empty() {
            true => cgroups::own_group(&proc),
            false => groups.kubelet.clone(),
        };
        let shown = [
            (KUBELET, kubelet),
            (RUNTIME, groups.runtime.clone()),
            (MISC, groups.system.clone()),
        ];
        let hierarchy = cgroups::hierarchy(&proc);
        MachineStats {
            groups: hierarchy.map(|hierarchy| GroupReader {
                proc: proc.clone(),
                hierarchy,
            }),
            proc,
            shown: shown
                .into_iter()
                .filter(|(_, name)| !name.is_empty())
                .collect(),
            pods: policy.map(|policy| CgroupName::parse(&policy.root).child("kubepods")),
            began: Timestamp::try_from(began).ok(),
        }
    }

    /// Usage of the node and its system containers now; `driver` has made the pods' cgroups.
    pub fn read(&self, scope: SummaryScope, at: SystemTime, driver: CgroupDriver) -> NodeFigures {
        let meminfo = MemInfo::read(&self.proc).unwrap_or_default();
        let groups = self.pass(scope, at);
        let root = groups.read(MACHINE);
        let stat = self.text("stat");
        let system = self.system(&groups, driver);
        let time = Timestamp::try_from(at).ok();
        let mut figures = NodeFigures {
            started: started(&stat),
            cpu: match root.as_ref().filter(|root| root.cpu.is_some()) {
                Some(root) => Some(groups::cpu(root)),
                None => busy(&stat).map(|nanoseconds| CpuStats {
                    time,
                    usage_core_nano_seconds: Some(nanoseconds),
                    ..CpuStats::default()
                }),
            },
            memory: memory(root.as_ref(), &meminfo, time),
            swap: swap(&meminfo, time),
            system,
            ..NodeFigures::default()
        };
        if scope == SummaryScope::Everything {
            figures.io = root.as_ref().and_then(groups::io);
            let of_root = root.and_then(|root| root.network);
            let counters = of_root.unwrap_or_else(|| interfaces(&self.text("net/dev")));
            figures.network = Some(groups::network(&counters, time));
            figures.rlimit = Some(self.limit(time));
        }
        figures
    }

    /// What eviction goes by: the memory of the node and of all its pods, and where everything is asked for the processes.
    /// It asks every ten seconds: networks and the system's containers are not looked at.
    pub fn read_for_eviction(
        &self,
        scope: SummaryScope,
        at: SystemTime,
        driver: CgroupDriver,
    ) -> NodeFigures {
        let meminfo = MemInfo::read(&self.proc).unwrap_or_default();
        let groups = self.pass(SummaryScope::CpuAndMemory, at);
        let root = groups.read(MACHINE);
        let time = Timestamp::try_from(at).ok();
        NodeFigures {
            memory: memory(root.as_ref(), &meminfo, time),
            system: self.of_pods(&groups, driver).into_iter().collect(),
            rlimit: (scope == SummaryScope::Everything).then(|| self.limit(time)),
            ..NodeFigures::default()
        }
    }

    /// The names of the system containers' groups, and of the group above the pods'.
    pub fn system_groups(&self, driver: CgroupDriver) -> Vec<String> {
        let shown = self.shown.iter().map(|(_, name)| name.clone());
        let pods = self.pods.as_ref().map(|pods| pods.path(driver));
        shown.chain(pods).collect()
    }

    fn text(&self, file: &str) -> String {
        fs::read_to_string(self.proc.join(file)).unwrap_or_default()
    }

    fn pass(&self, scope: SummaryScope, at: SystemTime) -> ScopedPass<'_> {
        let detail = match scope {
            SummaryScope::CpuAndMemory => GroupDetail::CpuAndMemory,
            SummaryScope::Everything => GroupDetail::Summary,
        };
        let groups = self.groups.as_ref();
        ScopedPass {
            groups: groups.and_then(|groups| groups.pass(at)),
            detail,
        }
    }

    fn system(&self, groups: &ScopedPass<'_>, driver: CgroupDriver) -> Vec<ContainerStats> {
        let shown = self.shown.iter().filter_map(|(name, group)| {
            let group = groups.read(group)?;
            let started = match *name {
                KUBELET => self.began.or(group.created),
                _ => group.created,
            };
            Some(groups::system_container(name, &group, started))
        });
        shown.chain(self.of_pods(groups, driver)).collect()
    }

    fn of_pods(&self, groups: &ScopedPass<'_>, driver: CgroupDriver) -> Option<ContainerStats> {
        let group = groups.read(&self.pods.as_ref()?.path(driver))?;
        Some(groups::system_container(PODS, &group, group.created))
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

/// One reading of groups with what is read of each; nothing on a machine without cgroups.
#[derive(Debug)]
struct ScopedPass<'a> {
    groups: Option<GroupPass<'a>>,
    detail: GroupDetail,
}

impl ScopedPass<'_> {
    fn read(&self, name: &str) -> Option<GroupStats> {
        self.groups.as_ref()?.read(name, self.detail)
    }
}

/// The machine's memory: its working set from the root cgroup, or from `/proc/meminfo`.
fn memory(
    root: Option<&GroupStats>,
    meminfo: &MemInfo,
    at: Option<Timestamp>,
) -> Option<MemoryStats> {
    let (total, free) = (meminfo.get("MemTotal")?, meminfo.get("MemFree")?);
    let mut memory = match root.filter(|root| root.memory.is_some()) {
        Some(root) => groups::memory(root),
        None => {
            let usage = total.saturating_sub(free);
            let inactive = meminfo.get("Inactive(file)").unwrap_or(0);
            MemoryStats {
                time: at,
                usage_bytes: Some(usage),
                working_set_bytes: Some(usage.saturating_sub(inactive)),
                ..MemoryStats::default()
            }
        }
    };
    let used = memory.working_set_bytes.unwrap_or(0);
    memory.available_bytes = Some(total.saturating_sub(used));
    Some(memory)
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
    let busy = busy
        .filter(|(index, _)| !waits(index))
        .fold(0_u64, |sum, (_, n)| sum.saturating_add(*n));
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use logic_resources::cgroups::Hierarchy;

    use super::*;

    fn machine(proc: &Path, hierarchy: Hierarchy, pods: Option<CgroupName>) -> MachineStats {
        MachineStats {
            proc: proc.to_owned(),
            groups: Some(GroupReader {
                proc: proc.to_owned(),
                hierarchy,
            }),
            shown: Vec::new(),
            pods,
            began: Timestamp::from_second(7).ok(),
        }
    }

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
                    "anon 3000\nfile 7000\ninactive_file 2048\npgfault 7\npgmajfault 1\n",
                ),
                ("kubepods/cpu.stat", "usage_usec 4\n"),
                ("kubepods/memory.current", "5000\n"),
                ("kubepods/memory.max", "9000\n"),
                ("kubepods/memory.stat", "anon 1\ninactive_file 1000\n"),
                ("kubepods.slice/cpu.stat", "usage_usec 3\n"),
            ],
        );
        let pods = Some(CgroupName::parse("/kubepods"));
        let mut machine = machine(&proc, Hierarchy::V2(top), pods);
        machine.shown = vec![("misc", "/nowhere".to_owned()), (KUBELET, "/".to_owned())];
        let at = SystemTime::UNIX_EPOCH;
        let driver = CgroupDriver::Cgroupfs;
        let figures = machine.read(SummaryScope::Everything, at, driver);
        let memory = figures.memory.unwrap();
        let used = 10_000 - 2048;
        assert_eq!(
            (
                memory.usage_bytes,
                memory.working_set_bytes,
                memory.available_bytes
            ),
            (Some(10_000), Some(used), Some(1000 * 1024 - used))
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
        let names: Vec<&str> = figures.system.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, ["kubelet", "pods"]);
        // An agent in the root group is there too, since it began.
        assert_eq!(figures.system[0].start_time, Timestamp::from_second(7).ok());
        assert!(figures.io.is_some() && figures.system[1].io.is_some());
        let pods = figures.system[1].memory.as_ref().unwrap();
        assert_eq!(
            (pods.working_set_bytes, pods.available_bytes),
            (Some(4000), Some(5000))
        );
        let told = machine.read_for_eviction(SummaryScope::Everything, at, driver);
        assert_eq!((told.memory, told.rlimit), (Some(memory), Some(limit)));
        assert_eq!(told.system.len(), 1);
        assert_eq!(told.system[0].memory, figures.system[1].memory);
        assert!(told.network.is_none());
        let slices = machine.read(SummaryScope::CpuAndMemory, at, CgroupDriver::Systemd);
        let pods = slices.system[1].cpu.as_ref().unwrap();
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
        let machine = machine(&proc, Hierarchy::V1(trees.into()), None);
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
            groups: None,
            shown: Vec::new(),
            pods: Some(CgroupName::parse("/kubepods")),
            began: None,
        };
        let driver = CgroupDriver::Cgroupfs;
        let figures = machine.read(SummaryScope::Everything, SystemTime::UNIX_EPOCH, driver);
        assert!(figures.cpu.is_none() && figures.memory.is_none() && figures.system.is_empty());
        // Without cgroups `/proc/stat` counts: all but idle and iowait.
        assert_eq!(busy("cpu  1 2 3 40 50 6 7 8 9 10\n"), Some(270_000_000));
        let most = u64::MAX;
        assert_eq!(busy(&format!("cpu  {most} {most} 0 0 0 0 0 0\n")), None);
    }
}
