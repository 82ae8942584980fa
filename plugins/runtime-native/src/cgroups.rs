//! The cgroups of containers, found by a container's id, for what no monitor does: ending processes that have no owner
//! any more, and removing groups however deep a container nested them.
//!
//! Everything here blocks. A container that manages cgroups may make groups at any depth, so nothing here recurses, and
//! groups are reached from their parents' descriptors.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use blocking_pool::Cancel;
use files::walk::{self, Crossing, Go, Spot, Visitor};
use rustix::fs::{AtFlags, Mode, OFlags, openat, unlinkat};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::time::Instant;

const ROOT: &str = "/sys/fs/cgroup";
const PROCESSES: &str = "cgroup.procs";
/// Kills all processes of a group and of those below it (cgroup v2, Linux 5.14).
const KILL: &str = "cgroup.kill";
/// The most process ids that are read of one group, in bytes. There may be more: a group is looked at until it is empty.
const MAX_PROCESSES_BYTES: u64 = 1 << 20;
/// Between two looks at processes that were killed.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Where the hierarchies are mounted: one on v2, the unified one and a folder for each other one on v1.
pub(crate) fn hierarchies() -> Vec<PathBuf> {
    let root = PathBuf::from(ROOT);
    if root.join(PROCESSES).exists() {
        return vec![root];
    }
    let entries = fs::read_dir(&root).into_iter().flatten().flatten();
    // Links are other names of what is there.
    entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .collect()
}

/// Kills every process in the groups of containers with these ids, and waits for their end for at most `within`; then
/// removes the groups. Returns how many processes were killed.
///
/// # Errors
/// `TimedOut` for processes that do not end; what the kernel says of reading groups.
pub(crate) fn end(ids: &[String], within: Duration) -> io::Result<usize> {
    let deadline = Instant::now() + within;
    let mut killed = 0;
    for hierarchy in hierarchies() {
        for group in named(&hierarchy, ids)? {
            killed += end_group(&group, deadline)?;
        }
    }
    Ok(killed)
}

fn end_group(group: &Path, deadline: Instant) -> io::Result<usize> {
    let mut killed = 0;
    loop {
        // What is missing on v1 is done one by one below.
        drop(fs::write(group.join(KILL), "1"));
        let mut kill = Kill::default();
        go_through(group, &mut kill)?;
        if kill.found == 0 {
            remove(group);
            return Ok(killed);
        }
        killed = killed.max(kill.found);
        if Instant::now() >= deadline || Cancel::current().is_set() {
            let why = format!("{} processes in {} do not end", kill.found, group.display());
            return Err(io::Error::new(io::ErrorKind::TimedOut, why));
        }
        drop(Cancel::current().sleep(LOOK_AGAIN));
    }
}

/// Removes a group with those below it, the innermost first, as far as nobody is in them. A group that is not there is
/// fine, and one that cannot be removed stays.
pub(crate) fn remove(group: &Path) {
    if let Err(error) = go_through(group, &mut Remove) {
        tracing::debug!(cgroup = %group.display(), %error, "cgroups cannot be removed");
    }
    if let Err(error) = fs::remove_dir(group)
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::debug!(cgroup = %group.display(), %error, "a cgroup stays");
    }
}

fn go_through(group: &Path, visitor: &mut impl Visitor<Error = Errno>) -> io::Result<()> {
    match walk::open(group) {
        Ok(folder) => Ok(walk::walk(folder, group, Crossing::Refused, visitor)?),
        Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Finds the topmost groups whose names have one of these ids in them, as OCI runtimes name the groups of containers.
fn named(hierarchy: &Path, ids: &[String]) -> io::Result<Vec<PathBuf>> {
    let mut named = Named {
        ids,
        found: Vec::new(),
    };
    go_through(hierarchy, &mut named)?;
    Ok(named.found)
}

struct Named<'a> {
    ids: &'a [String],
    found: Vec<PathBuf>,
}

impl Visitor for Named<'_> {
    type Error = Errno;

    fn check(&mut self) -> Result<(), Errno> {
        Ok(())
    }

    fn thing(&mut self, _: &Spot<'_>) -> Result<(), Errno> {
        Ok(())
    }

    fn enter(&mut self, spot: &Spot<'_>) -> Result<Go, Errno> {
        let name = spot.name.to_string_lossy();
        if self.ids.iter().any(|id| name.contains(id.as_str())) {
            self.found.push(spot.path.to_owned());
            return Ok(Go::Past);
        }
        Ok(Go::In)
    }

    fn leave(&mut self, _: &Spot<'_>) -> Result<(), Errno> {
        Ok(())
    }

    fn failed(&mut self, _: &Path, _: Errno) -> Result<(), Errno> {
        Ok(())
    }

    fn lost(&mut self, _: &Path, error: Errno) -> Errno {
        error
    }
}

