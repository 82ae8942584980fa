//! Groups from files that a test has written.

use std::collections::BTreeMap;
use std::os::unix::fs::symlink;
use std::path::Path;

use logic_resources::group_stats::{DeviceIo, IoOperation};

use super::files::number;
use super::*;

fn write(root: &Path, files: &[(&str, &str)]) {
    for (name, text) in files {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
}

fn query(detail: GroupDetail) -> GroupQuery {
    GroupQuery {
        detail,
        prefixes: vec!["/kubepods".to_owned()],
        sandboxes: ["s0".to_owned()].into(),
        containers: [("c0".to_owned(), "s0".to_owned())].into(),
    }
}

const PRESSURE: &str = "some avg10=1.50 avg60=2.00 avg300=0.25 total=7\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=3\n";
const DEVICE: &str = "Inter-|   Receive\n face |bytes\n  eth0: 10 1 2 3 0 0 0 0 30 4 5 6 0 0 0 0\n    lo: 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1\nveth12: 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1\n";

fn v2(folder: &Path) -> GroupReader {
    let proc = folder.join("proc");
    let top = folder.join("cgroup");
    let descriptors = proc.join("12/fd");
    fs::create_dir_all(&descriptors).unwrap();
    for (number, target) in ["/dev/null", "socket:[7]", "pipe:[8]", "socket:[9]"]
        .iter()
        .enumerate()
    {
        symlink(target, descriptors.join(number.to_string())).unwrap();
    }
    write(
        &proc,
        &[
            ("stat", "cpu 1\nbtime 1700000059\n"),
            ("meminfo", "SwapTotal: 50 kB\nSwapFree: 20 kB\n"),
            ("12/net/dev", DEVICE),
            (
                "12/limits",
                "Limit  Soft  Hard  Units\nMax open files  1024  4096  files\n",
            ),
        ],
    );
    let container = "kubepods/podu0/c0";
    let file = |name: &str| format!("{container}/{name}");
    write(
        &top,
        &[
            ("memory.stat", "anon 100\nfile 200\ninactive_file 50\n"),
            ("cpu.stat", "usage_usec 9\n"),
            ("system.slice/cpu.stat", "usage_usec 1\n"),
            ("kubepods/podu0/s0/cgroup.procs", "12\n"),
            (
                &file("cpu.stat"),
                "usage_usec 5\nuser_usec 3\nsystem_usec 2\nnr_periods 4\nnr_throttled 1\nthrottled_usec 6\nnr_bursts 1\nburst_usec 8\n",
            ),
            (&file("cpu.pressure"), PRESSURE),
            (&file("cpu.weight"), "100\n"),
            (&file("cpu.max"), "50000 100000\n"),
            (&file("memory.current"), "1000\n"),
            (&file("memory.max"), "max\n"),
            (&file("memory.min"), "64\n"),
            (&file("memory.peak"), "2000\n"),
            (&file("memory.swap.current"), "30\n"),
            (&file("memory.swap.max"), "300\n"),
            (
                &file("memory.stat"),
                "anon 400\nfile 500\nfile_mapped 60\ninactive_file 100\nactive_file 200\npgfault 7\npgmajfault 1\n",
            ),
            (&file("memory.events.local"), "low 0\noom 2\noom_kill 2\n"),
            (
                &file("io.stat"),
                "8:0 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=0 dios=0\n7:0\n",
            ),
            (&file("pids.current"), "3\n"),
            (&file("pids.max"), "max\n"),
            (&file("cgroup.procs"), "12\n13\n"),
        ],
    );
    GroupReader {
        proc,
        hierarchy: Hierarchy::V2(top),
    }
}

#[test]
fn every_figure_of_a_unified_group_is_read_in_its_unit() {
    let folder = tempfile::tempdir().unwrap();
    let reader = v2(folder.path());
    let groups = reader.read_all(
        &query(GroupDetail::Everything),
        &EarlierGroups::default(),
        SystemTime::UNIX_EPOCH,
    );
    let names: Vec<&str> = groups.iter().map(|group| group.name.as_str()).collect();
    let expected = [
        "/",
        "/kubepods",
        "/kubepods/podu0",
        "/kubepods/podu0/c0",
        "/kubepods/podu0/s0",
    ];
    assert_eq!(names, expected);
    let group = &groups[3];
    let cpu = group.cpu.as_ref().unwrap();
    assert_eq!((cpu.usage, cpu.user, cpu.system), (5000, 3000, 2000));
    assert_eq!(
        (cpu.periods, cpu.throttled_periods, cpu.throttled),
        (4, 1, 6000)
    );
    assert_eq!((cpu.bursts, cpu.burst), (1, 8000));
    assert_eq!(
        (cpu.psi.some.total, cpu.psi.some.avg10, cpu.psi.full.total),
        (7, 1.5, 3)
    );
    assert_eq!((cpu.shares, cpu.quota, cpu.period), (2597, 50_000, 100_000));
    let memory = group.memory.as_ref().unwrap();
    assert_eq!(
        (memory.usage, memory.working_set(), memory.max_usage),
        (1000, 900, 2000)
    );
    assert_eq!(
        (memory.limit, memory.swap_limit, memory.reservation),
        (u64::MAX, 300, 64)
    );
    assert_eq!(
        (memory.rss, memory.cache, memory.mapped_file, memory.swap),
        (400, 500, 60, 30)
    );
    assert_eq!(
        (
            memory.page_faults,
            memory.major_page_faults,
            memory.oom_kills
        ),
        (7, 1, 2)
    );
    let device = DeviceIo {
        major: 8,
        minor: 0,
        bytes: vec![(IoOperation::Read, 1), (IoOperation::Write, 2)],
        operations: vec![(IoOperation::Read, 3), (IoOperation::Write, 4)],
    };
    assert_eq!(group.io.as_ref().unwrap().devices, [device]);
    let tasks = &group.tasks;
    assert_eq!(
        (tasks.threads, tasks.max_threads, tasks.processes),
        (3, 0, 2)
    );
    assert_eq!((tasks.file_descriptors, tasks.sockets), (4, 2));
    assert_eq!(tasks.open_files, Some(1024));
    assert!(group.network.is_none() && group.created.is_some());
    let sandbox = groups[4].network.as_ref().unwrap();
    assert_eq!(sandbox.len(), 1);
    let traffic = (sandbox[0].received.dropped, sandbox[0].sent.packets);
    assert_eq!((sandbox[0].name.as_str(), traffic), ("eth0", (3, 4)));
    // The root adds its memory up, and has the machine's swap.
    let root = groups[0].memory.as_ref().unwrap();
    assert_eq!((root.usage, root.swap), (300, 30 * 1024));
}

#[test]
fn less_is_read_where_less_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let reader = v2(folder.path());
    let read = |detail| {
        let groups = reader.read_all(
            &query(detail),
            &EarlierGroups::default(),
            SystemTime::UNIX_EPOCH,
        );
        groups
            .into_iter()
            .find(|group| group.name.ends_with("/c0"))
            .unwrap()
    };
    let small = read(GroupDetail::CpuAndMemory);
    assert!(small.io.is_none() && small.tasks.processes == 0);
    assert!(
        small
            .cpu
            .is_some_and(|cpu| cpu.usage == 5000 && cpu.psi.some.total == 7)
    );
    let summary = read(GroupDetail::Summary);
    assert_eq!(summary.tasks.processes, 2);
    assert!(summary.io.is_some_and(|io| io.devices.is_empty()));
}

