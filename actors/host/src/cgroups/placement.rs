//! The cgroups and out-of-memory scores of processes of the node that are no pod's.
//!
//! Upstream: `ensureProcessInContainerWithOOMScore` and `ensureSystemCgroups`
//! (pkg/kubelet/cm/container_manager_linux.go), 1.36.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use nix::unistd::{Pid, getsid};

use crate::cgroups::{CgroupError, CgroupFiles};

/// Generations of children that are looked at: the agent's plugins may have some of their own.
const MAX_GENERATIONS: u32 = 8;

/// This process and those of its descendants that share its session, read from `proc` (`/proc`).
///
/// That is the agent, its plugins and the programs they run. Pod monitors and containers are descendants of the native
/// runtime plugin too, but call `setsid`: they keep the cgroup and the `oom_score_adj` of their pod.
pub fn own_processes(proc: &Path) -> BTreeSet<u32> {
    let own = std::process::id();
    let session = getsid(None).ok();
    let mut found = BTreeSet::from([own]);
    let mut newest = found.clone();
    for _ in 0..MAX_GENERATIONS {
        newest = newest
            .iter()
            .flat_map(|pid| children(proc, *pid))
            .filter(|pid| !found.contains(pid) && session_of(*pid) == session)
            .collect();
        if newest.is_empty() {
            break;
        }
        found.extend(&newest);
    }
    found
}

/// `None` if the process has ended. Pid 0 is a session whose leader is outside this pid namespace, which is usual for an
/// agent in a container.
fn session_of(pid: u32) -> Option<Pid> {
    getsid(Some(Pid::from_raw(pid.cast_signed()))).ok()
}

fn children(proc: &Path, pid: u32) -> Vec<u32> {
    let threads = fs::read_dir(proc.join(pid.to_string()).join("task"));
    let lists = threads.into_iter().flatten().flatten();
    let lists = lists.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    let pids = |list: String| {
        let pids = list.split_whitespace().filter_map(|pid| pid.parse().ok());
        pids.collect::<Vec<u32>>()
    };
    lists.flat_map(pids).collect()
}

/// Makes the group, and puts those of the processes into it that are not there.
pub fn attach(
    files: &CgroupFiles,
    group: &str,
    processes: &BTreeSet<u32>,
) -> Result<(), CgroupError> {
    files.create(group)?;
    let there = files.processes_of(group)?;
    for pid in processes.difference(&there) {
        match files.attach(group, *pid) {
            // It has ended.
            Err(CgroupError::File { source, .. })
                if source.raw_os_error() == Some(NO_SUCH_PROCESS) => {}
            attached => attached?,
        }
    }
    Ok(())
}

const NO_SUCH_PROCESS: i32 = rustix::io::Errno::SRCH.raw_os_error();

/// Processes in the root group that may be moved: neither the first one nor the kernel's own, which have no program.
pub fn movable_of_root(files: &CgroupFiles, proc: &Path) -> Result<BTreeSet<u32>, CgroupError> {
    let mut found = files.processes_of("/")?;
    found.retain(|pid| *pid > 1 && fs::read_link(proc.join(format!("{pid}/exe"))).is_ok());
    Ok(found)
}

/// Sets how readily the kernel kills these processes when memory runs out; returns why it was refused.
pub fn set_oom_score(proc: &Path, processes: &BTreeSet<u32>, score: i32) -> Result<(), String> {
    for pid in processes {
        let file = proc.join(pid.to_string()).join("oom_score_adj");
        let known = fs::read_to_string(&file).unwrap_or_default();
        if known.trim() == score.to_string() {
            continue;
        }
        match fs::write(&file, score.to_string()) {
            Err(error) if file.exists() => {
                // Without the process: the next one would be another reason.
                return Err(format!("a score of {score} is refused: {error}"));
            }
            // It has ended.
            Ok(()) | Err(_) => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::process::{Command, Stdio};

    use rustix::process::{Pid, Signal, kill_process};

    use super::*;

    #[test]
    fn descendants_in_another_session_are_not_own_processes() {
        let proc = Path::new("/proc");
        let mut monitor = Command::new("setsid")
            .args(["sh", "-c", "sleep 100 & echo; wait"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // By the time it writes a line, it has called setsid and started its child.
        let said = monitor.stdout.take().unwrap().read(&mut [0]).unwrap();
        let container = children(proc, monitor.id());
        let own = own_processes(proc);
        for pid in &container {
            kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), Signal::KILL).unwrap();
        }
        monitor.kill().unwrap();
        monitor.wait().unwrap();
        assert_eq!((said, container.len()), (1, 1));
        assert!(
            !own.contains(&monitor.id()) && !own.contains(&container[0]),
            "{own:?}"
        );
    }

    #[test]
    fn children_are_the_processes_own() {
        let mut child = Command::new("sleep")
            .arg("100")
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let own = own_processes(Path::new("/proc"));
        assert!(
            own.contains(&std::process::id()) && own.contains(&child.id()),
            "{own:?}"
        );
        // A score may always be raised.
        let pid = BTreeSet::from([child.id()]);
        set_oom_score(Path::new("/proc"), &pid, 500).unwrap();
        let score = fs::read_to_string(format!("/proc/{}/oom_score_adj", child.id())).unwrap();
        assert_eq!(score.trim(), "500");
        child.kill().unwrap();
        child.wait().unwrap();
        set_oom_score(Path::new("/proc"), &pid, 600).unwrap();
    }
}
