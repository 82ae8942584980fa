//! Capacity of the machine: CPUs, memory, swap, huge pages, disk, process ids, its kernel.
//!
//! Read once, at the start, from `/proc` and `/sys`. What the machine does not report counts as zero or as
//! none, and the log says so: an agent that cannot read its memory still runs pods that request none.
//! Upstream: cAdvisor's machine.go, util/sysinfo and pkg/kubelet/stats/pidlimit, 1.36.

use std::fs;
use std::path::Path;
use std::thread::available_parallelism;

use logic_api::text::sysctls::KernelVersion;
use logic_resources::node::{MachineFacts, Support};

use crate::meminfo::MemInfo;
use crate::{cpus, huge_pages};

/// Reads the machine; `root_dir` is the agent's root folder, whose file system pods write to. At an agent's first start
/// it isn't made yet: the nearest folder above it is on the file system that it will be on.
pub fn read(root_dir: &Path) -> MachineFacts {
    MachineFiles {
        proc: Path::new("/proc"),
        sys: Path::new("/sys"),
    }
    .read(root_dir)
}

/// The mount points of `/proc` and `/sys`.
#[derive(Debug)]
struct MachineFiles<'a> {
    proc: &'a Path,
    sys: &'a Path,
}

impl MachineFiles<'_> {
    fn read(&self, root_dir: &Path) -> MachineFacts {
        MachineFacts {
            cpus: self.cpus(),
            memory: self.memory(),
            swap: self.swap(),
            huge_pages: huge_pages::read(self.sys),
            ephemeral_storage: file_system(root_dir),
            pids: self.pids(),
            kernel: KernelVersion::parse(&text(&self.proc.join("sys/kernel/osrelease"))),
            app_armor: self.app_armor(),
        }
    }

    /// The CPUs that are online, whichever of them this process may use.
    fn cpus(&self) -> u32 {
        let online = cpus::count(&text(&self.sys.join("devices/system/cpu/online")));
        online.filter(|cpus| *cpus > 0).unwrap_or_else(|| {
            let usable = available_parallelism().map_or(1, usize::from);
            u32::try_from(usable).unwrap_or(u32::MAX)
        })
    }

    fn memory(&self) -> u64 {
        let memory = MemInfo::read(self.proc);
        let total = memory.and_then(|memory| memory.bytes("MemTotal"));
        total.unwrap_or_else(|error| {
            tracing::debug!("the machine's memory is not known: {error}");
            0
        })
    }

    fn swap(&self) -> u64 {
        let text = text(&self.proc.join("swaps"));
        let sizes = text.lines().skip(1);
        sizes
            .map(|line| kibibytes(line.split_whitespace().nth(2)))
            .fold(0, u64::saturating_add)
    }

    /// The smaller of the machine's two limits on process ids.
    fn pids(&self) -> u64 {
        let limits = ["pid_max", "threads-max"];
        let limits = limits.map(|name| text(&self.proc.join("sys/kernel").join(name)));
        let numbers = limits.iter().filter_map(|text| text.trim().parse().ok());
        numbers.min().unwrap_or(0)
    }

    fn app_armor(&self) -> Support {
        let enabled = text(&self.sys.join("module/apparmor/parameters/enabled"));
        let mounted = self.sys.join("kernel/security/apparmor").exists();
        match mounted && enabled.starts_with('Y') {
            true => Support::Yes,
            false => Support::No,
        }
    }
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| {
        tracing::debug!("{} cannot be read: {error}", path.display());
        String::new()
    })
}

fn kibibytes(word: Option<&str>) -> u64 {
    let number = word.and_then(|word| word.parse::<u64>().ok());
    number.unwrap_or(0).saturating_mul(1024)
}

