//! What a process of a container has beside its confinement: user, environment, working directory, session keyring,
//! scheduling. The order is runc's (`finalizeNamespace`).

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use container_syscalls::{
    IoClass, Scheduling, close_on_exec_from, join_session_keyring, reset_signals,
    session_keyring_permissions, set_io_priority, set_keyring_permissions, set_scheduling,
};
use kernel_filters::Filter;
use nix::sys::personality::{self, Persona};
use nix::sys::signal::{SigSet, SigmaskHow, sigprocmask};
use oci_spec::runtime::{
    IOPriorityClass, LinuxCapabilities, LinuxPersonalityDomain, LinuxSchedulerFlag,
    LinuxSchedulerPolicy, Process, Scheduler,
};
use rustix::fs::{Gid, Mode, OFlags, Uid};
use rustix::io::Errno;
use rustix::process::{chdir, getcwd, umask};
use rustix::thread::{
    set_keep_capabilities, set_no_new_privs, set_thread_groups, set_thread_res_gid,
    set_thread_res_uid,
};

use super::{InitError, cannot, hide, passwd, streams};
use crate::program;
use crate::rootfs::Root;

/// The first descriptor that is not one of the three streams.
const AFTER_STREAMS: u32 = 3;
pub(super) const DEFAULT_UMASK: u32 = 0o022;
/// The link of a LSM's label for the next program (proc_pid_attr(5)), with AppArmor's own folder first.
const LABELS: [&str; 2] = ["/proc/self/attr/apparmor/exec", "/proc/self/attr/exec"];

/// A process of a container, checked.
#[derive(Clone, Debug)]
pub(crate) struct ProcessPlan {
    pub(crate) args: Vec<String>,
    pub(crate) env: Vec<String>,
    pub(crate) cwd: PathBuf,
    pub(crate) user: u32,
    pub(crate) group: u32,
    pub(crate) groups: Vec<u32>,
    pub(crate) umask: Option<u32>,
    /// None at all if the spec has no word of them; the library's default are some.
    pub(crate) capabilities: Option<LinuxCapabilities>,
    pub(crate) no_new_privileges: bool,
    pub(crate) filter: Option<Filter>,
    pub(crate) apparmor: String,
    pub(crate) io_priority: Option<(IOPriorityClass, i64)>,
    pub(crate) scheduler: Option<Scheduler>,
    pub(crate) personality: Option<LinuxPersonalityDomain>,
}

/// What was found out for a process inside its container.
#[derive(Debug)]
pub(crate) struct Ready {
    pub(crate) program: PathBuf,
    /// `NAME=value`, each name once.
    pub(crate) env: Vec<String>,
}

impl ProcessPlan {
    /// Takes what a spec says of a process.
    pub(crate) fn of_spec(process: &Process, filter: Option<Filter>) -> ProcessPlan {
        let user = process.user();
        ProcessPlan {
            args: process.args().clone().unwrap_or_default(),
            env: process.env().clone().unwrap_or_default(),
            cwd: process.cwd().clone(),
            user: user.uid(),
            group: user.gid(),
            groups: user.additional_gids().clone().unwrap_or_default(),
            umask: user.umask(),
            capabilities: process.capabilities().clone(),
            no_new_privileges: process.no_new_privileges().unwrap_or(false),
            filter,
            apparmor: process.apparmor_profile().clone().unwrap_or_default(),
            io_priority: process
                .io_priority()
                .as_ref()
                .map(|priority| (priority.class(), priority.priority())),
            scheduler: process.scheduler().clone(),
            personality: None,
        }
    }

    fn write_label(&self, mut label: File) -> Result<(), InitError> {
        let profile = &self.apparmor;
        label
            .write_all(format!("exec {profile}").as_bytes())
            .map_err(cannot(format!("apply AppArmor profile {profile:?}")))
    }

