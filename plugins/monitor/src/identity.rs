//! Processes by what no later process shares: their id and when they started.

use std::fs;
use std::os::fd::OwnedFd;

use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde::{Deserialize, Serialize};

/// A process that cannot be taken for a later one with the same id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessIdentity {
    /// As the host counts.
    pub pid: i32,
    /// Clock ticks since boot, field 22 of `/proc/PID/stat`.
    pub start_time: u64,
}

impl ProcessIdentity {
    /// Returns the identity of the process that has this id now; `None` when there is none.
    #[must_use]
    pub fn of(pid: i32) -> Option<ProcessIdentity> {
        let start_time = stat_fields(pid)?.get(19)?.parse().ok()?;
        Some(ProcessIdentity { pid, start_time })
    }

    /// Opens the process; `None` when it has ended, also when another one has its id.
    #[must_use]
    pub fn open(self) -> Option<OwnedFd> {
        let pidfd = pidfd_open(Pid::from_raw(self.pid)?, PidfdFlags::empty()).ok()?;
        // Asked after the descriptor is open, so that it is this process that has the descriptor.
        let is_same = ProcessIdentity::of(self.pid)? == self;
        (is_same && !matches!(process_state(self.pid), 'Z' | 'X')).then_some(pidfd)
    }
}

/// Returns the state letter of a process (field 3 of `/proc/PID/stat`); `X` (dead) when there is none.
#[must_use]
pub fn process_state(pid: i32) -> char {
    stat_fields(pid)
        .and_then(|fields| fields.first()?.chars().next())
        .unwrap_or('X')
}

/// The fields of `/proc/PID/stat` from the third on.
fn stat_fields(pid: i32) -> Option<Vec<String>> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the program's name in brackets, and may hold anything.
    let (_, fields) = stat.rsplit_once(')')?;
    Some(fields.split_whitespace().map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_opened_only_by_its_own_start_time() {
        let pid = i32::try_from(std::process::id()).unwrap();
        let own = ProcessIdentity::of(pid).unwrap();
        assert!(own.open().is_some());
        let other = ProcessIdentity {
            start_time: own.start_time + 1,
            ..own
        };
        assert!(other.open().is_none());
    }
}