/// By both versions.
#[test]
fn what_is_known_of_a_group_is_not_read_again_and_the_rest_of_it_is() {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let readers = [v1(folders[0].path()), v2(folders[1].path())];
    let later = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1);
    for reader in readers {
        let first = query(GroupDetail::CpuAndMemory);
        let mut known = reader.read_all(&first, &EarlierGroups::default(), SystemTime::UNIX_EPOCH);
        let whole = reader.read_all(
            &query(GroupDetail::Everything),
            &EarlierGroups::default(),
            later,
        );
        let used = known.iter_mut().find(|group| group.name.ends_with("/c0"));
        let used = used.unwrap();
        used.cpu.as_mut().unwrap().usage += 1;
        used.memory.as_mut().unwrap().usage += 1;
        let gone = GroupStats {
            name: "/kubepods/podu1".to_owned(),
            ..GroupStats::default()
        };
        let expected: Vec<GroupStats> = whole
            .into_iter()
            .map(|mut group| {
                let known = known.iter().find(|known| known.name == group.name).unwrap();
                group.at = known.at;
                let usage = known.cpu.as_ref().map_or(0, |cpu| cpu.usage);
                group
                    .cpu
                    .as_mut()
                    .into_iter()
                    .for_each(|cpu| cpu.usage = usage);
                let usage = known.memory.as_ref().map_or(0, |memory| memory.usage);
                group
                    .memory
                    .as_mut()
                    .into_iter()
                    .for_each(|memory| memory.usage = usage);
                group
            })
            .collect();
        known.push(gone);
        let all = query(GroupDetail::Everything);
        let earlier = EarlierGroups {
            usage: known.into(),
            ..EarlierGroups::default()
        };
        assert_eq!(reader.read_all(&all, &earlier, later), expected);
    }
}

