//! Namespaces of a container: those that it joins and those that are made for it.

use std::fs::{self, File};
use std::io;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;

use container_syscalls::{ChildFlags, Forked, fork};
use nix::sched::{CloneFlags, setns, unshare};
use oci_spec::runtime::{Linux, LinuxNamespaceType};
use rustix::process::{Pid, WaitOptions, waitpid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

use super::channel::{Channel, InitMessage};
use super::{InitError, cannot, hide};

/// Why the namespaces of a spec cannot be had.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NamespacesError {
    #[error("cannot open namespace {0}")]
    Open(PathBuf, #[source] io::Error),
    #[error("linux.namespaces: {0} is there twice")]
    Twice(LinuxNamespaceType),
    #[error("linux.namespaces: expected a new mount namespace")]
    Mount,
}

/// The namespaces of a container.
#[derive(Debug)]
pub(crate) struct Namespaces {
    user: Option<File>,
    /// Entered by the children of who joins it.
    pid: Option<File>,
    joined: Vec<(CloneFlags, File)>,
    made: CloneFlags,
    makes_pid: bool,
    /// Lines of `/proc/PID/timens_offsets`, for a new time namespace.
    time: Option<Vec<String>>,
}

/// Which process a fork returns to.
#[derive(Debug)]
pub(crate) enum Made {
    Child,
    Parent {
        pid: i32,
        /// Whether the child was made in the cgroup that was asked for; else it is in its parent's.
        is_in_group: bool,
    },
}

impl Made {
    fn outside(forked: Forked) -> Made {
        match forked {
            Forked::Child => Made::Child,
            Forked::Parent(pid) => Made::Parent {
                pid,
                is_in_group: false,
            },
        }
    }
}

/// The flag of a namespace's type, and its name in `/proc/PID/ns`.
const FLAGS: [(LinuxNamespaceType, CloneFlags, &str); 8] = [
    (LinuxNamespaceType::User, CloneFlags::CLONE_NEWUSER, "user"),
    (LinuxNamespaceType::Pid, CloneFlags::CLONE_NEWPID, "pid"),
    (LinuxNamespaceType::Ipc, CloneFlags::CLONE_NEWIPC, "ipc"),
    (LinuxNamespaceType::Uts, CloneFlags::CLONE_NEWUTS, "uts"),
    (LinuxNamespaceType::Network, CloneFlags::CLONE_NEWNET, "net"),
    (
        LinuxNamespaceType::Cgroup,
        CloneFlags::CLONE_NEWCGROUP,
        "cgroup",
    ),
    (LinuxNamespaceType::Time, NEWTIME, "time"),
    // The last one: paths of the node lead nowhere from there on.
    (LinuxNamespaceType::Mount, CloneFlags::CLONE_NEWNS, "mnt"),
];
const FIRST_PROCESS: &str = "make the container's first process";
/// As in linux/sched.h; nix has no name for it.
const NEWTIME: CloneFlags = CloneFlags::from_bits_retain(0x80);

impl Namespaces {
    fn none() -> Namespaces {
        Namespaces {
            user: None,
            pid: None,
            joined: Vec::new(),
            made: CloneFlags::empty(),
            makes_pid: false,
            time: None,
        }
    }

    /// Opens what a spec joins.
    pub(crate) fn of_spec(linux: &Linux) -> Result<Namespaces, NamespacesError> {
        let mut all = Namespaces::none();
        let asked = linux.namespaces().as_deref().unwrap_or_default();
        for (kind, flag, _) in FLAGS {
            let mut of_kind = asked.iter().filter(|one| one.typ() == kind);
            let Some(namespace) = of_kind.next() else {
                continue;
            };
            if of_kind.next().is_some() {
                return Err(NamespacesError::Twice(kind));
            }
            let path = namespace
                .path()
                .as_ref()
                .filter(|path| !path.as_os_str().is_empty());
            match path {
                Some(path) => {
                    let file = File::open(path)
                        .map_err(|error| NamespacesError::Open(path.clone(), error))?;
                    all.join(flag, file);
                }
                None if kind == LinuxNamespaceType::Pid => all.makes_pid = true,
                None if kind == LinuxNamespaceType::Time => all.time = Some(Vec::new()),
                None => all.made |= flag,
            }
        }
        if !all.made.contains(CloneFlags::CLONE_NEWNS) {
            return Err(NamespacesError::Mount);
        }
        if let (Some(lines), Some(offsets)) = (&mut all.time, linux.time_offsets()) {
            lines.extend(offsets.iter().map(|(clock, offset)| {
                let secs = offset.secs().unwrap_or_default();
                format!("{clock} {secs} {}\n", offset.nanosecs().unwrap_or_default())
            }));
        }
        Ok(all)
    }

    /// Opens the namespaces of a process that are other ones than this process's.
    pub(crate) fn of_process(pid: i32) -> io::Result<Namespaces> {
        let mut all = Namespaces::none();
        for (_, flag, name) in FLAGS {
            let path = format!("/proc/{pid}/ns/{name}");
            let theirs = match fs::read_link(&path) {
                // A kernel without such namespaces.
                Err(error) if error.kind() == io::ErrorKind::NotFound && name == "time" => continue,
                read => read?,
            };
            if fs::read_link(format!("/proc/self/ns/{name}"))? != theirs {
                all.join(flag, File::open(path)?);
            }
        }
        Ok(all)
    }

    fn join(&mut self, flag: CloneFlags, file: File) {
        if flag == CloneFlags::CLONE_NEWUSER {
            self.user = Some(file);
        } else if flag == CloneFlags::CLONE_NEWPID {
            self.pid = Some(file);
        } else {
            self.joined.push((flag, file));
        }
    }

    pub(crate) fn has_own_users(&self) -> bool {
        self.user.is_some()
    }

    /// Whether a container has a namespace of this kind that is not the node's.
    pub(crate) fn has(&self, flag: CloneFlags) -> bool {
        self.made.contains(flag) || self.joined.iter().any(|(one, _)| *one == flag)
    }

    /// Makes a child in the user, PID and time namespaces of the container, and in `group`, the folder of a cgroup of version
    /// 2, if the kernel lets it.
    ///
    /// What is made in a user namespace belongs to it only if who makes it is in it: a process between this one and the
    /// child joins it and makes the child, which becomes a child of this process nevertheless. It may not write to the
    /// node's cgroups, so that the child is in none of its own.
    pub(crate) fn fork(
        &self,
        command: &Channel,
        init: &Channel,
        group: Option<BorrowedFd<'_>>,
    ) -> Result<Made, InitError> {
        if self.user.is_none() && self.time.is_none() {
            return self.fork_here(group);
        }
        match fork(ChildFlags::default()).map_err(cannot("make a process"))? {
            Forked::Child => match self.between(init) {
                Ok(Some(())) => std::process::exit(0),
                Ok(None) => Ok(Made::Child),
                Err(error) => {
                    init.tell_error(&crate::error::with_causes(&error));
                    std::process::exit(1)
                }
            },
            Forked::Parent(between) => {
                let pid = told_by(between, command)?;
                Ok(Made::outside(Forked::Parent(pid)))
            }
        }
    }

    /// Makes the process that goes into a container which is running, with [`Namespaces::go_inside`], in `group`, the folder
    /// of a cgroup of version 2, if the kernel lets it.
    pub(crate) fn fork_visitor(&self, group: Option<BorrowedFd<'_>>) -> Result<Made, InitError> {
        let within = ChildFlags {
            cgroup: group,
            ..ChildFlags::default()
        };
        match fork(within).map_err(cannot("make a process"))? {
            Forked::Child => Ok(Made::Child),
            Forked::Parent(pid) => Ok(Made::Parent {
                pid,
                is_in_group: group.is_some(),
            }),
        }
    }

    /// Joins all namespaces, and becomes a new process that is among the container's; this one ends.
    ///
    /// The container's processes see the new one from its first moment, in their procfs. With `CAP_SYS_PTRACE` they can
    /// follow its root, its working folder and its descriptors, so by then none of these may be the node's.
    pub(crate) fn go_inside(&self, init: &Channel) -> Result<(), InitError> {
        self.enter(None)?;
        hide()?;
        self.join_pids()?;
        let flags = ChildFlags {
            is_sibling: true,
            ..ChildFlags::default()
        };
        match fork(flags).map_err(cannot("make a process in the container"))? {
            Forked::Child => Ok(()),
            Forked::Parent(pid) => {
                init.tell_pid(pid)?;
                std::process::exit(0)
            }
        }
    }

    /// `None` in the child.
    fn between(&self, init: &Channel) -> Result<Option<()>, InitError> {
        if let Some(offsets) = &self.time {
            unshare(NEWTIME).map_err(cannot("make a time namespace"))?;
            if !offsets.is_empty() {
                fs::write("/proc/self/timens_offsets", offsets.concat())
                    .map_err(cannot("set the offsets of the clocks"))?;
            }
        }
        self.become_root_of_users()?;
        // It ends at once, and may not return from the user namespace to its own PID namespace.
        self.join_pids()?;
        let flags = ChildFlags {
            is_sibling: true,
            ..self.child()
        };
        match fork(flags).map_err(cannot(FIRST_PROCESS))? {
            Forked::Child => Ok(None),
            Forked::Parent(pid) => init.tell_pid(pid).map(Some),
        }
    }

    pub(super) fn become_root_of_users(&self) -> Result<(), InitError> {
        let Some(user) = &self.user else {
            return Ok(());
        };
        setns(user, CloneFlags::CLONE_NEWUSER).map_err(cannot("join the user namespace"))?;
        let (root, group) = (rustix::fs::Uid::ROOT, rustix::fs::Gid::ROOT);
        set_thread_groups(&[]).map_err(cannot("leave the node's groups"))?;
        set_thread_res_gid(group, group, group).map_err(cannot("become root of its users"))?;
        set_thread_res_uid(root, root, root).map_err(cannot("become root of its users"))?;
        // Other ids have made it dumpable, where the node's `fs.suid_dumpable` says so.
        hide()
    }

    fn fork_here(&self, group: Option<BorrowedFd<'_>>) -> Result<Made, InitError> {
        let own = match &self.pid {
            None => None,
            Some(_) => Some(
                File::open("/proc/self/ns/pid")
                    .map_err(cannot("open this process's PID namespace"))?,
            ),
        };
        self.join_pids()?;
        let made = self.fork_into(group)?;
        if let (Made::Parent { .. }, Some(own)) = (&made, own) {
            // Hooks are processes of the node.
            setns(own, CloneFlags::CLONE_NEWPID).map_err(cannot("return to the PID namespace"))?;
        }
        Ok(made)
    }

    /// Makes the child in its cgroup: to move it there later takes the kernel a grace period of RCU, some 20 ms. A group
    /// that takes no new process is no error, since a process that is moved is not counted against `pids.max`.
    fn fork_into(&self, group: Option<BorrowedFd<'_>>) -> Result<Made, InitError> {
        let within = ChildFlags {
            cgroup: group,
            ..self.child()
        };
        match group.map(|_| fork(within)) {
            Some(Ok(Forked::Child)) => Ok(Made::Child),
            Some(Ok(Forked::Parent(pid))) => Ok(Made::Parent {
                pid,
                is_in_group: true,
            }),
            Some(Err(_)) | None => fork(self.child())
                .map(Made::outside)
                .map_err(cannot(FIRST_PROCESS)),
        }
    }

    fn child(&self) -> ChildFlags<'_> {
        ChildFlags {
            new_pid_namespace: self.makes_pid,
            ..ChildFlags::default()
        }
    }

    fn join_pids(&self) -> Result<(), InitError> {
        match &self.pid {
            None => Ok(()),
            Some(pid) => {
                setns(pid, CloneFlags::CLONE_NEWPID).map_err(cannot("join the PID namespace"))
            }
        }
    }

    /// Joins and makes all others, in the child. A mount namespace is made of `base`, or of the one that this process is in.
    pub(crate) fn enter(&self, base: Option<&File>) -> Result<(), InitError> {
        for (flag, file) in &self.joined {
            setns(file, *flag).map_err(cannot(format!("join the {} namespace", name(*flag))))?;
        }
        if self.made.is_empty() {
            return Ok(());
        }
        if let Some(base) = base {
            setns(base, CloneFlags::CLONE_NEWNS).map_err(cannot("leave the node's mounts"))?;
        }
        unshare(self.made).map_err(cannot("make namespaces"))
    }
}

