//! What only metrics show of a cgroup, read from its files on both versions.

use std::fs;
use std::path::{Path, PathBuf};

use super::super::cgroup::{Groups, keyed, number};
use super::disk::named;

const NANOS: u64 = 1_000_000_000;
const MICROS: u64 = 1_000_000;
/// The resources that the kernel tells the pressure of.
pub(super) const PRESSURES: [&str; 3] = ["cpu", "memory", "io"];

/// Figures of one cgroup. What cannot be read is none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Details {
    pub(super) user_seconds: Option<u64>,
    pub(super) system_seconds: Option<u64>,
    pub(super) periods: Option<u64>,
    pub(super) throttled_periods: Option<u64>,
    pub(super) throttled_seconds: Option<u64>,
    pub(super) cache_bytes: Option<u64>,
    pub(super) mapped_bytes: Option<u64>,
    pub(super) swap_bytes: Option<u64>,
    pub(super) kernel_bytes: Option<u64>,
    pub(super) peak_bytes: Option<u64>,
    /// How often the limit of memory was hit.
    pub(super) limit_hits: Option<u64>,
    pub(super) oom_kills: Option<u64>,
    /// Page faults of the group alone, and of all below it: all, then major ones.
    pub(super) own_faults: [Option<u64>; 2],
    pub(super) all_faults: [Option<u64>; 2],
    pub(super) threads: Option<u64>,
    /// 0 where there is no limit.
    pub(super) max_threads: Option<u64>,
    pub(super) devices: Vec<DeviceUse>,
    /// By `PRESSURES`: seconds in which some waited, and in which all stood still.
    pub(super) pressure: [Option<(u64, u64)>; 3],
}

/// What went between a group and a block device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct DeviceUse {
    pub(super) major: u32,
    pub(super) minor: u32,
    /// Read, then written.
    pub(super) bytes: [u64; 2],
    pub(super) operations: [u64; 2],
}

impl DeviceUse {
    pub(super) fn name(&self) -> String {
        named(self.major, self.minor).unwrap_or_else(|| format!("{}:{}", self.major, self.minor))
    }
}

impl Details {
    /// Reads the groups of a process. Blocks.
    pub(super) fn of_container(pid: i32, id: &str) -> Details {
        let groups = Groups::of_container(pid, id);
        match groups.only_unified() {
            Some(folder) => unified(folder),
            None => split(&groups),
        }
    }
}

fn read(folder: Option<&PathBuf>, file: &str) -> String {
    let text = folder.map(|folder| fs::read_to_string(folder.join(file)));
    text.and_then(Result::ok).unwrap_or_default()
}

/// Returns a limit; 0 for the word `max`.
fn limit(folder: Option<&PathBuf>, file: &str) -> Option<u64> {
    match read(folder, file).trim() {
        "" => None,
        "max" => Some(0),
        value => value.parse().ok(),
    }
}

fn split(groups: &Groups) -> Details {
    let (memory, cpu) = (groups.memory.as_ref(), groups.cpu.as_ref());
    let throttling = read(groups.quota.as_ref(), "cpu.stat");
    let stat = read(memory, "memory.stat");
    let over = |value: Option<u64>, unit: u64| value.map(|value| value / unit);
    let faults = |own: &str, major: &str| [keyed(&stat, own), keyed(&stat, major)];
    let io = groups.io.as_ref();
    Details {
        user_seconds: over(number(cpu, "cpuacct.usage_user"), NANOS),
        system_seconds: over(number(cpu, "cpuacct.usage_sys"), NANOS),
        periods: keyed(&throttling, "nr_periods"),
        throttled_periods: keyed(&throttling, "nr_throttled"),
        throttled_seconds: over(keyed(&throttling, "throttled_time"), NANOS),
        cache_bytes: keyed(&stat, "total_cache"),
        mapped_bytes: keyed(&stat, "total_mapped_file"),
        // A kernel that doesn't count swap has no line of it.
        swap_bytes: keyed(&stat, "total_swap").or(Some(0).filter(|_| !stat.is_empty())),
        kernel_bytes: number(memory, "memory.kmem.usage_in_bytes"),
        peak_bytes: number(memory, "memory.max_usage_in_bytes"),
        limit_hits: number(memory, "memory.failcnt"),
        oom_kills: keyed(&read(memory, "memory.oom_control"), "oom_kill"),
        own_faults: faults("pgfault", "pgmajfault"),
        all_faults: faults("total_pgfault", "total_pgmajfault"),
        threads: number(groups.pids.as_ref(), "pids.current"),
        max_threads: limit(groups.pids.as_ref(), "pids.max"),
        devices: devices(
            &read(io, "blkio.throttle.io_service_bytes"),
            &read(io, "blkio.throttle.io_serviced"),
        ),
        pressure: [None; 3],
    }
}

