//! Block devices by their numbers, with their counters, and the file systems that are mounted from them.
//!
//! Upstream: cAdvisor's fs/fs.go and its plugins, without the usage of single btrfs and zfs volumes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Devices and file systems that are read.
const MAX_DEVICES: usize = 4096;
const SECTOR_TIME: u64 = 1_000_000;
/// The kinds of file systems that are shown, beside `ext2` to `ext4`.
const KINDS: [&str; 4] = ["btrfs", "tmpfs", "xfs", "zfs"];

/// Counters of one device; times in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceCounters {
    pub reads: u64,
    pub reads_merged: u64,
    pub sectors_read: u64,
    pub read_time: u64,
    pub writes: u64,
    pub writes_merged: u64,
    pub sectors_written: u64,
    pub write_time: u64,
    pub in_progress: u64,
    pub io_time: u64,
    pub weighted_time: u64,
}

/// The machine's devices by their numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockDevices(BTreeMap<(u32, u32), (String, DeviceCounters)>);

impl BlockDevices {
    /// Reads `diskstats` below `proc`, which is `/proc`.
    pub fn read(proc: &Path) -> Self {
        let text = fs::read_to_string(proc.join("diskstats")).unwrap_or_default();
        BlockDevices(text.lines().filter_map(device).take(MAX_DEVICES).collect())
    }

    /// The path of a device's file, such as `/dev/sda`; empty for an unknown one.
    pub fn name(&self, number: (u32, u32)) -> &str {
        self.0.get(&number).map_or("", |(name, _)| name)
    }

    fn counters(&self, number: (u32, u32)) -> DeviceCounters {
        let device = self.0.get(&number);
        device.map(|(_, counters)| *counters).unwrap_or_default()
    }
}

/// A line of `diskstats`: two numbers, a name, and eleven or more counters.
fn device(line: &str) -> Option<((u32, u32), (String, DeviceCounters))> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [major, minor, name, rest @ ..] = &words[..] else {
        return None;
    };
    let counters: Option<Vec<u64>> = rest.iter().map(|word| word.parse().ok()).collect();
    let counters = counters.filter(|counters| counters.len() >= 11)?;
    let time = |index: usize| counters[index].saturating_mul(SECTOR_TIME);
    let stats = DeviceCounters {
        reads: counters[0],
        reads_merged: counters[1],
        sectors_read: counters[2],
        read_time: time(3),
        writes: counters[4],
        writes_merged: counters[5],
        sectors_written: counters[6],
        write_time: time(7),
        in_progress: counters[8],
        io_time: time(9),
        weighted_time: time(10),
    };
    let number = (major.parse().ok()?, minor.parse().ok()?);
    Some((number, (format!("/dev/{name}"), stats)))
}

/// One mounted file system of the machine, in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MountedFileSystem {
    /// The device's path; of a tmpfs where it is mounted.
    pub device: String,
    pub capacity: u64,
    pub free: u64,
    pub inodes: u64,
    pub inodes_free: u64,
    pub counters: DeviceCounters,
}

/// Every file system of a device, each once, and every tmpfs. Asking for its usage may hang where a disk does. One that
/// cannot be asked is left out.
pub fn file_systems(proc: &Path, devices: &BlockDevices) -> Vec<MountedFileSystem> {
    let text = fs::read_to_string(proc.join("self/mountinfo")).unwrap_or_default();
    let mut seen = BTreeSet::new();
    let mounts = text.lines().filter_map(mount).take(MAX_DEVICES);
    let fresh = mounts.filter(|mount| seen.insert(mount.device.clone()));
    fresh.filter_map(|mount| usage(&mount, devices)).collect()
}

#[derive(Debug)]
struct Mount {
    device: String,
    number: (u32, u32),
    point: PathBuf,
}

/// A line of `mountinfo`: `ID PARENT MAJOR:MINOR ROOT POINT OPTIONS... - KIND SOURCE ...`
fn mount(line: &str) -> Option<Mount> {
    let (before, after) = line.split_once(" - ")?;
    let words: Vec<&str> = before.split(' ').collect();
    let mut after = after.split(' ');
    let (kind, source) = (after.next()?, after.next()?);
    let (major, minor) = words.get(2)?.split_once(':')?;
    // Spaces and the like are written as octal numbers.
    let point = words.get(4).filter(|point| !point.contains('\\'))?;
    let device = match kind {
        "tmpfs" => (*point).to_owned(),
        _ if KINDS.contains(&kind) || kind.starts_with("ext") => source.to_owned(),
        _ => return None,
    };
    Some(Mount {
        device,
        number: (major.parse().ok()?, minor.parse().ok()?),
        point: PathBuf::from(point),
    })
}

fn usage(mount: &Mount, devices: &BlockDevices) -> Option<MountedFileSystem> {
    let stat = rustix::fs::statvfs(&mount.point).ok()?;
    let bytes = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
    Some(MountedFileSystem {
        device: mount.device.clone(),
        capacity: bytes(stat.f_blocks),
        free: bytes(stat.f_bfree),
        inodes: stat.f_files,
        inodes_free: stat.f_ffree,
        counters: devices.counters(mount.number),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_have_names_and_counters_and_nonsense_has_none() {
        let folder = tempfile::tempdir().unwrap();
        let text = "   8       0 sda 1 2 3 4 5 6 7 8 9 10 11 0 0 0 0\n   8 1 sda1 1 2\n 8 x sdb 1 2 3 4 5 6 7 8 9 10 11\n\n 7 0 loop0 1 2 3 -4 5 6 7 8 9 10 11\n";
        fs::write(folder.path().join("diskstats"), text).unwrap();
        let devices = BlockDevices::read(folder.path());
        assert_eq!(
            (devices.name((8, 0)), devices.name((8, 1))),
            ("/dev/sda", "")
        );
        let counters = devices.counters((8, 0));
        assert_eq!(
            (counters.reads, counters.writes, counters.in_progress),
            (1, 5, 9)
        );
        assert_eq!(
            (counters.read_time, counters.io_time),
            (4_000_000, 10_000_000)
        );
        assert_eq!(devices.0.len(), 1);
    }

    #[test]
    fn a_device_that_is_mounted_twice_is_one_file_system_and_each_tmpfs_is_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().display();
        let text = format!(
            "1 0 8:0 / {path} rw - ext4 /dev/sda rw\n2 1 8:0 /x / rw - ext4 /dev/sda rw\n3 1 0:5 / / rw - tmpfs tmpfs rw\n4 1 0:6 / {path} rw shared:1 - tmpfs tmpfs rw\n5 1 0:7 / /proc rw - proc proc rw\n6 1 8:9 / /nonexistent rw - xfs /dev/sdc rw\nnonsense\n"
        );
        fs::create_dir_all(folder.path().join("self")).unwrap();
        fs::write(folder.path().join("self/mountinfo"), text).unwrap();
        let found = file_systems(folder.path(), &BlockDevices::default());
        let names: Vec<&str> = found.iter().map(|one| one.device.as_str()).collect();
        assert_eq!(names, ["/dev/sda", "/", path.to_string().as_str()]);
        assert!(found[0].capacity > 0 && found[0].capacity >= found[0].free);
    }
}
