//! The process that becomes a container's program.
//!
//! ```text
//! oxlet-oci create                      init
//!   fork  ─────────────────────────────▶  session of its own
//!   cgroup, then "go" ─────────────────▶  namespaces, keyring, root, mounts, devices
//!   hooks of the node  ◀──── "hooks" ───
//!   "go" ──────────────────────────────▶  hooks of the container, pivot, user, program found
//!   limits, devices, record ◀─ "ready" ─
//!   "go", end ─────────────────────────▶  waits at the FIFO for `start`
//!                                         hooks, capabilities, seccomp, program
//! ```
//!
//! It cannot be traced or looked into from before it joins anything (CVE-2016-9962): not dumpable, which `execve` ends. A
//! command that dies takes an init along that has not been told to go.

pub(crate) mod base;
pub(crate) mod channel;
mod confine;
mod console;
mod enter;
pub(crate) mod namespaces;
mod passwd;
mod process;
mod streams;
mod sysctl;

use std::convert::Infallible;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use container_syscalls::{MountAttributes, Propagation};
use oci_spec::runtime::{Hook, LinuxDevice};
use rustix::fs::{Mode, OFlags};
use rustix::mount::{MountPropagationFlags, UnmountFlags, mount_change, unmount};
use rustix::process::{DumpableBehavior, chdir, fchdir, pivot_root, set_dumpable_behavior, umask};

pub(crate) use self::enter::{Entered, enter};
pub(crate) use self::process::ProcessPlan;
pub(crate) use self::streams::own_by;

use self::channel::Channel;
use self::namespaces::Namespaces;
use crate::hooks::{HookState, run_all};
use crate::rootfs::mounting::{self, Made, MountError, OwnGroup};
use crate::rootfs::mounts::{Planned, has_own_dev};
use crate::rootfs::{Root, devices, hidden};

/// The code of a container whose program the kernel doesn't run; runc's.
const REFUSED_CODE: i32 = 255;

