//! Namespaces without a process: made on a thread of their own, pinned by mounts, entered by threads of their own.
//!
//! Everything here blocks: it is called on the blocking pool. The threads end with the call, so that no thread of the
//! plugin stays in a pod's namespace.

use std::fs::{self, File};
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use nix::sched::{CloneFlags, setns, unshare};
use rustix::fs::statfs;
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, unmount};
use rustix::process::Uid;
use rustix::thread::set_thread_res_uid;

/// `f_type` of the file system of namespaces.
const NSFS_MAGIC: i64 = 0x6e73_6673;
/// Mounts over one another at one place: more are not taken away in one call.
const MAX_STACKED_MOUNTS: u32 = 16;
const SHM_OPTIONS: &str = "mode=1777,size=67108864";
/// How long a connection to a pod's port may take before a port-forward fails.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Why a sandbox's namespaces cannot be made, entered or taken away.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NamespaceError {
    #[error("cannot make namespaces")]
    Unshare(#[source] io::Error),
    #[error("cannot set hostname {0:?}")]
    Hostname(String, #[source] io::Error),
    #[error("cannot mount {}", .0.display())]
    Mount(PathBuf, #[source] io::Error),
    #[error("cannot unmount {}", .0.display())]
    Unmount(PathBuf, #[source] io::Error),
    #[error("cannot enter namespace {}", .0.display())]
    Enter(PathBuf, #[source] io::Error),
    #[error("cannot become root of a user namespace")]
    Become(#[source] io::Error),
    #[error("cannot set sysctl {0}")]
    Sysctl(String, #[source] io::Error),
    #[error("no thread for namespaces")]
    Thread(#[source] io::Error),
}

/// The namespaces that a sandbox has to itself, each under its name in `/proc/PID/ns`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OwnNamespaces {
    /// The others belong to it.
    pub(crate) user: bool,
    pub(crate) network: bool,
    pub(crate) ipc: bool,
    pub(crate) uts: bool,
}

impl OwnNamespaces {
    pub(crate) fn names(self) -> impl Iterator<Item = &'static str> {
        let all = [
            (self.user, "user"),
            (self.network, "net"),
            (self.ipc, "ipc"),
            (self.uts, "uts"),
        ];
        all.into_iter()
            .filter_map(|(own, name)| own.then_some(name))
    }

    fn flags(self) -> CloneFlags {
        let all = [
            (self.network, CloneFlags::CLONE_NEWNET),
            (self.ipc, CloneFlags::CLONE_NEWIPC),
            (self.uts, CloneFlags::CLONE_NEWUTS),
        ];
        all.into_iter()
            .filter_map(|(own, flag)| own.then_some(flag))
            .collect()
    }
}

/// Makes the namespaces, in the node's user namespace, and pins them as `FOLDER/NAME`; an empty hostname keeps the node's.
pub(crate) fn pin(folder: &Path, own: OwnNamespaces, hostname: &str) -> Result<(), NamespaceError> {
    on_thread(|| {
        unshare(own.flags()).map_err(|error| NamespaceError::Unshare(error.into()))?;
        if own.uts && !hostname.is_empty() {
            name_machine(hostname)?;
        }
        for name in own.names() {
            let pin = folder.join(name);
            File::create(&pin)
                .and_then(|_| Ok(mount_bind(format!("/proc/thread-self/ns/{name}"), &pin)?))
                .map_err(|error| NamespaceError::Mount(pin, error))?;
        }
        Ok(())
    })
}

/// Sets the hostname in a UTS namespace.
pub(super) fn set_hostname(pin: &Path, hostname: &str) -> Result<(), NamespaceError> {
    on_thread(|| {
        enter(pin)?;
        name_machine(hostname)
    })
}

fn name_machine(hostname: &str) -> Result<(), NamespaceError> {
    rustix::system::sethostname(hostname.as_bytes())
        .map_err(|error| NamespaceError::Hostname(hostname.to_owned(), error.into()))
}

/// Tells whether every one of the namespaces is pinned.
pub(crate) fn pinned(folder: &Path, own: OwnNamespaces) -> bool {
    own.names().all(|name| is_namespace(&folder.join(name)))
}

fn is_namespace(path: &Path) -> bool {
    statfs(path).is_ok_and(|found| found.f_type == NSFS_MAGIC)
}

/// Takes pins away; those that are gone already are no error.
pub(crate) fn unpin(folder: &Path) -> Result<(), NamespaceError> {
    for name in ["user", "net", "ipc", "uts"] {
        unmount_all(&folder.join(name))?;
    }
    Ok(())
}

/// Mounts the sandbox's shared memory.
pub(crate) fn mount_shm(path: &Path) -> Result<(), NamespaceError> {
    let failed = |error: io::Error| NamespaceError::Mount(path.to_owned(), error);
    fs::create_dir_all(path).map_err(failed)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    let options = std::ffi::CString::new(SHM_OPTIONS).expect("it has no NUL");
    mount("shm", path, "tmpfs", flags, Some(options.as_c_str()))
        .map_err(|error| failed(error.into()))
}

/// Unmounts whatever is mounted at a path; nothing there is no error. What is busy is detached, and said.
pub(crate) fn unmount_all(path: &Path) -> Result<(), NamespaceError> {
    for _ in 0..MAX_STACKED_MOUNTS {
        match unmount(path, UnmountFlags::NOFOLLOW) {
            Ok(()) => {}
            Err(Errno::INVAL | Errno::NOENT) => return Ok(()),
            Err(Errno::BUSY) => {
                tracing::warn!(path = %path.display(), "a mount is busy and is detached");
                unmount(path, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW)
                    .map_err(|error| NamespaceError::Unmount(path.to_owned(), error.into()))?;
            }
            Err(error) => return Err(NamespaceError::Unmount(path.to_owned(), error.into())),
        }
    }
    Err(NamespaceError::Unmount(
        path.to_owned(),
        io::Error::other(format!(
            "more than {MAX_STACKED_MOUNTS} mounts lie over one another"
        )),
    ))
}

/// Writes sysctls in the sandbox's namespaces; `files` are relative to `/proc/sys`. Those of IPC are written by nobody
/// but root of the user namespace that they belong to, whom `root` names where it isn't the node's.
pub(crate) fn write_sysctls(
    folder: &Path,
    files: &[(String, String)],
    root: Option<u32>,
) -> Result<(), NamespaceError> {
    if files.is_empty() {
        return Ok(());
    }
    on_thread(|| {
        for name in ["net", "ipc"] {
            let pin = folder.join(name);
            if is_namespace(&pin) {
                enter(&pin)?;
            }
        }
        if let Some(root) = root {
            // This thread's alone, and it has no other user to go back to.
            let root = Uid::from_raw(root);
            set_thread_res_uid(root, root, root)
                .map_err(|error| NamespaceError::Become(error.into()))?;
        }
        for (file, value) in files {
            fs::write(Path::new("/proc/sys").join(file), value)
                .map_err(|error| NamespaceError::Sysctl(file.clone(), error))?;
        }
        Ok(())
    })
}

/// Connects to a port of the loopback interface in a network namespace; none is the node's own.
pub(crate) fn connect(network: Option<&Path>, port: u16) -> Result<TcpStream, ConnectError> {
    let work = || {
        if let Some(network) = network {
            enter(network)?;
        }
        let mut refused = None;
        for host in [[127, 0, 0, 1].into(), std::net::Ipv6Addr::LOCALHOST.into()] {
            match TcpStream::connect_timeout(&SocketAddr::new(host, port), CONNECT_TIMEOUT) {
                Ok(stream) => return Ok(Ok(stream)),
                Err(error) => refused = refused.or(Some(error)),
            }
        }
        let refused = refused.unwrap_or_else(|| io::Error::other("no address"));
        Ok(Err(ConnectError::Refused(port, refused)))
    };
    on_thread(work)?
}

/// Why a port of a sandbox cannot be connected to.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectError {
    #[error("failed to connect to localhost:{0}: {1}")]
    Refused(u16, io::Error),
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
}

fn enter(pin: &Path) -> Result<(), NamespaceError> {
    let failed = |error: io::Error| NamespaceError::Enter(pin.to_owned(), error);
    let namespace = File::open(pin).map_err(failed)?;
    setns(namespace.as_fd(), CloneFlags::empty()).map_err(|error| failed(error.into()))
}

/// Does `work` on a thread that ends with it, whatever namespace it is in by then.
fn on_thread<T: Send>(
    work: impl FnOnce() -> Result<T, NamespaceError> + Send,
) -> Result<T, NamespaceError> {
    thread::scope(|scope| {
        let builder = thread::Builder::new().name("namespaces".to_owned());
        let worker = builder.spawn_scoped(scope, work);
        let worker = worker.map_err(NamespaceError::Thread)?;
        worker.join().unwrap_or_else(|_| {
            Err(NamespaceError::Thread(io::Error::other(
                "the thread panicked",
            )))
        })
    })
}