    /// Becomes the user, in the working directory, and finds the program: all that may fail for the container's fault is
    /// done before the container counts as created. Capabilities are kept for what comes later.
    pub(crate) fn ready(&self, apparmor: Option<File>) -> Result<Ready, InitError> {
        if let Some(label) = apparmor {
            self.write_label(label)?;
        }
        if self.no_new_privileges {
            set_no_new_privs(true).map_err(cannot("forbid new privileges"))?;
        }
        self.schedule()?;
        reset_signals();
        sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None)
            .map_err(cannot("unblock signals"))?;
        close_on_exec()?;
        // As the node's root first: a folder that the user may not enter may still be where its program begins. Tried
        // again as the user: root of a user namespace or of an NFS client may do less than the user.
        let has_changed = match chdir(&self.cwd) {
            Ok(()) => true,
            Err(Errno::ACCESS | Errno::PERM) => false,
            Err(error) => return Err(self.no_cwd(error)),
        };
        let env = environment(&self.env, || passwd::home(self.user)).map_err(InitError::Refused)?;
        self.become_user()?;
        if !has_changed {
            chdir(&self.cwd).map_err(|error| self.no_cwd(error))?;
        }
        verify_cwd()?;
        umask(Mode::from_raw_mode(
            self.umask.unwrap_or(DEFAULT_UMASK) & 0o777,
        ));
        let path = env
            .iter()
            .rev()
            .find_map(|variable| variable.strip_prefix("PATH="))
            .unwrap_or_default();
        let Some(name) = self.args.first() else {
            return Err(InitError::Refused("no program is named".to_owned()));
        };
        let program = program::look(name, path).map_err(InitError::Refused)?;
        Ok(Ready { program, env })
    }

    fn no_cwd(&self, error: Errno) -> InitError {
        let why = program::words(&error.into());
        InitError::Refused(format!(
            "chdir to cwd ({:?}) set in config.json failed: {why}",
            self.cwd.display().to_string()
        ))
    }

    fn become_user(&self) -> Result<(), InitError> {
        set_keep_capabilities(true).map_err(cannot("keep capabilities"))?;
        streams::own_by(self.user).map_err(cannot("give the streams to the container's user"))?;
        let groups: Vec<Gid> = self.groups.iter().copied().map(Gid::from_raw).collect();
        match set_thread_groups(&groups) {
            // A user namespace of somebody without power over groups; none were asked for.
            Err(Errno::PERM) if groups.is_empty() => {}
            set => set.map_err(cannot("set the groups"))?,
        }
        let (user, group) = (Uid::from_raw(self.user), Gid::from_raw(self.group));
        set_thread_res_gid(group, group, group).map_err(|error| match error {
            Errno::INVAL => InitError::Refused(format!(
                "cannot setgid to unmapped gid {} in user namespace",
                self.group
            )),
            error => cannot("set the group")(error),
        })?;
        set_thread_res_uid(user, user, user).map_err(|error| match error {
            Errno::INVAL => InitError::Refused(format!(
                "cannot setuid to unmapped uid {} in user namespace",
                self.user
            )),
            error => cannot("set the user")(error),
        })?;
        // Another user has made it dumpable, where the node's `fs.suid_dumpable` says so.
        hide()
    }

    fn schedule(&self) -> Result<(), InitError> {
        if let Some(scheduler) = &self.scheduler {
            set_scheduling(scheduling(scheduler)).map_err(cannot("set process.scheduler"))?;
        }
        if let Some((class, level)) = self.io_priority {
            let class = match class {
                IOPriorityClass::IoprioClassRt => IoClass::RealTime,
                IOPriorityClass::IoprioClassBe => IoClass::BestEffort,
                IOPriorityClass::IoprioClassIdle => IoClass::Idle,
            };
            set_io_priority(class, level).map_err(cannot("set process.ioPriority"))?;
        }
        if let Some(domain) = self.personality {
            let persona = match domain {
                LinuxPersonalityDomain::PerLinux => Persona::empty(),
                // As in linux/personality.h.
                LinuxPersonalityDomain::PerLinux32 => Persona::from_bits_retain(0x0008),
            };
            personality::set(persona).map_err(cannot("set linux.personality"))?;
        }
        Ok(())
    }
}

/// The kernel's number of a scheduler's flag, `SCHED_FLAG_...`.
fn scheduler_flag(flag: &LinuxSchedulerFlag) -> u64 {
    match flag {
        LinuxSchedulerFlag::SchedResetOnFork => 0x01,
        LinuxSchedulerFlag::SchedFlagReclaim => 0x02,
        LinuxSchedulerFlag::SchedFlagDLOverrun => 0x04,
        LinuxSchedulerFlag::SchedFlagKeepPolicy => 0x08,
        LinuxSchedulerFlag::SchedFlagKeepParams => 0x10,
        LinuxSchedulerFlag::SchedFlagUtilClampMin => 0x20,
        LinuxSchedulerFlag::SchedFlagUtilClampMax => 0x40,
    }
}

