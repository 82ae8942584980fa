//! `create`: a container whose init waits for `start`.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use container_syscalls::Propagation;
use oci_spec::runtime::{Linux, LinuxResources, PosixRlimit, PosixRlimitType, Process, Spec};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::{Pid, Resource, Rlimit, prlimit};

use super::{Paths, hook_state};
use crate::arguments::Arguments;
use crate::bundle::{self, Prepared, process_of};
use crate::cgroup;
use crate::error::{AnyError, CommandError, with_causes};
use crate::hooks::{Last, run_all};
use crate::init::channel::{Channel, InitMessage};
use crate::init::namespaces::{Made, Namespaces, NamespacesError};
use crate::init::{self, Setup};
use crate::record::{Record, start_time};
use crate::rootfs::mounting::OwnGroup;
use crate::rootfs::mounts::{plan, spread};
use crate::sealed;

/// Whoever may write to the FIFO starts the container.
const FIFO_MODE: u32 = 0o600;

pub(super) fn create(arguments: &Arguments, paths: &Paths) -> Result<(), AnyError> {
    if paths.state.exists() {
        return Err(CommandError::Exists(arguments.id.clone()).into());
    }
    sealed::become_sealed(&paths.bundle)?;
    let bundle = arguments
        .bundle
        .as_ref()
        .ok_or(CommandError::Missing("create", "--bundle"))?;
    let bundle = bundle.canonicalize()?;
    // From here on there is something that `delete` finds.
    fs::create_dir_all(&paths.state)?;
    let created = build(arguments, paths, &bundle);
    if created.is_err() {
        clean(arguments, paths);
    }
    created
}

fn build(arguments: &Arguments, paths: &Paths, bundle: &Path) -> Result<(), AnyError> {
    let systemd = arguments.systemd_cgroup;
    let prepared = bundle::prepare(bundle, &paths.bundle, &arguments.id, systemd)?;
    let mut setup = setup(arguments, paths, bundle, &prepared)?;
    if setup.can_leave_node() {
        // Where there is none, as in a root that was changed to by chroot(2), it takes the node's mounts along.
        setup.base = init::base::open(&arguments.root).ok();
    }
    init::hide()?;
    let (command, child) = Channel::pair()?;
    // Its limits are there before there is a process: what it uses from its first page on is within them.
    let group = paths.group(&prepared.spec, systemd)?;
    let folder = group.make(&resources(&prepared.spec))?;
    match setup
        .namespaces
        .fork(&command, &child, folder.as_ref().map(AsFd::as_fd))?
    {
        Made::Child => {
            drop((command, folder));
            init::run(setup, child)
        }
        Made::Parent { pid, is_in_group } => {
            drop((child, setup));
            let made = Making {
                arguments,
                paths,
                bundle,
                prepared: &prepared,
                pid,
            };
            let placed = if is_in_group {
                Ok(())
            } else {
                group.add(pid, &resources(&prepared.spec))
            };
            let finished = placed.and_then(|()| made.finish(&command));
            if finished.is_err() {
                // It may have ended by itself. That it is still this process is certain: nobody has waited for it.
                let _ = nix::sys::signal::kill(
                    nix::unistd::Pid::from_raw(pid),
                    nix::sys::signal::Signal::SIGKILL,
                );
            }
            finished
        }
    }
}

fn resources(spec: &Spec) -> LinuxResources {
    spec.linux()
        .as_ref()
        .and_then(|linux| linux.resources().clone())
        .unwrap_or_default()
}

/// A container whose init there is.
struct Making<'a> {
    arguments: &'a Arguments,
    paths: &'a Paths,
    bundle: &'a Path,
    prepared: &'a Prepared,
    pid: i32,
}

