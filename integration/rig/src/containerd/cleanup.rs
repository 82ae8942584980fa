//! Takes a rig away, whatever state its test left it in. Nothing here fails: what cannot be removed is
//! reported on standard error and the rest goes on.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use nix::mount::{MntFlags, umount2};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use proto::cri;
use proto::cri::runtime_service_client::RuntimeServiceClient;
use tonic::transport::Channel;

const SANDBOX_REMOVAL_TIMEOUT: Duration = Duration::from_secs(15);
const SIGTERM_TIMEOUT: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The folder that lists live rigs, so that the next one finds a rig whose test was killed.
const RIGS: &str = "/run/oxlet-rigs";

/// Notes a rig as this process's.
pub(super) fn note(dir: &Path, name: &str) -> std::io::Result<()> {
    fs::create_dir_all(RIGS)?;
    let pid = std::process::id();
    let started = started(pid).unwrap_or_default();
    fs::write(
        Path::new(RIGS).join(name),
        format!("{pid} {started}\n{}\n", dir.display()),
    )
}

/// Takes away the rigs of test processes that were killed before they could.
pub(super) fn remove_orphans() {
    for note in entries(Path::new(RIGS)) {
        let text = fs::read_to_string(&note).unwrap_or_default();
        let mut lines = text.lines();
        let (owner, dir) = (
            lines.next().unwrap_or_default(),
            lines.next().map(Path::new),
        );
        let Some((pid, start)) = owner.split_once(' ') else {
            continue;
        };
        let alive = pid
            .parse()
            .ok()
            .and_then(started)
            .is_some_and(|now| now == start);
        let (false, Some(dir), Some(name)) = (alive, dir, note.file_name()) else {
            continue;
        };
        for containerd in processes("containerd", &dir.join("config.toml")) {
            end_pid(containerd);
        }
        remove_leftovers(dir, &name.to_string_lossy(), &dir.join("containerd.sock"));
        if dir.starts_with(std::env::temp_dir()) {
            gone(fs::remove_dir_all(dir), dir);
        }
    }
}

/// When a process was started, in the kernel's ticks: a pid alone is no identity.
fn started(pid: u32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?
        .1
        .split_whitespace()
        .nth(19)
        .map(str::to_owned)
}

/// Removes every sandbox by CRI. A thread of its own, because a test's runtime may be unwinding.
pub(super) fn remove_sandboxes(socket: &Path, running: bool) {
    if !running {
        return;
    }
    let socket = socket.to_owned();
    blocking(async move {
        let removed = tokio::time::timeout(SANDBOX_REMOVAL_TIMEOUT, remove_all(&socket)).await;
        if !matches!(removed, Ok(Ok(()))) {
            report(&format!(
                "sandboxes of {} not removed by CRI: {removed:?}",
                socket.display()
            ));
        }
    });
}

/// Again until none is left: an agent that was just killed may have calls under way, which are in each other's way.
async fn remove_all(socket: &Path) -> Result<(), tonic::Status> {
    let client =
        RuntimeServiceClient::new(super::connect(socket)).max_decoding_message_size(16 << 20);
    loop {
        let listed = client
            .clone()
            .list_pod_sandbox(cri::ListPodSandboxRequest { filter: None })
            .await?;
        let mut removals = tokio::task::JoinSet::new();
        for sandbox in listed.into_inner().items {
            removals.spawn(remove(client.clone(), sandbox.id));
        }
        let removed = removals.join_all().await;
        if removed.iter().all(Result::is_ok) {
            return Ok(());
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

async fn remove(
    mut client: RuntimeServiceClient<Channel>,
    id: String,
) -> Result<(), tonic::Status> {
    client
        .stop_pod_sandbox(cri::StopPodSandboxRequest {
            pod_sandbox_id: id.clone(),
        })
        .await?;
    client
        .remove_pod_sandbox(cri::RemovePodSandboxRequest { pod_sandbox_id: id })
        .await?;
    Ok(())
}

/// Ends containerd: TERM, and KILL if that is not enough.
pub(super) fn end(process: &mut Child) {
    if kill(super::pid(process), Signal::SIGTERM).is_ok() {
        let steps = SIGTERM_TIMEOUT.as_millis() / POLL_INTERVAL.as_millis();
        for _ in 0..steps {
            if !matches!(process.try_wait(), Ok(None)) {
                return;
            }
            pause();
        }
    }
    if let Err(error) = process.kill().and_then(|()| process.wait()) {
        report(&format!("containerd {} not ended: {error}", process.id()));
    }
}

/// Ends the containerd of a rig whose own process is gone, and waits until it is.
pub(super) fn end_stray(dir: &Path) {
    let stray = || processes("containerd", &dir.join("config.toml"));
    for pid in stray() {
        end_pid(pid);
    }
    while !stray().is_empty() {
        pause();
    }
}

/// Ends the processes and removes the mounts, sockets, bridge, CNI results and cgroups that are left.
pub(super) fn remove_leftovers(dir: &Path, name: &str, socket: &Path) {
    let groups = cgroups(name);
    for shim in processes("containerd-shim-runc-v2", socket) {
        end_pid(shim);
    }
    for group in &groups {
        for pid in members(group) {
            end_pid(pid);
        }
    }
    remove_shim_sockets(dir);
    for mount in mounts(dir) {
        if let Err(error) = umount2(&mount, MntFlags::MNT_DETACH) {
            report(&format!("{} not unmounted: {error}", mount.display()));
        }
    }
    if Path::new("/sys/class/net").join(name).exists() {
        let deleted = Command::new("ip").args(["link", "delete", name]).status();
        if !matches!(deleted, Ok(status) if status.success()) {
            report(&format!("bridge {name} not deleted: {deleted:?}"));
        }
    }
    remove_network_results(dir, name);
    for group in groups {
        remove_cgroup(&group);
    }
    remove_shared_cgroup();
    let note = Path::new(RIGS).join(name);
    gone(fs::remove_file(&note), &note);
}

/// Sandboxes that name no cgroup go below one of containerd's choice. The last rig takes it away if it is empty.
fn remove_shared_cgroup() {
    let is_rig = |link: &PathBuf| {
        link.file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with("ox"))
    };
    if !entries(Path::new("/sys/class/net")).iter().any(is_rig) {
        for group in cgroups("k8s.io") {
            // Refused while it is in use, by a containerd that is not a test's for instance.
            drop(fs::remove_dir(group));
        }
    }
}

fn pause() {
    // Made inside the block: a timer belongs to the runtime that it is made on.
    blocking(async { tokio::time::sleep(POLL_INTERVAL).await });
}

/// Runs a future to its end on a thread with a runtime of its own.
fn blocking(work: impl Future<Output = ()> + Send + 'static) {
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        match runtime {
            Ok(runtime) => runtime.block_on(work),
            Err(error) => report(&format!("no runtime to clean up with: {error}")),
        }
    });
    if thread.join().is_err() {
        report("cleaning up panicked");
    }
}