/// Numbers of linux/sched.h.
fn scheduling(scheduler: &Scheduler) -> Scheduling {
    let policy = match scheduler.policy() {
        LinuxSchedulerPolicy::SchedOther => 0,
        LinuxSchedulerPolicy::SchedFifo => 1,
        LinuxSchedulerPolicy::SchedRr => 2,
        LinuxSchedulerPolicy::SchedBatch => 3,
        LinuxSchedulerPolicy::SchedIso => 4,
        LinuxSchedulerPolicy::SchedIdle => 5,
        LinuxSchedulerPolicy::SchedDeadline => 6,
    };
    Scheduling {
        policy,
        flags: scheduler
            .flags()
            .iter()
            .flatten()
            .map(scheduler_flag)
            .fold(0, |all, one| all | one),
        nice: scheduler.nice().unwrap_or_default(),
        priority: scheduler
            .priority()
            .and_then(|priority| u32::try_from(priority).ok())
            .unwrap_or_default(),
        runtime: scheduler.runtime().unwrap_or_default(),
        deadline: scheduler.deadline().unwrap_or_default(),
        period: scheduler.period().unwrap_or_default(),
        ..Scheduling::default()
    }
}

/// Has every descriptor but the streams closed by `execve`: by one that is left a program could leave its root
/// (CVE-2024-21626).
fn close_on_exec() -> Result<(), InitError> {
    match close_on_exec_from(AFTER_STREAMS) {
        // Before Linux 5.11. This program opens nothing without the flag, and the command has closed what it inherited.
        Err(error)
            if matches!(
                Errno::from_io_error(&error),
                Some(Errno::NOSYS | Errno::INVAL)
            ) =>
        {
            Ok(())
        }
        closed => closed.map_err(cannot("keep descriptors out of the container")),
    }
}

/// Checks that the working directory is inside the container's root: a path like `/proc/self/fd/7` could lead anywhere, and
/// the kernel marks what is outside.
fn verify_cwd() -> Result<(), InitError> {
    let outside = || {
        let text = "current working directory is outside of container mount namespace root -- possible container breakout detected";
        InitError::Refused(text.to_owned())
    };
    match getcwd(Vec::new()) {
        Ok(path) if path.as_bytes().starts_with(b"/") => Ok(()),
        // Removed, or not of this root.
        Ok(_) | Err(Errno::NOENT) => Err(outside()),
        Err(error) => Err(cannot("look where this process is")(error)),
    }
}

/// Makes the working directory where it is missing, as root's.
pub(crate) fn make_working_folder(root: &Root, cwd: &Path) -> Result<(), InitError> {
    match root.make_folder(cwd) {
        Ok(_) => Ok(()),
        // It is there, out of reach for this process: whether the user can enter it is seen later. A link of procfs is
        // judged by where it leads.
        Err(error)
            if matches!(
                Errno::from_io_error(&error),
                Some(Errno::ACCESS | Errno::LOOP)
            ) =>
        {
            Ok(())
        }
        Err(error) => {
            let why = program::words(&error);
            let text = format!("mkdir {}: {why}", cwd.display());
            Err(InitError::Refused(text))
        }
    }
}

/// Returns a program's environment as runc makes it: of several with a name the last one, and HOME.
fn environment(
    asked: &[String],
    home: impl FnOnce() -> Option<String>,
) -> Result<Vec<String>, String> {
    let mut seen = std::collections::BTreeSet::new();
    let mut env = Vec::with_capacity(asked.len() + 1);
    let mut has_home = false;
    for variable in asked.iter().rev() {
        let Some((name, value)) = variable.split_once('=') else {
            return Err("invalid environment variable: missing '='".to_owned());
        };
        if name.is_empty() {
            return Err("invalid environment variable: name cannot be empty".to_owned());
        }
        if variable.contains('\0') {
            return Err(format!(
                "invalid environment variable {name:?}: contains nul byte (\\x00)"
            ));
        }
        if !seen.insert(name) {
            continue;
        }
        if name == "HOME" {
            if value.is_empty() {
                continue;
            }
            has_home = true;
        }
        env.push(variable.clone());
    }
    env.reverse();
    if !has_home {
        let home = home().unwrap_or_else(|| "/".to_owned());
        env.push(format!("HOME={home}"));
    }
    Ok(env)
}