impl Making<'_> {
    /// Does for the init what only a process of the node can, until the init waits for its start.
    fn finish(&self, command: &Channel) -> Result<(), AnyError> {
        let Prepared { spec, .. } = self.prepared;
        let linux = spec.linux().as_ref();
        own_streams(linux, self.prepared.process.user)?;
        command.go()?;
        loop {
            match command.next()? {
                InitMessage::Hooks => {
                    self.run_hooks()?;
                    command.go()?;
                }
                InitMessage::Ready => break,
                InitMessage::Error(text) => return Err(CommandError::Init(text).into()),
                InitMessage::Pid(_) | InitMessage::End => {
                    return Err(CommandError::Ended(self.pid).into());
                }
            }
        }
        limit(self.pid, process_of(spec)?)?;
        let record = Record {
            bundle: self.bundle.to_string_lossy().into_owned(),
            pid: self.pid,
            start_time: start_time(self.pid).ok_or(CommandError::Ended(self.pid))?,
            cgroup: cgroup::of_process(self.pid),
            starts_by_fifo: bundle::hooks_of(spec, |hooks| hooks.poststart()).is_empty(),
        };
        let Prepared { devices, files, .. } = self.prepared;
        cgroup::finish(&record, devices.as_ref(), files.as_ref())?;
        write_pid(self.arguments.pid_file.as_deref(), self.pid)?;
        record.write(&self.paths.state)?;
        command.go()?;
        Ok(())
    }

    fn run_hooks(&self) -> Result<(), AnyError> {
        let spec = &self.prepared.spec;
        let bundle = self.bundle.to_string_lossy();
        let state = hook_state(spec, &self.arguments.id, &bundle).told("creating", self.pid);
        let before = bundle::hooks_of(spec, |hooks| hooks.prestart());
        run_all("prestart", &before, &state, None)?;
        let at_creation = bundle::hooks_of(spec, |hooks| hooks.create_runtime());
        Ok(run_all("createRuntime", &at_creation, &state, None)?)
    }
}

/// Gives the streams to the container's user, where a user namespace keeps the init from doing so: they are the node's
/// root's.
pub(super) fn own_streams(linux: Option<&Linux>, user: u32) -> io::Result<()> {
    let mappings = linux.and_then(|linux| linux.uid_mappings().as_ref());
    let on_node = mappings.into_iter().flatten().find_map(|mapping| {
        let offset = user.checked_sub(mapping.container_id())?;
        let on_node = mapping.host_id().checked_add(offset)?;
        (offset < mapping.size()).then_some(on_node)
    });
    on_node.map_or(Ok(()), init::own_by)
}

/// Sets a process's limits: a process in a user namespace may not raise them.
pub(super) fn limit(pid: i32, process: &Process) -> Result<(), AnyError> {
    for limit in process.rlimits().iter().flatten() {
        let (resource, value) = (resource(limit.typ()), value(limit));
        prlimit(Pid::from_raw(pid), resource, value)
            .map_err(|error| CommandError::Limit(format!("{:?}", limit.typ()), error.into()))?;
    }
    Ok(())
}

fn value(limit: &PosixRlimit) -> Rlimit {
    // The largest number is "no limit".
    let number = |number: u64| (number != u64::MAX).then_some(number);
    Rlimit {
        current: number(limit.soft()),
        maximum: number(limit.hard()),
    }
}

fn resource(kind: PosixRlimitType) -> Resource {
    match kind {
        PosixRlimitType::RlimitCpu => Resource::Cpu,
        PosixRlimitType::RlimitFsize => Resource::Fsize,
        PosixRlimitType::RlimitData => Resource::Data,
        PosixRlimitType::RlimitStack => Resource::Stack,
        PosixRlimitType::RlimitCore => Resource::Core,
        PosixRlimitType::RlimitRss => Resource::Rss,
        PosixRlimitType::RlimitNproc => Resource::Nproc,
        PosixRlimitType::RlimitNofile => Resource::Nofile,
        PosixRlimitType::RlimitMemlock => Resource::Memlock,
        PosixRlimitType::RlimitAs => Resource::As,
        PosixRlimitType::RlimitLocks => Resource::Locks,
        PosixRlimitType::RlimitSigpending => Resource::Sigpending,
        PosixRlimitType::RlimitMsgqueue => Resource::Msgqueue,
        PosixRlimitType::RlimitNice => Resource::Nice,
        PosixRlimitType::RlimitRtprio => Resource::Rtprio,
        PosixRlimitType::RlimitRttime => Resource::Rttime,
    }
}

/// Writes a process id into a file that the caller has named, whole or not at all.
pub(super) fn write_pid(file: Option<&Path>, pid: i32) -> io::Result<()> {
    let Some(file) = file else { return Ok(()) };
    let mut next = file.as_os_str().to_owned();
    next.push(".next");
    fs::write(&next, pid.to_string())?;
    fs::rename(next, file)
}

/// Connects to the socket that a terminal is sent to: the init could not find it.
pub(super) fn console(arguments: &Arguments, process: &Process) -> io::Result<Option<OwnedFd>> {
    match (
        &arguments.console_socket,
        process.terminal().unwrap_or(false),
    ) {
        (Some(socket), true) => Ok(Some(UnixStream::connect(socket)?.into())),
        (_, false) => Ok(None),
        (None, true) => {
            let text = "process.terminal needs --console-socket";
            Err(io::Error::new(io::ErrorKind::InvalidInput, text))
        }
    }
}

/// A container's session keyring, as runc names it.
pub(super) fn keyring(id: &str) -> String {
    format!("_ses.{id}")
}