/// The processes of a program that name `path` on their command line: a rig's shims name its socket.
fn processes(program: &str, path: &Path) -> Vec<Pid> {
    let path = path.display().to_string();
    let all = entries(Path::new("/proc")).into_iter();
    let numbered = all.filter_map(|entry| entry.file_name()?.to_str()?.parse::<i32>().ok());
    let ours = numbered.filter(|pid| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
        words
            .first()
            .is_some_and(|first| first.ends_with(program.as_bytes()))
            && words.contains(&path.as_bytes())
    });
    ours.map(Pid::from_raw).collect()
}

fn end_pid(pid: Pid) {
    if let Err(error) = kill(pid, Signal::SIGKILL)
        && error != nix::errno::Errno::ESRCH
    {
        report(&format!("process {pid} not killed: {error}"));
    }
}

/// The rig's own group in every hierarchy (one each in cgroup v1, one in v2), and the groups below it.
fn cgroups(name: &str) -> Vec<PathBuf> {
    let root = Path::new("/sys/fs/cgroup");
    let mut candidates: Vec<PathBuf> = entries(root)
        .into_iter()
        .map(|hierarchy| hierarchy.join(name))
        .collect();
    candidates.push(root.join(name));
    candidates.push(root.join(format!("{name}.slice")));
    candidates.retain(|group| group.is_dir());
    candidates
}

fn members(group: &Path) -> Vec<Pid> {
    let listed = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    let mut pids: Vec<Pid> = listed
        .lines()
        .filter_map(|line| line.parse().ok())
        .map(Pid::from_raw)
        .collect();
    for child in entries(group).into_iter().filter(|path| path.is_dir()) {
        pids.extend(members(&child));
    }
    pids
}

/// Removes a cgroup with those below it; a killed process leaves its group a moment later.
fn remove_cgroup(group: &Path) {
    for child in entries(group).into_iter().filter(|path| path.is_dir()) {
        remove_cgroup(&child);
    }
    for _ in 0..100 {
        match fs::remove_dir(group) {
            Err(error) if error.kind() == ErrorKind::ResourceBusy => pause(),
            outcome => return gone(outcome, group),
        }
    }
    report(&format!("cgroup {} still in use", group.display()));
}

/// CNI keeps what it answered in a folder that all of the machine share, by network and sandbox.
fn remove_network_results(dir: &Path, name: &str) {
    let sandboxes = entries(&dir.join("root/io.containerd.grpc.v1.cri/sandboxes"));
    let ids: Vec<String> = sandboxes
        .iter()
        .filter_map(|path| Some(path.file_name()?.to_str()?.to_owned()))
        .collect();
    for result in entries(Path::new("/var/lib/cni/results")) {
        let file = result
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if file.starts_with(&format!("{name}-")) || ids.iter().any(|id| file.contains(id.as_str()))
        {
            gone(fs::remove_file(&result), &result);
        }
    }
}

/// A killed shim leaves its socket in a folder that all containerds of the machine share.
fn remove_shim_sockets(dir: &Path) {
    for task in entries(&dir.join("state/io.containerd.runtime.v2.task/k8s.io")) {
        let address = fs::read_to_string(task.join("address")).unwrap_or_default();
        if let Some(socket) = address.strip_prefix("unix://") {
            gone(fs::remove_file(socket), Path::new(socket));
        }
    }
}

/// Returns the mounts under `dir`, innermost first.
fn mounts(dir: &Path) -> Vec<PathBuf> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let points = table
        .lines()
        .filter_map(|line| line.split(' ').nth(4))
        .map(PathBuf::from);
    let mut ours: Vec<PathBuf> = points.filter(|point| point.starts_with(dir)).collect();
    ours.reverse();
    ours
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let Ok(listed) = fs::read_dir(folder) else {
        return Vec::new();
    };
    listed
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect()
}

fn gone(outcome: std::io::Result<()>, path: &Path) {
    if let Err(error) = outcome
        && error.kind() != ErrorKind::NotFound
    {
        report(&format!("{} not removed: {error}", path.display()));
    }
}

fn report(what: &str) {
    eprintln!("containerd rig: {what}");
}
