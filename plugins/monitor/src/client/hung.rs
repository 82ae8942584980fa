//! A monitor that hangs: its process found, beyond doubt, and killed.
//!
//! A process is the monitor's if its lock names it with its start time, or if the kernel says that it listens on the
//! monitor's socket. Both are looked at again after the process was opened: a process id alone is never trusted.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::time::{sleep, timeout};

use crate::identity::{ProcessIdentity, process_state};
use crate::protocol::{LOCK_NAME, SOCKET_NAME};

/// How long a killed monitor may take to end. One that waits for a disk ends when the disk answers.
const DEATH_TIMEOUT: Duration = Duration::from_secs(10);
/// How often its end is looked for.
const DEATH_PERIOD: Duration = Duration::from_millis(5);
/// The longest lock file that is read, in bytes.
const MAX_LOCK_BYTES: u64 = 4096;

/// The process of a monitor.
#[derive(Debug)]
pub(super) struct MonitorProcess {
    pub(super) pid: i32,
    pidfd: OwnedFd,
}

impl MonitorProcess {
    /// Finds the process of a folder's monitor; `None` when there is none.
    pub(super) fn find(folder: &Path) -> Option<MonitorProcess> {
        by_lock(folder).or_else(|| by_socket(folder))
    }

    /// Whether it waits for a disk or another device, so that it can neither answer nor end.
    pub(super) fn waits_for_device(&self) -> bool {
        process_state(self.pid) == 'D'
    }

    /// Kills it; false when it has not ended in time.
    pub(super) async fn kill(&self) -> io::Result<bool> {
        match pidfd_send_signal(&self.pidfd, Signal::KILL) {
            Ok(()) | Err(Errno::SRCH) => {}
            Err(error) => return Err(error.into()),
        }
        let ended = async {
            while !self.has_ended() {
                sleep(DEATH_PERIOD).await;
            }
        };
        Ok(timeout(DEATH_TIMEOUT, ended).await.is_ok())
    }

    fn has_ended(&self) -> bool {
        let mut ended = [PollFd::new(&self.pidfd, PollFlags::IN)];
        poll(&mut ended, Some(&Timespec::default())) == Ok(1)
    }
}

/// By what the monitor wrote into its lock.
fn by_lock(folder: &Path) -> Option<MonitorProcess> {
    // It lies in a folder of root's alone; what a mishap put there must not make the caller wait all the same.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let lock = rustix::fs::open(folder.join(LOCK_NAME), flags, Mode::empty()).ok()?;
    let mut text = Vec::new();
    File::from(lock)
        .take(MAX_LOCK_BYTES)
        .read_to_end(&mut text)
        .ok()?;
    let identity: ProcessIdentity = serde_json::from_slice(&text).ok()?;
    let pidfd = identity.open()?;
    Some(MonitorProcess {
        pid: identity.pid,
        pidfd,
    })
}

/// By the kernel's word on who listens: a process that listens after it was opened is the one that was opened.
fn by_socket(folder: &Path) -> Option<MonitorProcess> {
    let pid = listener(folder)?;
    let pidfd = pidfd_open(pid, PidfdFlags::empty()).ok()?;
    let pid = (listener(folder)? == pid).then(|| pid.as_raw_nonzero().get())?;
    Some(MonitorProcess { pid, pidfd })
}

/// Returns the process that listens on the monitor's socket. It needs not accept: the kernel connects, and refuses once
/// the listener is closed.
fn listener(folder: &Path) -> Option<Pid> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).ok()?;
    let address = SocketAddrUnix::new(folder.join(SOCKET_NAME)).ok()?;
    connect(&socket, &address).ok()?;
    let peer = getsockopt(&socket, PeerCredentials).ok()?;
    // 0 for a process outside this pid namespace.
    Pid::from_raw(peer.pid())
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn a_monitor_is_found_by_its_lock_or_by_its_socket_and_by_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let own = i32::try_from(std::process::id()).unwrap();
        let pid = || MonitorProcess::find(dir.path()).map(|found| found.pid);
        assert_eq!(pid(), None);

        let identity = ProcessIdentity::of(own).unwrap();
        let later = ProcessIdentity {
            start_time: identity.start_time + 1,
            ..identity
        };
        let lock = dir.path().join(LOCK_NAME);
        for (text, expected) in [
            (serde_json::to_string(&identity).unwrap(), Some(own)),
            (serde_json::to_string(&later).unwrap(), None),
            ("{\"pid\":1".to_owned(), None),
            (String::new(), None),
        ] {
            std::fs::write(&lock, &text).unwrap();
            assert_eq!(pid(), expected, "{text}");
        }

        let listener = UnixListener::bind(dir.path().join(SOCKET_NAME)).unwrap();
        assert_eq!(pid(), Some(own));
        drop(listener);
        assert_eq!(pid(), None);
    }
}