/// By both versions.
#[test]
fn descriptors_and_limits_that_were_read_are_not_read_again_and_those_of_new_groups_are() {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let readers = [v1(folders[0].path()), v2(folders[1].path())];
    let all = query(GroupDetail::Everything);
    for reader in readers {
        let read = |earlier: &EarlierGroups| reader.read_all(&all, earlier, SystemTime::UNIX_EPOCH);
        let fresh = read(&EarlierGroups::default());
        let mut counted = fresh.clone();
        counted.retain(|group| !group.name.ends_with("/s0"));
        for group in &mut counted {
            group.tasks.sockets += 10;
            group.tasks.file_descriptors += 20;
            group.tasks.open_files = Some(30);
            group.tasks.max_threads = 40;
            if let Some(cpu) = &mut group.cpu {
                (cpu.shares, cpu.quota, cpu.period) = (50, 60, 70);
            }
            if let Some(memory) = &mut group.memory {
                memory.reservation = 80;
            }
        }
        let mut expected = counted.clone();
        expected.extend(
            fresh
                .into_iter()
                .filter(|group| group.name.ends_with("/s0")),
        );
        for group in &mut counted {
            group.tasks.threads += 1;
            group.tasks.processes += 1;
            if let Some(cpu) = &mut group.cpu {
                (cpu.usage, cpu.periods) = (cpu.usage + 1, cpu.periods + 1);
            }
            if let Some(memory) = &mut group.memory {
                memory.usage += 1;
            }
        }
        let earlier = EarlierGroups {
            descriptors: counted.into(),
            ..EarlierGroups::default()
        };
        assert_eq!(read(&earlier), expected);
    }
}