/// Why an init does not become the container's program.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InitError {
    /// In words that are complete.
    #[error("{0}")]
    Refused(String),
    #[error("cannot {0}")]
    Failed(String, #[source] io::Error),
    #[error(transparent)]
    Mount(#[from] MountError),
    #[error(transparent)]
    Hook(#[from] crate::hooks::HookError),
    #[error("the command that makes the container has ended")]
    Abandoned,
}

/// For `map_err`: what could not be done.
pub(crate) fn cannot<E: Into<io::Error>>(what: impl Into<String>) -> impl FnOnce(E) -> InitError {
    let what = what.into();
    move |error| InitError::Failed(what, error.into())
}

/// Everything that an init needs to know; it is read and checked before there is one.
#[derive(Debug)]
pub(crate) struct Setup {
    pub(crate) namespaces: Namespaces,
    pub(crate) keyring: String,
    pub(crate) rootfs: PathBuf,
    pub(crate) is_read_only: bool,
    pub(crate) propagation: Option<(Propagation, bool)>,
    /// What the container's mount namespace is copied from; without it, from the node's.
    pub(crate) base: Option<File>,
    pub(crate) mounts: Vec<Planned>,
    pub(crate) devices: Vec<LinuxDevice>,
    pub(crate) masked: Vec<String>,
    pub(crate) closed: Vec<String>,
    pub(crate) group: OwnGroup,
    pub(crate) hostname: String,
    pub(crate) domainname: String,
    pub(crate) sysctls: Vec<(String, String)>,
    pub(crate) create_hooks: Vec<Hook>,
    pub(crate) start_hooks: Vec<Hook>,
    pub(crate) state: HookState,
    pub(crate) process: ProcessPlan,
    pub(crate) console: Option<OwnedFd>,
    /// Where `start` is waited for, open for reading and writing so that opening never waits.
    pub(crate) start: File,
}

impl Setup {
    /// How the node's mounts spread to the container: as with runc, what the node mounts later may come in and nothing goes
    /// out, unless the spec says otherwise.
    fn root_propagation(&self) -> (Propagation, bool) {
        self.propagation.unwrap_or((Propagation::Slave, true))
    }

    /// Whether the container needs nothing of the node's mounts but copies of its sources, so that its mount namespace need
    /// not be copied from the node's.
    ///
    /// The others do: a user namespace locks what it takes over from the node, which a copy that is moved in is not; hooks of
    /// the container's namespace are programs of the node; what spreads to the node; a source that is a path or a device to
    /// its file system. Without mount_setattr(2) a detached copy cannot be parted from the node.
    pub(crate) fn can_leave_node(&self) -> bool {
        let (kind, _) = self.root_propagation();
        let has_call = mounting::has_mount_setattr(&self.start);
        let is_plain = |planned: &Planned| planned.is_plain();
        has_call
            && !self.namespaces.has_own_users()
            && self.create_hooks.is_empty()
            && matches!(kind, Propagation::Slave | Propagation::Private)
            && self.mounts.iter().all(is_plain)
    }
}

/// Keeps this process from being traced and looked into, until it runs another program.
pub(crate) fn hide() -> Result<(), InitError> {
    set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .map_err(cannot("hide this process from others"))
}

/// Becomes the container's program. Why it does not is told to the command that made this process, and once that has
/// ended, to whoever reads the container's output.
pub(crate) fn run(setup: Setup, channel: Channel) -> ! {
    let mut channel = Some(channel);
    let error = match become_program(setup, &mut channel) {
        Ok(never) => match never {},
        Err(error) => error,
    };
    end(&error, channel)
}

/// Ends this process with an error.
pub(crate) fn end(error: &InitError, channel: Option<Channel>) -> ! {
    let text = crate::error::with_causes(error);
    match channel {
        Some(channel) => channel.tell_error(&text),
        // A container may have closed it.
        None => drop(writeln!(io::stderr(), "{text}")),
    }
    std::process::exit(REFUSED_CODE)
}

fn become_program(setup: Setup, channel: &mut Option<Channel>) -> Result<Infallible, InitError> {
    let parent = channel.as_ref().ok_or(InitError::Abandoned)?;
    rustix::process::setsid().map_err(cannot("begin a session"))?;
    // From here on it is in its cgroup, which a cgroup namespace begins at.
    parent.wait_go()?;
    let of_node = OfNode::open(&setup)?;
    setup.namespaces.enter(setup.base.as_ref())?;
    hide()?;
    process::join_keyring(&setup.keyring, setup.namespaces.has_own_users())?;
    // What is made for the container has exactly the permissions that are named.
    umask(Mode::empty());
    set_names(&setup)?;
    sysctl::write(&setup.sysctls, &setup.namespaces)?;
    let apparmor = process::open_apparmor(&setup.process)?;
    let (root, mounts) = make_root(&setup, of_node)?;
    // For hooks, and for what programs find of it.
    umask(Mode::from_raw_mode(process::DEFAULT_UMASK));
    parent.ask_hooks()?;
    fchdir(&root).map_err(cannot("change to the container's root"))?;
    let state = setup.state.of_this_process("creating");
    run_all("createContainer", &setup.create_hooks, &state, None)?;
    finish_root(&setup, &root, &mounts)?;
    pivot(&root)?;
    spread(&setup, &mounts)?;
    if has_own_dev(&setup.mounts) {
        streams::reopen_null(&root)?;
    }
    drop((root, mounts));
    let ready = setup.process.ready(apparmor)?;
    parent.tell_ready()?;
    // Its end tells the command that all is done; nothing of the command may be in the container.
    *channel = None;
    wait_for_start(setup.start)?;
    let state = setup.state.of_this_process("created");
    let env = Some(ready.env.as_slice());
    run_all("startContainer", &setup.start_hooks, &state, env)?;
    confine::become_program(&setup.process, &ready)
}

fn set_names(setup: &Setup) -> Result<(), InitError> {
    if !setup.hostname.is_empty() {
        rustix::system::sethostname(setup.hostname.as_bytes())
            .map_err(cannot("set the hostname"))?;
    }
    if !setup.domainname.is_empty() {
        rustix::system::setdomainname(setup.domainname.as_bytes())
            .map_err(cannot("set the domainname"))?;
    }
    Ok(())
}

/// What a container that leaves the node's mounts behind mounts of them, as detached copies.
struct OfNode {
    root: OwnedFd,
    /// In the order of the mounts.
    sources: Vec<Option<OwnedFd>>,
}

impl OfNode {
    /// Opens everything, this process being among the node's mounts still; `None` if it takes them along.
    fn open(setup: &Setup) -> Result<Option<OfNode>, InitError> {
        if setup.base.is_none() {
            return Ok(None);
        }
        let (kind, _) = setup.root_propagation();
        // As all mounts of the node that a container takes along.
        let parted = |tree: OwnedFd| -> io::Result<OwnedFd> {
            let attributes = MountAttributes {
                propagation: Some(kind),
                ..MountAttributes::default()
            };
            mounting::change(&tree, attributes, true)?;
            Ok(tree)
        };
        let root = copy_root(&setup.rootfs)?;
        let root = parted(root).map_err(cannot("part the container's root from the node"))?;
        let mut sources = Vec::with_capacity(setup.mounts.len());
        for planned in &setup.mounts {
            let source = mounting::copy_source(planned, &setup.group)?;
            let failed = MountError::failed(&planned.destination, "part its source from the node");
            sources.push(source.map(parted).transpose().map_err(failed)?);
        }
        Ok(Some(OfNode { root, sources }))
    }
}

fn copy_root(rootfs: &Path) -> Result<OwnedFd, InitError> {
    mounting::copy(rootfs, true).map_err(|error| match error.raw_os_error() {
        Some(nix::libc::ENOSYS) => InitError::Mount(MountError::Kernel("open_tree(2)")),
        _ => cannot(format!("open root {}", rootfs.display()))(error),
    })
}

/// Mounts the container's root and everything in it.
fn make_root(setup: &Setup, of_node: Option<OfNode>) -> Result<(Root, Vec<Made>), InitError> {
    let (place, tree, sources) = match of_node {
        Some(OfNode { root, sources }) => (Path::new(base::ROOT), root, sources),
        None => {
            let (kind, recursive) = setup.root_propagation();
            mount_change("/", mounting::classic_propagation(kind, recursive))
                .map_err(cannot("set how mounts of the node spread"))?;
            part_from_node(&setup.rootfs, kind)?;
            (
                setup.rootfs.as_path(),
                copy_root(&setup.rootfs)?,
                Vec::new(),
            )
        }
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let below = rustix::fs::open(place, flags, Mode::empty())
        .map_err(cannot(format!("open root {}", place.display())))?;
    mounting::attach(&tree, below).map_err(cannot("mount the container's root"))?;
    let root = Root::new(tree);
    let made = mounting::make_all(&root, &setup.mounts, sources, &setup.group)?;
    mounting::verify_proc(&root, &setup.mounts)?;
    if has_own_dev(&setup.mounts) {
        devices::make(&root, &setup.devices, setup.namespaces.has_own_users())?;
        devices::link(&root)?;
    }
    Ok((root, made))
}

/// Has the mount that the root lies on share nothing with the node: a container's root that is mounted on a shared one would
/// be mounted on the node too, and pivot_root(2) refuses it.
fn part_from_node(rootfs: &Path, root: Propagation) -> Result<(), InitError> {
    let flags = match root {
        Propagation::Slave => MountPropagationFlags::DOWNSTREAM,
        Propagation::Private | Propagation::Shared | Propagation::Unbindable => {
            MountPropagationFlags::PRIVATE
        }
    };
    for path in rootfs.ancestors() {
        match mount_change(path, flags) {
            // Not the root of a mount: the mount begins further up.
            Err(rustix::io::Errno::INVAL) => {}
            changed => return changed.map_err(cannot("part the container's root from the node")),
        }
    }
    Ok(())
}

/// What is left to do in the root once hooks have had their turn: the terminal, the working directory, and what is hidden.
fn finish_root(setup: &Setup, root: &Root, mounts: &[Made]) -> Result<(), InitError> {
    process::make_working_folder(root, &setup.process.cwd)?;
    if let Some(socket) = &setup.console {
        let terminal = console::open(root)?;
        console::bind(root, &terminal)?;
        console::take(terminal, socket)?;
    }
    hidden::close(root, setup.closed.iter().map(String::as_str))?;
    hidden::mask(root, setup.masked.iter().map(String::as_str))?;
    mounting::close_last(mounts)?;
    if setup.is_read_only {
        mounting::change(root, mounting::read_only(), false)
            .map_err(cannot("make the container's root read-only"))?;
    }
    Ok(())
}

/// Makes the container's root this process's, and takes the node's away.
fn pivot(root: &Root) -> Result<(), InitError> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let node =
        rustix::fs::open("/", flags, Mode::empty()).map_err(cannot("open the node's root"))?;
    fchdir(root).map_err(cannot("change to the container's root"))?;
    // The old root lies on the new one then, and is taken away there: no folder is needed for it.
    pivot_root(".", ".").map_err(cannot("make the container's root this process's"))?;
    fchdir(&node).map_err(cannot("change to the node's root"))?;
    let slave = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    // Without this the node would lose its mounts as well, where they spread.
    mount_change(".", slave).map_err(cannot("part the node's mounts from the node"))?;
    unmount(".", UnmountFlags::DETACH).map_err(cannot("take the node's root away"))?;
    chdir("/").map_err(cannot("change to the container's root"))
}

/// Sets how the container's root spreads, where it does, which pivot_root(2) does not allow before. Each mount keeps what
/// the spec says of it.
fn spread(setup: &Setup, mounts: &[Made]) -> Result<(), InitError> {
    let Some((kind @ (Propagation::Shared | Propagation::Unbindable), recursive)) =
        setup.propagation
    else {
        return Ok(());
    };
    mount_change("/", mounting::classic_propagation(kind, recursive))
        .map_err(cannot("set how the container's root spreads"))?;
    for made in mounts.iter().filter(|_| recursive) {
        if let Some((propagation, recursive)) = made.propagation {
            let attributes = MountAttributes {
                propagation: Some(propagation),
                ..MountAttributes::default()
            };
            mounting::change(&made.mount, attributes, recursive)
                .map_err(MountError::failed(&made.destination, "set how it spreads"))?;
        }
    }
    Ok(())
}

/// Waits until `start` has written to the FIFO.
fn wait_for_start(mut fifo: File) -> Result<(), InitError> {
    fifo.read_exact(&mut [0])
        .map_err(cannot("wait for the start"))
}