/// Permissions of keyrings(7) to search it: of its owner, and of everybody in a user namespace, as runc gives them.
const OWNER_SEARCH: u32 = 0x0008_0000;
const OTHER_SEARCH: u32 = 0x0000_0008;

/// Gives the container a session keyring of its own: the node's keys are not the container's. Where there are no keyrings
/// or no more of them, it keeps the one that it has, as with runc.
pub(crate) fn join_keyring(name: &str, has_own_users: bool) -> Result<(), InitError> {
    let Ok(name) = CString::new(name) else {
        return Ok(());
    };
    let search = if has_own_users {
        OTHER_SEARCH
    } else {
        OWNER_SEARCH
    };
    let joined = join_session_keyring(&name).and_then(|keyring| {
        let now = session_keyring_permissions(keyring)?;
        if now & search == search {
            return Ok(());
        }
        set_keyring_permissions(keyring, now | search)
    });
    match joined {
        Err(error)
            if matches!(
                Errno::from_io_error(&error),
                Some(Errno::NOSYS | Errno::PERM | Errno::ACCESS | Errno::DQUOT)
            ) =>
        {
            Ok(())
        }
        joined => joined.map_err(cannot("join a session keyring")),
    }
}

/// Opens the file that a process's AppArmor profile is written to, in the node's procfs: the container's may be anything
/// (CVE-2019-16884).
pub(crate) fn open_apparmor(process: &ProcessPlan) -> Result<Option<File>, InitError> {
    if process.apparmor.is_empty() {
        return Ok(None);
    }
    let open = |path: &str| -> io::Result<OwnedFd> {
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        Ok(rustix::fs::open(path, flags, Mode::empty())?)
    };
    let opened = open(LABELS[0]).or_else(|_| open(LABELS[1]));
    opened
        .map(|label| Some(label.into()))
        .map_err(cannot("open the file of AppArmor's label"))
}

/// Sets the AppArmor profile of the program that this process runs next. A process that it makes first inherits that.
pub(super) fn label(process: &ProcessPlan) -> Result<(), InitError> {
    match open_apparmor(process)? {
        Some(label) => process.write_label(label),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(asked: &[&str], home: Option<&str>) -> Result<Vec<String>, String> {
        let asked: Vec<String> = asked.iter().map(|one| (*one).to_owned()).collect();
        environment(&asked, || home.map(str::to_owned))
    }

    #[test]
    fn an_environment_has_each_name_once_and_a_home() {
        for (asked, home, expected) in [
            (
                &["A=1", "B=2"][..],
                Some("/root"),
                &["A=1", "B=2", "HOME=/root"][..],
            ),
            (&["A=1", "B=2", "A=3"], None, &["B=2", "A=3", "HOME=/"]),
            (&["HOME=/h", "A="], Some("/root"), &["HOME=/h", "A="]),
            (&["HOME="], Some("/root"), &["HOME=/root"]),
            (&["HOME=/a", "HOME="], None, &["HOME=/"]),
        ] {
            assert_eq!(env(asked, home).unwrap(), expected, "{asked:?}");
        }
        for (asked, why) in [
            ("A", "missing '='"),
            ("=x", "name cannot be empty"),
            ("A=x\0", "contains nul byte"),
        ] {
            assert!(env(&[asked], None).unwrap_err().contains(why), "{asked:?}");
        }
    }

    #[test]
    fn a_scheduler_has_the_kernels_numbers() {
        let asked = serde_json::json!({ "policy": "SCHED_FIFO", "priority": 9, "flags": ["SCHED_FLAG_RESET_ON_FORK"] });
        let asked: Result<Scheduler, _> = serde_json::from_value(asked);
        // The name of the flag is the library's matter.
        if let Ok(asked) = asked {
            let found = scheduling(&asked);
            assert_eq!((found.policy, found.priority, found.flags), (1, 9, 1));
        }
    }
}