fn v1(folder: &Path) -> GroupReader {
    let (proc, top) = (folder.join("proc"), folder.join("cgroup"));
    write(&proc, &[("12/net/dev", DEVICE)]);
    let container = "kubepods/podu0/c0";
    let file = |tree: &str, name: &str| format!("{tree}/{container}/{name}");
    let bytes =
        "8:0 Read 1\n8:0 Write 2\n8:0 Sync 3\n8:0 Async 0\n8:0 Discard 0\n8:0 Total 3\nTotal 3\n";
    write(
        &top,
        &[
            (&file("cpuacct", "cpuacct.usage"), "77\n"),
            (&file("cpuacct", "cpuacct.stat"), "user 2\nsystem 1\n"),
            (
                &file("cpu", "cpu.stat"),
                "nr_periods 4\nnr_throttled 1\nthrottled_time 6\n",
            ),
            (&file("cpu", "cpu.shares"), "512\n"),
            (&file("cpu", "cpu.cfs_quota_us"), "-1\n"),
            (&file("cpu", "cpu.cfs_period_us"), "100000\n"),
            (&file("memory", "memory.usage_in_bytes"), "1000\n"),
            (&file("memory", "memory.max_usage_in_bytes"), "2000\n"),
            (
                &file("memory", "memory.limit_in_bytes"),
                "9223372036854771712\n",
            ),
            (&file("memory", "memory.memsw.limit_in_bytes"), "4096\n"),
            (&file("memory", "memory.soft_limit_in_bytes"), "3000\n"),
            (&file("memory", "memory.kmem.usage_in_bytes"), "11\n"),
            (&file("memory", "memory.failcnt"), "5\n"),
            (
                &file("memory", "memory.oom_control"),
                "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n",
            ),
            (
                &file("memory", "memory.stat"),
                "cache 1\nrss 2\npgfault 7\ntotal_cache 10\ntotal_rss 20\ntotal_swap 30\ntotal_inactive_file 100\n",
            ),
            (
                &file("blkio", "blkio.throttle.io_service_bytes_recursive"),
                bytes,
            ),
            (
                &file("blkio", "blkio.bfq.io_service_bytes_recursive"),
                "Total 0\n",
            ),
            (
                "blkio/blkio.throttle.io_service_bytes_recursive",
                "Total 0\n",
            ),
            ("blkio/blkio.bfq.io_service_bytes_recursive", "Total 0\n"),
            (&file("pids", "pids.current"), "3\n"),
            (&file("pids", "pids.max"), "9\n"),
            (&file("cpu", "cgroup.procs"), "12\n"),
        ],
    );
    let trees = ["cpu", "cpuacct", "memory", "blkio", "pids"];
    let trees: BTreeMap<_, _> = trees.map(|name| (name.to_owned(), top.join(name))).into();
    GroupReader {
        proc,
        hierarchy: Hierarchy::V1(trees),
    }
}

#[test]
fn every_figure_of_a_group_with_a_folder_for_each_controller_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let reader = v1(folder.path());
    assert!(!reader.has_psi());
    let groups = reader.read_all(
        &query(GroupDetail::Everything),
        &EarlierGroups::default(),
        SystemTime::UNIX_EPOCH,
    );
    let group = groups
        .iter()
        .find(|group| group.name.ends_with("/c0"))
        .unwrap();
    let cpu = group.cpu.as_ref().unwrap();
    let tick = 1_000_000_000 / crate::units::clock_ticks();
    assert_eq!((cpu.usage, cpu.user, cpu.system), (77, 2 * tick, tick));
    assert_eq!(
        (cpu.shares, cpu.quota, cpu.period, cpu.throttled),
        (512, 0, 100_000, 6)
    );
    let memory = group.memory.as_ref().unwrap();
    assert_eq!((memory.cache, memory.rss, memory.swap), (10, 20, 30));
    assert_eq!(
        (memory.working_set(), memory.kernel, memory.failures),
        (900, 11, 5)
    );
    assert_eq!((memory.page_faults, memory.oom_kills), (7, 3));
    assert_eq!((memory.swap_limit, memory.reservation), (4096, 3000));
    let device = &group.io.as_ref().unwrap().devices[0];
    assert_eq!(
        (device.bytes[0], device.bytes[5]),
        ((IoOperation::Read, 1), (IoOperation::Total, 3))
    );
    assert_eq!(
        (
            group.tasks.threads,
            group.tasks.max_threads,
            group.tasks.processes
        ),
        (3, 9, 1)
    );
}

/// Upstream's TestIsPsiEnabled.
#[test]
fn stalls_are_there_where_the_root_has_their_file() {
    let folder = tempfile::tempdir().unwrap();
    let reader = v2(folder.path());
    assert!(!reader.has_psi());
    write(&folder.path().join("cgroup"), &[("cpu.pressure", PRESSURE)]);
    assert!(reader.has_psi());
}

