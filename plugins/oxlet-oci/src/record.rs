//! What is kept of a container beside its spec: the bundle it was made of, and who its init is.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde::{Deserialize, Serialize};

const FILE: &str = "oxlet.json";

/// A container.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) bundle: String,
    pub(crate) pid: i32,
    /// Clock ticks since boot: a process id alone may be another's by now.
    pub(crate) start_time: u64,
    /// Its cgroup of version 2, below the root.
    #[serde(default)]
    pub(crate) cgroup: Option<PathBuf>,
    /// Whether a start is nothing but a byte in the FIFO: no hook runs after it. The monitor reads this.
    #[serde(default)]
    pub(crate) starts_by_fifo: bool,
}

impl Record {
    pub(crate) fn write(&self, folder: &Path) -> io::Result<()> {
        let next = folder.join("oxlet.next");
        fs::write(&next, serde_json::to_vec(self)?)?;
        fs::rename(next, folder.join(FILE))
    }

    pub(crate) fn read(folder: &Path) -> io::Result<Record> {
        let bytes = crate::document::read_bounded(&folder.join(FILE))?;
        Ok(serde_json::from_slice(&bytes)?)
    }

    /// Opens its init; none when it is gone, also when another process has its number.
    pub(crate) fn open(&self) -> Option<OwnedFd> {
        let pid = Pid::from_raw(self.pid)?;
        let process = pidfd_open(pid, PidfdFlags::empty()).ok()?;
        // Asked after the descriptor is open, so that it is this process that has the descriptor.
        self.is_alive().then_some(process)
    }

    /// Whether its init is the process that has the number now, and not a zombie.
    pub(crate) fn is_alive(&self) -> bool {
        stat(self.pid).is_some_and(|(state, start_time)| {
            start_time == self.start_time && state != "Z" && state != "X"
        })
    }
}

/// When a process was started; none when it is gone.
pub(crate) fn start_time(pid: i32) -> Option<u64> {
    stat(pid).map(|(_, start_time)| start_time)
}

/// The state and the start time of a process (fields 3 and 22 of its `stat`).
fn stat(pid: i32) -> Option<(String, u64)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the program's name in brackets, and may hold anything.
    let (_, fields) = text.rsplit_once(')')?;
    let mut fields = fields.split_whitespace();
    let state = fields.next()?.to_owned();
    Some((state, fields.nth(18)?.parse().ok()?))
}
