//! What the processes of a container hold, read from `/proc`.

use std::fs;
use std::path::Path;

use super::super::cgroup::Groups;

/// Processes of one container that are looked at; what more there are goes uncounted in their files.
const MAX_PROCESSES: usize = 4096;

/// The processes of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Processes {
    pub(super) count: Option<u64>,
    pub(super) descriptors: Option<u64>,
    pub(super) sockets: Option<u64>,
    /// The limit of open files of its first process; none where there is no limit.
    pub(super) max_open_files: Option<u64>,
}

impl Processes {
    /// Counts what the processes in the group of this one hold. Blocks.
    pub(super) fn of_container(pid: i32, id: &str) -> Processes {
        let groups = Groups::of_container(pid, id);
        let list = groups.processes().map(|folder| folder.join("cgroup.procs"));
        let Some(Ok(listed)) = list.map(fs::read_to_string) else {
            return Processes::default();
        };
        let (mut descriptors, mut sockets) = (0, 0);
        for pid in listed.lines().take(MAX_PROCESSES) {
            // One that has ended meanwhile holds nothing.
            let (open, of_them) = count(&Path::new("/proc").join(pid).join("fd"));
            descriptors += open;
            sockets += of_them;
        }
        let limits = fs::read_to_string(format!("/proc/{pid}/limits")).unwrap_or_default();
        Processes {
            count: Some(listed.lines().count() as u64),
            descriptors: Some(descriptors),
            sockets: Some(sockets),
            max_open_files: soft_limit(&limits, "Max open files"),
        }
    }
}

/// Counts open descriptors, and the sockets among them.
fn count(folder: &Path) -> (u64, u64) {
    let links = fs::read_dir(folder).into_iter().flatten().flatten();
    links.fold((0, 0), |(open, sockets), link| {
        let target = fs::read_link(link.path()).unwrap_or_default();
        let is_socket = target.to_string_lossy().starts_with("socket:");
        (open + 1, sockets + u64::from(is_socket))
    })
}

/// Returns the soft limit of a line of `/proc/PID/limits`; none where it is unlimited.
fn soft_limit(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_are_counted_among_the_descriptors() {
        let own = Path::new("/proc/self/fd");
        let (open, sockets) = count(own);
        let _pair = std::os::unix::net::UnixStream::pair().unwrap();
        assert!(count(own) >= (open + 2, sockets + 2));
    }

    #[test]
    fn a_limit_is_found_by_its_name() {
        let text = "Limit   Soft Limit  Hard Limit Units\nMax open files   1024  4096  files\nMax cpu time   unlimited unlimited seconds\n";
        assert_eq!(soft_limit(text, "Max open files"), Some(1024));
        assert_eq!(soft_limit(text, "Max cpu time"), None);
    }
}
