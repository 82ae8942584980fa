//! Takes away what a node leaves outside of its folder: plugin processes, links to logs, cgroups.
//!
//! Nothing here fails: what cannot be removed is reported on standard error and the rest goes on.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use logic_resources::cgroups::Hierarchy;
use nix::mount::{MntFlags, umount2};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{PidfdFlags, pidfd_open};

/// Where the links for log collectors are; upstream has no setting for it.
const LINKS: &str = "/var/log/containers";
/// The folder of the native runtime below the agent's root folder.
const NATIVE: &str = "oxlet/plugins/runtime/native";
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// Above the cgroups of the plugins of every node.
const PLUGINS: &str = "oxlet";

/// Ends the plugins of the agent with this root folder, and removes the links to its logs.
pub(super) fn remove(root: &Path, logs: &Path) {
    let plugins = plugins(root);
    let process = |pid: &Pid| {
        pidfd_open(
            rustix::process::Pid::from_raw(pid.as_raw())?,
            PidfdFlags::empty(),
        )
        .ok()
    };
    let processes: Vec<_> = plugins.iter().filter_map(process).collect();
    for pid in plugins {
        // Ended by itself meanwhile, perhaps: a plugin does not outlive its agent.
        kill(pid, Signal::SIGKILL).ok();
    }
    let within = Timespec {
        tv_sec: 2,
        tv_nsec: 0,
    };
    for process in &processes {
        // Until then its cgroup cannot be removed. One that is stuck keeps its cgroup.
        poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&within)).ok();
    }
    let Ok(links) = fs::read_dir(LINKS) else {
        return;
    };
    for link in links.filter_map(|entry| Some(entry.ok()?.path())) {
        if fs::read_link(&link).is_ok_and(|target| target.starts_with(logs))
            && let Err(error) = fs::remove_file(&link)
        {
            eprintln!("agent rig: {} is not removed: {error}", link.display());
        }
    }
}

/// Returns the cgroup of a node in this folder: its pods' groups lie below it unless a test says otherwise.
pub(super) fn cgroup(dir: &Path) -> String {
    let name = dir.file_name().unwrap_or_default().to_string_lossy();
    format!(
        "/oxlet-node-{}",
        name.replace(|c: char| !c.is_ascii_alphanumeric(), "")
    )
}

/// Removes the groups of a node in this folder. One with processes stays: it is its runtime's to end them.
pub(super) fn remove_cgroups(dir: &Path) {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let Some(hierarchy) = Hierarchy::parse(&mounts) else {
        return;
    };
    for top in hierarchy.tops() {
        remove_group(&top.join(cgroup(dir).trim_start_matches('/')));
        remove_group(&top.join(plugins_cgroup(dir)));
        // The last node of the machine takes the parent away.
        fs::remove_dir(top.join(PLUGINS)).ok();
    }
}

/// Ends the monitors and containers of a node in this folder that was on the native runtime: nothing else does.
pub(super) fn end_native(root: &Path, dir: &Path) {
    if !root.join(NATIVE).exists() {
        return;
    }
    let root = root.as_os_str().as_bytes();
    let is_monitor = |pid: &i32| {
        let program = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        program.ends_with("oxlet-monitor") && line.windows(root.len()).any(|part| part == root)
    };
    for pid in processes().into_iter().filter(is_monitor) {
        kill(Pid::from_raw(pid), Signal::SIGKILL).ok();
    }
    let deadline = kernel::now() + END_TIMEOUT;
    while kernel::now() < deadline {
        let left = members(dir);
        if left.is_empty() {
            return;
        }
        for pid in left {
            kill(pid, Signal::SIGKILL).ok();
        }
        std::thread::yield_now();
    }
    eprintln!("agent rig: processes of {} do not end", cgroup(dir));
}

/// The processes in the groups of a node in this folder.
fn members(dir: &Path) -> Vec<Pid> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let Some(hierarchy) = Hierarchy::parse(&mounts) else {
        return Vec::new();
    };
    let name = cgroup(dir);
    let mut groups: Vec<_> = hierarchy
        .tops()
        .into_iter()
        .map(|top| top.join(name.trim_start_matches('/')))
        .collect();
    let mut found = Vec::new();
    while let Some(group) = groups.pop() {
        let pids = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
        found.extend(
            pids.lines()
                .filter_map(|pid| pid.parse().ok())
                .map(Pid::from_raw),
        );
        let inner = fs::read_dir(&group).into_iter().flatten().flatten();
        groups.extend(inner.map(|entry| entry.path()).filter(|path| path.is_dir()));
    }
    found
}

/// Returns the cgroup of the plugins of a node in this folder: its root folder's path in one word.
fn plugins_cgroup(dir: &Path) -> String {
    let root = dir.join("root");
    let parts: Vec<_> = root
        .iter()
        .skip(1)
        .map(|part| part.to_string_lossy())
        .collect();
    format!("{PLUGINS}/{}", parts.join("-"))
}

/// Unmounts what is still mounted below this folder, the last mount first: the folder's removal must not walk into it.
pub(super) fn unmount(dir: &Path) {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let points = mounts.lines().filter_map(|line| line.split(' ').nth(4));
    let below = points.filter(|point| Path::new(point).starts_with(dir));
    for point in below.collect::<Vec<_>>().into_iter().rev() {
        let flags = MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW;
        if let Err(error) = umount2(Path::new(point), flags) {
            eprintln!("agent rig: {point} stays mounted: {error}");
        }
    }
}

fn remove_group(group: &Path) {
    let inner = fs::read_dir(group).into_iter().flatten().flatten();
    for entry in inner.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        remove_group(&entry.path());
    }
    // It was not made for this controller, or is still in use.
    fs::remove_dir(group).ok();
}

/// Ends the agent of a node whose own process is gone: it names its folder on its command line.
pub(super) fn end_stray(dir: &Path) {
    let config = format!("--config={}", dir.join("config.yaml").display());
    let stray = |pid: &i32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let mut words = line.split(|byte| *byte == 0);
        words
            .next()
            .is_some_and(|program| program.ends_with(b"oxlet"))
            && words.any(|word| word == config.as_bytes())
    };
    for pid in processes().into_iter().filter(stray) {
        kill(Pid::from_raw(pid), Signal::SIGKILL).ok();
    }
}

fn processes() -> Vec<i32> {
    let Ok(processes) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let numbered = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    numbered.collect()
}

/// The plugin processes of the agent with this root folder, by what their environment says: a killed agent's, too.
pub(super) fn plugins(root: &Path) -> Vec<Pid> {
    of(root, None)
}

/// Those of one plugin, by the name of its host.
pub(super) fn plugin(root: &Path, name: &str) -> Vec<Pid> {
    of(root, Some(name))
}

fn of(root: &Path, name: Option<&str>) -> Vec<Pid> {
    let mut wanted = b"OXLET_PLUGIN_DIR=".to_vec();
    wanted.extend_from_slice(root.as_os_str().as_bytes());
    wanted.push(b'/');
    let named = name.map(|name| format!("OXLET_PLUGIN_NAME={name}"));
    let ours = |pid: &i32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let variables: Vec<_> = environment.split(|byte| *byte == 0).collect();
        let has_name = |named: &String| variables.contains(&named.as_bytes());
        named.as_ref().is_none_or(has_name)
            && variables
                .iter()
                .any(|variable| variable.starts_with(&wanted))
    };
    let ours = processes().into_iter().filter(ours);
    ours.map(Pid::from_raw).collect()
}
