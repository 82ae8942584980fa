//! Every process in a container's groups killed, for a container whose runtime cannot be asked.

use std::ffi::CString;
use std::fs;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Result;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::tree::Place;

/// How much of a group's list of processes is read in a round, in bytes.
const MAX_LIST_BYTES: u64 = 1 << 20;
/// How many groups of one tree are looked at in a round.
const MAX_GROUPS: usize = 1 << 16;

/// What a group of the v1 freezer is told by.
const FREEZER: &str = "freezer.state";

/// The kill of a container's processes, in rounds: a process that forks meanwhile is found by the next one.
#[derive(Clone, Debug)]
pub(crate) struct GroupKill {
    groups: Vec<PathBuf>,
}

impl GroupKill {
    pub(crate) fn new(groups: Vec<PathBuf>) -> GroupKill {
        GroupKill { groups }
    }

    /// The groups, each with those in it.
    pub(crate) fn groups(&self) -> &[PathBuf] {
        &self.groups
    }

    /// Kills what is in the groups; returns how many processes were there.
    pub(crate) fn round(&self) -> usize {
        // Frozen, none of them forks or ends while the others are looked for. A frozen process of v1 dies once it is thawed.
        let is_v1 = |group: &&PathBuf| group.join(FREEZER).exists();
        let freezers: Vec<_> = self.groups.iter().filter(is_v1).collect();
        for freezer in &freezers {
            // A group that cannot be frozen is killed in more rounds.
            drop(fs::write(freezer.join(FREEZER), "FROZEN"));
        }
        let found = self.groups.iter().map(|group| kill_group(group)).sum();
        for freezer in freezers {
            // Each group in it as well: the container may have frozen some itself.
            let _ = visit(freezer, |group, _| thaw(group));
        }
        found
    }
}

fn thaw(group: &OwnedFd) {
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    if let Ok(state) = openat(group, FREEZER, flags, Mode::empty()) {
        // The top of a hierarchy has no state; nobody is frozen by it.
        let _ = rustix::io::write(state, b"THAWED");
    }
}

/// Kills what is in one tree of groups.
fn kill_group(group: &Path) -> usize {
    let mut found = 0;
    // A tree that goes away meanwhile has nobody in it.
    let _ = visit(group, |place, relative| {
        for pid in processes(place) {
            found += 1;
            kill_in(pid, relative);
        }
    });
    // Of v2, Linux 5.14: the kernel kills those as well that were forked meanwhile.
    drop(fs::write(group.join("cgroup.kill"), "1"));
    found
}

/// Visits every group of a tree, each before those in it.
fn visit(top: &Path, mut visit: impl FnMut(&OwnedFd, &[u8])) -> Result<()> {
    let Some(name) = top.file_name() else {
        return Ok(());
    };
    let own = name.as_encoded_bytes();
    let mut place = Place::above(top)?;
    let mut pending = vec![vec![CString::new(own).unwrap_or_default()]];
    let mut left = MAX_GROUPS;
    while let Some(level) = pending.last_mut() {
        let Some(name) = level.pop() else {
            pending.pop();
            if place.ascend()?.is_none() {
                break;
            }
            continue;
        };
        if place.descend(&name).is_err() {
            continue;
        }
        visit(place.fd(), own);
        let below = place.groups(left, |_| true)?;
        left -= below.len();
        pending.push(below);
    }
    Ok(())
}

/// The processes in a group, as the host counts them.
fn processes(group: &OwnedFd) -> Vec<Pid> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let Ok(list) = openat(group, "cgroup.procs", flags, Mode::empty()) else {
        return Vec::new();
    };
    let mut text = String::new();
    // Refused for a threaded group of v2: its processes are listed above it.
    drop(
        fs::File::from(list)
            .take(MAX_LIST_BYTES)
            .read_to_string(&mut text),
    );
    text.lines()
        .filter_map(|line| Pid::from_raw(line.parse().ok()?))
        .collect()
}

/// Kills a process unless it is in no group of that name any more: then the id is another one's.
fn kill_in(pid: Pid, group: &[u8]) {
    let Ok(pidfd) = pidfd_open(pid, PidfdFlags::empty()) else {
        return;
    };
    let memberships = fs::read(format!("/proc/{}/cgroup", pid.as_raw_nonzero()));
    let is_in = |line: &[u8]| line.split(|byte| *byte == b'/').any(|part| part == group);
    if memberships.is_ok_and(|text| text.split(|byte| *byte == b'\n').any(is_in)) {
        // One that ends at this moment needs no signal.
        let _ = pidfd_send_signal(&pidfd, Signal::KILL);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    use super::*;
    use crate::cgroup::{GroupRemoval, hierarchies};

    #[test]
    fn every_process_in_the_groups_is_killed_and_no_other() {
        let name = format!("oxlet-monitor-kill-{}", std::process::id());
        let mut outside = Command::new("sleep").arg("1000").spawn().unwrap();
        for hierarchy in hierarchies().unwrap() {
            let group = hierarchy.mount.join(&name);
            let deep = (0..40).fold(group.clone(), |path, _| path.join("n"));
            if fs::create_dir_all(&deep).is_err() {
                continue;
            }
            let mut children: Vec<_> = [&group, &deep]
                .into_iter()
                .filter_map(|group| {
                    let child = Command::new("sleep").arg("1000").spawn().unwrap();
                    let procs = group.join("cgroup.procs");
                    // A v1 cpuset takes none before it has CPUs.
                    if fs::write(procs, child.id().to_string()).is_ok() {
                        return Some(child);
                    }
                    let mut child = child;
                    child.kill().unwrap();
                    child.wait().unwrap();
                    None
                })
                .collect();
            let kill = GroupKill::new(vec![group.clone()]);
            assert_eq!(kill.round(), children.len(), "{}", group.display());
            for child in &mut children {
                assert_eq!(child.wait().unwrap().signal(), Some(9));
            }
            assert_eq!(kill.round(), 0);
            let mut removal = GroupRemoval::new(&group).unwrap();
            while removal.go_on(100) {}
        }
        assert!(outside.try_wait().unwrap().is_none());
        outside.kill().unwrap();
        outside.wait().unwrap();
    }
}