/// Waits for the process between a command and a container's process; returns the id of the latter.
pub(crate) fn told_by(between: i32, command: &Channel) -> Result<i32, InitError> {
    let between = Pid::from_raw(between).ok_or(InitError::Abandoned)?;
    waitpid(Some(between), WaitOptions::empty()).map_err(cannot("wait for a process"))?;
    // It has told what it had to tell, or died: this process has the other end too, so that nothing would end a wait.
    match command.heard().map_err(cannot("hear of the new process"))? {
        InitMessage::Pid(pid) => Ok(pid),
        InitMessage::Error(text) => Err(InitError::Refused(text)),
        InitMessage::Hooks | InitMessage::Ready | InitMessage::End => Err(InitError::Abandoned),
    }
}

fn name(flag: CloneFlags) -> &'static str {
    FLAGS
        .iter()
        .find(|(_, one, _)| *one == flag)
        .map_or("", |(_, _, name)| name)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn of(namespaces: Value) -> Result<Namespaces, NamespacesError> {
        let offsets = json!({ "monotonic": { "secs": 7, "nanosecs": 8 } });
        let linux = json!({ "namespaces": namespaces, "timeOffsets": offsets });
        Namespaces::of_spec(&serde_json::from_value(linux).unwrap())
    }

    #[test]
    fn namespaces_are_joined_by_their_paths_and_made_otherwise() {
        let all = of(json!([
            { "type": "mount" },
            { "type": "network", "path": "/proc/self/ns/net" },
            { "type": "pid" },
            { "type": "time" },
            { "type": "user", "path": "/proc/self/ns/user" },
            { "type": "uts", "path": "" },
        ]))
        .unwrap();
        assert!(all.has_own_users() && all.makes_pid && all.pid.is_none());
        assert!(all.has(CloneFlags::CLONE_NEWNET) && !all.has(CloneFlags::CLONE_NEWIPC));
        assert_eq!(all.made, CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWUTS);
        assert_eq!(all.time.unwrap(), ["monotonic 7 8\n"]);
    }

    #[test]
    fn what_no_container_can_be_made_with_is_refused() {
        let mount = json!({ "type": "mount" });
        assert!(matches!(of(json!([])), Err(NamespacesError::Mount)));
        let joined = json!([{ "type": "mount", "path": "/proc/self/ns/mnt" }]);
        assert!(matches!(of(joined), Err(NamespacesError::Mount)));
        let twice = json!([mount, { "type": "ipc" }, { "type": "ipc" }]);
        assert!(matches!(of(twice), Err(NamespacesError::Twice(_))));
        let absent = json!([mount, { "type": "ipc", "path": "/no/such" }]);
        assert!(matches!(of(absent), Err(NamespacesError::Open(..))));
    }

    #[test]
    fn of_a_process_only_other_namespaces_are_joined() {
        let pid = i32::try_from(std::process::id()).unwrap();
        let own = Namespaces::of_process(pid).unwrap();
        assert!(own.joined.is_empty() && own.user.is_none() && own.pid.is_none());
    }
}