#[test]
fn files_that_are_gone_empty_or_nonsense_cost_their_own_figures() {
    for nonsense in ["", "\n", "-1", "x", "1e3", "99999999999999999999999", "\0"] {
        assert_eq!(number(nonsense), None, "{nonsense:?}");
    }
    assert_eq!(number("max\n"), Some(u64::MAX));
    let folder = tempfile::tempdir().unwrap();
    let reader = v2(folder.path());
    let top = folder.path().join("cgroup/kubepods/podu0/c0");
    for name in [
        "cpu.max",
        "cpu.weight",
        "memory.peak",
        "pids.current",
        "cpu.pressure",
        "io.stat",
    ] {
        write(
            &top,
            &[(
                name,
                "99999999999999999999999 -7 some total=x avg10=nan\n:\n",
            )],
        );
    }
    write(
        &top,
        &[("memory.swap.current", ""), ("cgroup.procs", "x\n-3\n12\n")],
    );
    write(
        folder.path(),
        &[(
            "proc/12/net/dev",
            "eth0: 1 2 3\neth1: 99999999999999999999999\n:::\n",
        )],
    );
    let groups = reader.read_all(
        &query(GroupDetail::Everything),
        &EarlierGroups::default(),
        SystemTime::UNIX_EPOCH,
    );
    let group = groups
        .iter()
        .find(|group| group.name.ends_with("/c0"))
        .unwrap();
    let cpu = group.cpu.as_ref().unwrap();
    assert_eq!((cpu.usage, cpu.shares, cpu.quota), (5000, 0, 0));
    let memory = group.memory.as_ref().unwrap();
    assert_eq!((memory.usage, memory.max_usage, memory.swap), (1000, 0, 0));
    assert_eq!((group.tasks.threads, group.tasks.processes), (0, 1));
    assert_eq!(groups[4].network.as_deref(), Some(&[][..]));
    assert!(group.io.as_ref().unwrap().devices.is_empty());
    assert_eq!(
        reader.read(
            "/kubepods/gone",
            GroupDetail::Summary,
            SystemTime::UNIX_EPOCH
        ),
        None
    );
}

#[test]
fn a_pass_ends_at_its_depth_and_sees_only_what_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let reader = v2(folder.path());
    let deep = format!("cgroup/kubepods/{}", "x/".repeat(40));
    fs::create_dir_all(folder.path().join(deep)).unwrap();
    let groups = reader.read_all(
        &query(GroupDetail::Summary),
        &EarlierGroups::default(),
        SystemTime::UNIX_EPOCH,
    );
    let depth = groups
        .iter()
        .map(|group| group.name.matches('/').count())
        .max();
    assert_eq!(depth, Some(MAX_DEPTH));
    assert!(!groups.iter().any(|group| group.name.starts_with("/system")));
    // An agent in the root group counts every group as its own.
    let everything = GroupQuery {
        prefixes: vec!["/".to_owned()],
        ..query(GroupDetail::Summary)
    };
    let groups = reader.read_all(
        &everything,
        &EarlierGroups::default(),
        SystemTime::UNIX_EPOCH,
    );
    assert!(groups.iter().any(|group| group.name == "/system.slice"));
}

#[test]
fn a_container_has_the_interfaces_of_a_sandbox_without_a_group_and_of_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let reader = v2(folder.path());
    for (sandbox, expected) in [("s0", None), ("none", Some("eth0"))] {
        let query = GroupQuery {
            containers: [("c0".to_owned(), sandbox.to_owned())].into(),
            ..query(GroupDetail::Summary)
        };
        let earlier = EarlierGroups::default();
        let groups = reader.read_all(&query, &earlier, SystemTime::UNIX_EPOCH);
        let container = groups.iter().find(|group| group.name.ends_with("/c0"));
        let network = container.unwrap().network.as_ref();
        let name = network.map(|interfaces| interfaces[0].name.as_str());
        assert_eq!(name, expected);
    }
}