fn unified(folder: &PathBuf) -> Details {
    let own = Some(folder);
    let (stat, cpu) = (read(own, "memory.stat"), read(own, "cpu.stat"));
    let seconds = |key: &str| keyed(&cpu, key).map(|value| value / MICROS);
    let faults = [keyed(&stat, "pgfault"), keyed(&stat, "pgmajfault")];
    let events = read(own, "memory.events");
    let throttled = |value: Option<u64>| value.or(Some(0).filter(|_| !cpu.is_empty()));
    Details {
        user_seconds: seconds("user_usec"),
        system_seconds: seconds("system_usec"),
        // A group without the controller has no lines of it, and is never throttled.
        periods: throttled(keyed(&cpu, "nr_periods")),
        throttled_periods: throttled(keyed(&cpu, "nr_throttled")),
        throttled_seconds: throttled(seconds("throttled_usec")),
        cache_bytes: keyed(&stat, "file"),
        mapped_bytes: keyed(&stat, "file_mapped"),
        swap_bytes: number(own, "memory.swap.current"),
        kernel_bytes: keyed(&stat, "kernel"),
        peak_bytes: number(own, "memory.peak"),
        limit_hits: keyed(&events, "max"),
        oom_kills: keyed(&events, "oom_kill"),
        // Version 2 counts with all below only.
        own_faults: faults,
        all_faults: faults,
        threads: number(own, "pids.current"),
        max_threads: limit(own, "pids.max"),
        devices: unified_devices(&read(own, "io.stat")),
        pressure: PRESSURES.map(|resource| pressure(folder, resource)),
    }
}

/// Reads `MAJOR:MINOR OPERATION VALUE` a line, of bytes and of operations.
fn devices(bytes: &str, operations: &str) -> Vec<DeviceUse> {
    let mut found: Vec<DeviceUse> = Vec::new();
    for (text, of_bytes) in [(bytes, true), (operations, false)] {
        for line in text.lines() {
            let mut words = line.split_whitespace();
            let (device, operation, value) = (words.next(), words.next(), words.next());
            let place = match operation {
                Some("Read") => 0,
                Some("Write") => 1,
                _ => continue,
            };
            let device = device.and_then(numbers);
            let Some(((major, minor), value)) = device.zip(value.and_then(|v| v.parse().ok()))
            else {
                continue;
            };
            let known = |one: &DeviceUse| (one.major, one.minor) == (major, minor);
            let at = found.iter().position(known).unwrap_or(found.len());
            if at == found.len() {
                found.push(DeviceUse {
                    major,
                    minor,
                    ..DeviceUse::default()
                });
            }
            let one = &mut found[at];
            let counters = if of_bytes {
                &mut one.bytes
            } else {
                &mut one.operations
            };
            counters[place] = value;
        }
    }
    found
}