/// Kills what is in each group.
#[derive(Default)]
struct Kill {
    found: usize,
}

impl Visitor for Kill {
    type Error = Errno;

    fn check(&mut self) -> Result<(), Errno> {
        Ok(())
    }

    fn thing(&mut self, spot: &Spot<'_>) -> Result<(), Errno> {
        if spot.name.to_bytes() != PROCESSES.as_bytes() {
            return Ok(());
        }
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let Ok(file) = openat(spot.folder, spot.name, flags, Mode::empty()) else {
            return Ok(());
        };
        let mut text = String::new();
        // A threaded group of v2 has no list of processes: its domain above has them.
        drop(
            File::from(file)
                .take(MAX_PROCESSES_BYTES)
                .read_to_string(&mut text),
        );
        let pids = text.lines().filter_map(|line| line.parse().ok());
        for pid in pids.filter_map(Pid::from_raw) {
            self.found += 1;
            // One that has ended meanwhile needs no signal.
            if let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) {
                let _ = pidfd_send_signal(process, Signal::KILL);
            }
        }
        Ok(())
    }

    fn leave(&mut self, _: &Spot<'_>) -> Result<(), Errno> {
        Ok(())
    }

    fn failed(&mut self, _: &Path, _: Errno) -> Result<(), Errno> {
        Ok(())
    }

    fn lost(&mut self, _: &Path, error: Errno) -> Errno {
        error
    }
}

/// Removes each group after those in it.
struct Remove;

impl Visitor for Remove {
    type Error = Errno;

    fn check(&mut self) -> Result<(), Errno> {
        Ok(())
    }

    fn thing(&mut self, _: &Spot<'_>) -> Result<(), Errno> {
        Ok(())
    }

    fn leave(&mut self, spot: &Spot<'_>) -> Result<(), Errno> {
        // One with processes, or with a group that stays, stays.
        let _ = unlinkat(spot.folder, spot.name, AtFlags::REMOVEDIR);
        Ok(())
    }

    fn failed(&mut self, _: &Path, _: Errno) -> Result<(), Errno> {
        Ok(())
    }

    fn lost(&mut self, _: &Path, error: Errno) -> Errno {
        error
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::thread;

    use super::*;

    /// A group of this test's own in a hierarchy that takes processes without more ado; removed with what is in it.
    struct Group(PathBuf);

    impl Group {
        fn make(name: &str) -> Group {
            let all = hierarchies();
            let pids = all.iter().find(|path| path.ends_with("pids"));
            let hierarchy = pids.or(all.first()).unwrap();
            let group = hierarchy.join(format!("oxlet-test-{name}-{}", std::process::id()));
            fs::create_dir(&group).unwrap();
            Group(group)
        }
    }

    impl Drop for Group {
        fn drop(&mut self) {
            drop(end_group(&self.0, Instant::now() + Duration::from_secs(5)));
        }
    }

    #[test]
    fn forty_nested_groups_are_removed() {
        let group = Group::make("nested");
        let deep: PathBuf = (0..40).map(|n| n.to_string()).collect();
        fs::create_dir_all(group.0.join(&deep)).unwrap();
        fs::create_dir(group.0.join("beside")).unwrap();
        remove(&group.0);
        assert!(!group.0.exists());
        remove(&group.0);
    }

    #[test]
    fn processes_are_found_by_a_containers_id_and_ended_with_their_groups() {
        let group = Group::make("ended");
        let id = format!("c0ffee{}", std::process::id());
        let inner = group.0.join(format!("cri-{id}.scope/own/deeper"));
        fs::create_dir_all(&inner).unwrap();
        let mut sleeps = Command::new("sleep").arg("600").spawn().unwrap();
        fs::write(inner.join(PROCESSES), sleeps.id().to_string()).unwrap();
        let reaper = thread::spawn(move || sleeps.wait().unwrap());
        assert_eq!(end(&[id], Duration::from_secs(20)).unwrap(), 1);
        assert!(!reaper.join().unwrap().success());
        assert_eq!(
            fs::read_dir(&group.0)
                .unwrap()
                .flatten()
                .filter(|entry| entry.path().is_dir())
                .count(),
            0
        );
    }
}
