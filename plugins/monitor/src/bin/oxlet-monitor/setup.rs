//! The start of a monitor: what it inherited is let go, its folder is taken, its predecessor's containers are found.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;

use monitor::{LOCK_NAME, ProcessIdentity, SOCKET_NAME};
use rustix::event::{Timespec, poll};
use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use rustix::process::{getpid, set_child_subreaper, setsid, umask};

use crate::call::remove_quietly;
use crate::cgroup;
use crate::pod::Pod;
use crate::record::make_folder;

/// How often the lock is tried, 20 ms apart.
const LOCK_TURNS: u32 = 100;

/// What a monitor is told on its command line.
#[derive(Debug)]
pub(crate) struct Arguments {
    folder: PathBuf,
    cgroup: Option<PathBuf>,
}

impl Arguments {
    /// Reads `--folder DIR [--cgroup PATH]`; both are absolute.
    pub(crate) fn read(mut args: impl Iterator<Item = OsString>) -> Result<Arguments, String> {
        let (mut folder, mut cgroup) = (None, None);
        while let Some(name) = args.next() {
            let value = args
                .next()
                .map(PathBuf::from)
                .filter(|path| path.is_absolute());
            let value =
                value.ok_or_else(|| format!("{} needs an absolute path", name.display()))?;
            match name.to_str() {
                Some("--folder") => folder = Some(value),
                Some("--cgroup") => cgroup = Some(value),
                _ => return Err(format!("unknown argument {}", name.display())),
            }
        }
        let folder = folder.ok_or("usage: oxlet-monitor --folder DIR [--cgroup PATH]")?;
        Ok(Arguments { folder, cgroup })
    }
}

/// Runs the monitor until it is shut down. What it says before it is ready is why it is not.
pub(crate) fn run(arguments: Arguments) -> Result<(), String> {
    let Arguments { folder, cgroup } = arguments;
    leave_the_starter().map_err(|error| format!("cannot leave the starter: {error}"))?;
    // As conmon: out of memory, the kernel ends what the pod runs, and the monitor reports it.
    let is_spared = fs::write("/proc/self/oom_score_adj", "-1000").is_ok();
    if let Some(cgroup) = &cgroup {
        cgroup::enter(cgroup, is_spared)
            .map_err(|error| format!("cannot enter the cgroup {}: {error}", cgroup.display()))?;
    }
    let told = |what: &str, error: io::Error| format!("{what} of {}: {error}", folder.display());
    make_folder(&folder).map_err(|error| told("cannot make the folder", error))?;
    // Not truncated before it is ours: it says who has it.
    let mut lock = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(folder.join(LOCK_NAME))
        .map_err(|error| told("cannot make the lock", error))?;
    take(&lock).map_err(|error| told("another monitor has the lock", error))?;
    sign(&mut lock).map_err(|error| told("cannot write the lock", error))?;
    let children = watch_children().map_err(|error| told("cannot watch the children", error))?;
    let listener = listen(&folder).map_err(|error| told("cannot listen in the folder", error))?;
    let mut pod = Pod::recover(folder.clone(), listener, children)?;
    tell_ready().map_err(|error| format!("cannot say that it is ready: {error}"))?;
    pod.run()
        .map_err(|error| told("cannot wait for anything", error))?;
    remove_quietly(&folder.join(SOCKET_NAME));
    drop(lock);
    Ok(())
}

/// Takes the lock. A monitor that was killed this moment lets go of it when the kernel comes to it.
fn take(lock: &File) -> io::Result<()> {
    let turn = Timespec {
        tv_sec: 0,
        tv_nsec: 20_000_000,
    };
    for _ in 0..LOCK_TURNS {
        match flock(lock, FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let _ = poll(&mut [], Some(&turn));
            }
            taken => return Ok(taken?),
        }
    }
    Err(io::ErrorKind::WouldBlock.into())
}

/// Writes into the lock who has it, for a client that finds this process hanging.
fn sign(lock: &mut File) -> io::Result<()> {
    let own = ProcessIdentity::of(getpid().as_raw_nonzero().get());
    let own = own.ok_or(io::ErrorKind::NotFound)?;
    lock.set_len(0)?;
    lock.write_all(&serde_json::to_vec(&own)?)
}

/// Closes inherited descriptors, leaves the session, and becomes the parent of orphans.
fn leave_the_starter() -> io::Result<()> {
    let inherited: Vec<i32> = fs::read_dir("/proc/self/fd")?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|fd| *fd > 2)
        .collect();
    for fd in inherited {
        // One of them was the folder's own, which is closed already.
        let _ = nix::unistd::close(fd);
    }
    umask(Mode::from_raw_mode(0o077));
    // Fails for the leader of a group only, which is apart from its starter as it is.
    let _ = setsid();
    Ok(set_child_subreaper(Some(getpid()))?)
}

/// A descriptor that becomes readable when a child ends.
fn watch_children() -> io::Result<UnixStream> {
    let (read, write) = UnixStream::pair()?;
    read.set_nonblocking(true)?;
    signal_hook::low_level::pipe::register(nix::libc::SIGCHLD, write)?;
    Ok(read)
}

fn listen(folder: &std::path::Path) -> io::Result<UnixListener> {
    let socket = folder.join(SOCKET_NAME);
    // The lock is ours: whoever bound it is dead.
    remove_quietly(&socket);
    // The mask leaves it to root alone.
    let listener = UnixListener::bind(socket)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Says so to the starter, and lets go of its descriptors.
fn tell_ready() -> io::Result<()> {
    let mut out = io::stdout();
    out.write_all(b"ready\n")?;
    out.flush()?;
    let null = open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    Ok(())
}