/// Reads `MAJOR:MINOR rbytes=N wbytes=N rios=N wios=N ...` a line.
fn unified_devices(text: &str) -> Vec<DeviceUse> {
    let device = |line: &str| {
        let mut words = line.split_whitespace();
        let (major, minor) = numbers(words.next()?)?;
        let fields: Vec<_> = words.filter_map(|word| word.split_once('=')).collect();
        let field = |key: &str| {
            let found = fields.iter().find(|(name, _)| *name == key);
            found.and_then(|(_, value)| value.parse().ok()).unwrap_or(0)
        };
        Some(DeviceUse {
            major,
            minor,
            bytes: [field("rbytes"), field("wbytes")],
            operations: [field("rios"), field("wios")],
        })
    };
    text.lines().filter_map(device).collect()
}

fn numbers(device: &str) -> Option<(u32, u32)> {
    let (major, minor) = device.split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// Returns how long some, and all, have stood still for a resource.
fn pressure(folder: &Path, resource: &str) -> Option<(u64, u64)> {
    let text = fs::read_to_string(folder.join(format!("{resource}.pressure"))).ok()?;
    let total = |kind: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(kind))?;
        let micros: u64 = line.split_once("total=")?.1.trim().parse().ok()?;
        Some(micros / MICROS)
    };
    // A machine's own CPU pressure has no line for all.
    Some((total("some")?, total("full").unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_read_from_both_versions() {
        let expected = DeviceUse {
            major: 254,
            minor: 0,
            bytes: [4096, 8192],
            operations: [1, 2],
        };
        let bytes = "254:0 Read 4096\n254:0 Write 8192\n254:0 Sync 0\nTotal 12288\n";
        let operations = "254:0 Read 1\n254:0 Write 2\nTotal 3\n";
        assert_eq!(devices(bytes, operations), std::slice::from_ref(&expected));
        let stat = "254:0 rbytes=4096 wbytes=8192 rios=1 wios=2 dbytes=0 dios=0\n";
        assert_eq!(unified_devices(stat), [expected]);
    }

    #[test]
    fn a_group_of_version_one_is_read_from_its_files() {
        let folder = tempfile::tempdir().unwrap();
        let write = |file: &str, text: &str| fs::write(folder.path().join(file), text).unwrap();
        write("memory.stat", "pgfault 1\ntotal_pgfault 3\ntotal_cache 4\n");
        write(
            "memory.oom_control",
            "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
        );
        write("cpuacct.usage_user", "2500000000\n");
        write(
            "cpu.stat",
            "nr_periods 9\nnr_throttled 3\nthrottled_time 4000000000\n",
        );
        write("pids.max", "max\n");
        let all = || Some(folder.path().to_owned());
        let details = split(&Groups {
            memory: all(),
            cpu: all(),
            quota: all(),
            pids: all(),
            ..Groups::default()
        });
        assert_eq!(
            (details.own_faults[0], details.all_faults[0]),
            (Some(1), Some(3))
        );
        assert_eq!(
            (details.oom_kills, details.user_seconds),
            (Some(2), Some(2))
        );
        assert_eq!(
            (details.throttled_periods, details.throttled_seconds),
            (Some(3), Some(4))
        );
        assert_eq!(
            (details.max_threads, details.swap_bytes),
            (Some(0), Some(0))
        );
        assert_eq!(details.peak_bytes, None);
    }

    #[test]
    fn a_group_of_version_two_is_read_from_its_files() {
        let folder = tempfile::tempdir().unwrap();
        let write = |file: &str, text: &str| fs::write(folder.path().join(file), text).unwrap();
        write("memory.stat", "file 7\nkernel 5\n");
        write("memory.events", "low 0\nmax 4\noom 1\noom_kill 1\n");
        write("cpu.stat", "usage_usec 5\nuser_usec 3000000\n");
        write(
            "io.pressure",
            "some avg10=0.00 total=9000000\nfull avg10=0.00 total=2000000\n",
        );
        let details = unified(&folder.path().to_owned());
        assert_eq!(
            (details.cache_bytes, details.kernel_bytes),
            (Some(7), Some(5))
        );
        assert_eq!((details.limit_hits, details.oom_kills), (Some(4), Some(1)));
        assert_eq!((details.user_seconds, details.periods), (Some(3), Some(0)));
        assert_eq!(details.pressure, [None, None, Some((9, 2))]);
    }
}