/// The capacity in bytes of the file system that a folder lies on.
fn file_system(folder: &Path) -> Option<u64> {
    let there = folder.ancestors().find(|above| above.exists());
    match rustix::fs::statvfs(there.unwrap_or(folder)) {
        Ok(stat) => stat.f_blocks.checked_mul(stat.f_frsize),
        Err(error) => {
            tracing::warn!(
                "the file system of {} does not tell its size, the node offers no ephemeral storage: {error}",
                folder.display()
            );
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn write(root: &Path, files: &[(&str, &str)]) {
        for (name, text) in files {
            let path = root.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
    }

    #[test]
    fn the_machine_is_read_from_what_the_kernel_shows() {
        let folder = tempfile::tempdir().unwrap();
        let (proc, sys) = (folder.path().join("proc"), folder.path().join("sys"));
        write(
            &proc,
            &[
                ("meminfo", "MemTotal:  2048 kB\nMemFree:  1 kB\n"),
                (
                    "swaps",
                    "Filename Type Size Used Priority\n/a file 1024 0 -2\n/b partition 2048 9 -3\n",
                ),
                ("sys/kernel/pid_max", "4194304\n"),
                ("sys/kernel/threads-max", "1000\n"),
                ("sys/kernel/osrelease", "6.1.0-18-amd64\n"),
            ],
        );
        write(
            &sys,
            &[
                ("devices/system/cpu/online", "0-3,8,10-11\n"),
                ("kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "7\n"),
                (
                    "kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages",
                    "0\n",
                ),
                ("kernel/mm/hugepages/other/nr_hugepages", "1\n"),
                ("module/apparmor/parameters/enabled", "Y\n"),
                ("kernel/security/apparmor/profiles", ""),
            ],
        );
        let source = MachineFiles {
            proc: &proc,
            sys: &sys,
        };
        let machine = source.read(folder.path());
        assert_eq!(
            (machine.cpus, machine.memory, machine.swap),
            (7, 2 << 20, 3 << 20)
        );
        assert_eq!(
            machine.huge_pages,
            BTreeMap::from([(2 << 20, 7), (1 << 30, 0)])
        );
        assert_eq!(
            (machine.pids, machine.kernel),
            (1000, Some(KernelVersion(6, 1)))
        );
        assert_eq!(machine.app_armor, Support::Yes);
        assert!(machine.ephemeral_storage > Some(0));
    }

    #[test]
    fn a_root_folder_that_is_not_made_yet_has_the_size_of_where_it_will_be() {
        let folder = tempfile::tempdir().unwrap();
        let size = file_system(folder.path());
        assert!(size > Some(0));
        assert_eq!(file_system(&folder.path().join("var/lib/kubelet")), size);
    }

    #[test]
    fn a_machine_that_tells_nothing_has_a_cpu_and_no_memory() {
        let nowhere = Path::new("/nonexistent");
        let source = MachineFiles {
            proc: nowhere,
            sys: nowhere,
        };
        let machine = source.read(Path::new(""));
        assert!(machine.cpus > 0);
        let expected = MachineFacts {
            cpus: machine.cpus,
            ..MachineFacts::default()
        };
        assert_eq!(machine, expected);
    }

    /// Upstream's TestIsSwapEnabled.
    #[test]
    fn swap_is_what_the_kernel_lists_below_its_heading() {
        let header = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n";
        let one = "/dev/dm-1               partition\t33554428\t0\t\t-2\n";
        let two = "/dev/zram0              partition\t8388604\t\t0\t\t100\n";
        for (text, kibibytes) in [
            (String::new(), 0),
            ("\n\n".to_owned(), 0),
            (header.to_owned(), 0),
            (format!("{header}{one}"), 33_554_428),
            (format!("{header}{one}{two}"), 33_554_428 + 8_388_604),
        ] {
            let folder = tempfile::tempdir().unwrap();
            write(folder.path(), &[("swaps", &text)]);
            let source = MachineFiles {
                proc: folder.path(),
                sys: folder.path(),
            };
            assert_eq!(source.swap(), kibibytes * 1024, "{text:?}");
        }
    }
}