fn setup(
    arguments: &Arguments,
    paths: &Paths,
    bundle: &Path,
    prepared: &Prepared,
) -> Result<Setup, AnyError> {
    let spec = &prepared.spec;
    // Its default in the library is a container's, with namespaces and masked paths.
    let linux = spec.linux().as_ref().ok_or(NamespacesError::Mount)?;
    let root = spec.root().as_ref();
    let rootfs = root.map(|root| root.path().clone()).unwrap_or_default();
    let words = |list: &Option<Vec<String>>| list.clone().unwrap_or_default();
    let word = linux.rootfs_propagation().as_deref().unwrap_or_default();
    Ok(Setup {
        namespaces: Namespaces::of_spec(linux)?,
        keyring: keyring(&arguments.id),
        rootfs: rootfs.canonicalize()?,
        is_read_only: root.and_then(|root| root.readonly()).unwrap_or(false),
        // The specification has the plain words for the whole tree; runc and containerd say so by an "r" in front.
        propagation: spread(word).map(|(kind, _): (Propagation, bool)| (kind, true)),
        base: None,
        mounts: spec.mounts().iter().flatten().map(plan).collect(),
        devices: linux.devices().clone().unwrap_or_default(),
        masked: words(linux.masked_paths()),
        closed: words(linux.readonly_paths()),
        group: own_group(spec, arguments.systemd_cgroup),
        hostname: spec.hostname().clone().unwrap_or_default(),
        domainname: spec.domainname().clone().unwrap_or_default(),
        sysctls: linux
            .sysctl()
            .iter()
            .flatten()
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect(),
        create_hooks: bundle::hooks_of(spec, |hooks| hooks.create_container()),
        start_hooks: bundle::hooks_of(spec, |hooks| hooks.start_container()),
        state: hook_state(spec, &arguments.id, &bundle.to_string_lossy()),
        process: prepared.process.clone(),
        console: console(arguments, process_of(spec)?)?,
        start: make_fifo(&paths.fifo())?,
    })
}

/// Where a container's group of version 2 is, for a container that cannot mount the hierarchy.
fn own_group(spec: &Spec, systemd: bool) -> OwnGroup {
    let known = cgroup::is_unified() && !systemd;
    OwnGroup(known.then(|| cgroup::folder(&super::group_path(spec))))
}

/// Makes what the init waits at. Open in both directions, opening it never waits and its reading end is there.
fn make_fifo(path: &PathBuf) -> io::Result<File> {
    mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(FIFO_MODE), 0)?;
    File::options().read(true).write(true).open(path)
}

/// Removes what a failed creation may have left; why it failed is what is told.
fn clean(arguments: &Arguments, paths: &Paths) {
    if let Ok(spec) = paths.spec() {
        let path = super::group_path(&spec);
        if let Err(error) = cgroup::remove(&path, &arguments.id, arguments.systemd_cgroup, None) {
            // `delete --force` tries again.
            eprint_quietly(&with_causes(&*error));
            return;
        }
        let bundle = arguments.bundle.clone().unwrap_or_default();
        let state = hook_state(&spec, &arguments.id, &bundle.to_string_lossy());
        let last = Last::read(&paths.bundle).unwrap_or_default();
        last.run(&state.told("stopped", 0));
    }
    drop(paths.remove());
}

fn eprint_quietly(text: &str) {
    use std::io::Write;
    // Nobody is there to be told that telling failed.
    drop(writeln!(io::stderr(), "oxlet-oci: {text}"));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_limit_of_the_largest_number_is_none() {
        let limit = json!({ "type": "RLIMIT_NOFILE", "soft": 7, "hard": u64::MAX });
        let limit: PosixRlimit = serde_json::from_value(limit).unwrap();
        let expected = Rlimit {
            current: Some(7),
            maximum: None,
        };
        assert_eq!(value(&limit), expected);
        assert!(matches!(resource(limit.typ()), Resource::Nofile));
    }

    #[test]
    fn an_init_that_waits_is_found_at_its_fifo() {
        let folder = tempfile::tempdir().unwrap();
        let arguments = Arguments {
            root: folder.path().to_owned(),
            id: "box".to_owned(),
            ..Arguments::default()
        };
        let paths = Paths::of(&arguments);
        assert!(paths.open_start().unwrap().is_none());
        fs::create_dir(&paths.state).unwrap();
        let waiting = make_fifo(&paths.fifo()).unwrap();
        assert!(paths.open_start().unwrap().is_some());
        drop(waiting);
        assert!(paths.open_start().unwrap().is_none());
    }
}
