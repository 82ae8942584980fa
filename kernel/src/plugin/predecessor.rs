//! The process that an agent which was killed left behind.
//!
//! A plugin ends by itself some time after its agent, but its successor must not wait for that, nor
//! run beside it. So each process started is written down, and the next agent proves it dead first.
//! A number is no identity: the record holds the boot and the start time, too.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// Where the processes of one plugin are written down.
#[derive(Clone, Debug)]
pub(super) struct Record {
    path: PathBuf,
}

impl Record {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// Writes down a process that lives, or is not yet reaped. Without it the next agent waits for
    /// nobody, so a failure is worth a line but not the plugin.
    pub(super) fn write(&self, pid: u32) {
        let written = identity(pid).and_then(|identity| fs::write(&self.path, identity));
        if let Err(error) = written {
            tracing::warn!(pid, path = %self.path.display(), %error, "cannot write a plugin's process down");
        }
    }

    /// Ends the process that was written down, if it is still that process, and waits until it is
    /// dead.
    pub(super) async fn end(&self, grace: Duration) -> io::Result<()> {
        let Some((pid, pidfd)) = self.living() else {
            return Ok(());
        };
        tracing::warn!(pid, "ending the plugin process of an earlier agent");
        // A thread that waits: it is no child of ours, so nothing else tells of its end.
        let ended = tokio::task::spawn_blocking(move || {
            signal(&pidfd, Signal::TERM);
            if !dead(&pidfd, Some(grace))? {
                signal(&pidfd, Signal::KILL);
                dead(&pidfd, None)?;
            }
            Ok(())
        });
        ended.await.map_err(io::Error::other)?
    }

    fn living(&self) -> Option<(u32, OwnedFd)> {
        let written = fs::read_to_string(&self.path).ok()?;
        let pid: u32 = written.split_whitespace().next()?.parse().ok()?;
        let pidfd = pidfd_open(
            Pid::from_raw(i32::try_from(pid).ok()?)?,
            PidfdFlags::empty(),
        )
        .ok()?;
        // Compared after the descriptor was opened: it is the process that was looked at.
        (identity(pid).ok()? == written).then_some((pid, pidfd))
    }
}

fn signal(pidfd: &OwnedFd, signal: Signal) {
    // It may have ended by itself meanwhile, which is seen next.
    if let Err(error) = pidfd_send_signal(pidfd, signal) {
        tracing::debug!(%error, "cannot signal an earlier plugin");
    }
}

/// Waits for the end of a process; returns whether it came in time.
fn dead(pidfd: &OwnedFd, within: Option<Duration>) -> io::Result<bool> {
    let within = within.and_then(|within| Timespec::try_from(within).ok());
    // A pidfd is readable from the process's end on.
    let mut polled = [PollFd::new(pidfd, PollFlags::IN)];
    Ok(poll(&mut polled, within.as_ref())? > 0)
}

/// What tells this process from any other that had or will have its number.
fn identity(pid: u32) -> io::Result<String> {
    let stat = fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat"))?;
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    // The program's name stands in brackets and may hold anything, brackets too.
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let mut fields = after_name.split_whitespace();
    let dead = fields
        .next()
        .is_none_or(|state| state == "Z" || state == "X");
    // The 22nd field of the file is the 20th after the name; the state was the first.
    match fields.nth(18) {
        Some(start) if !dead => Ok(format!("{pid} {start} {}\n", boot.trim())),
        Some(_) | None => Err(io::Error::from(io::ErrorKind::NotFound)),
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[tokio::test]
    async fn process_of_an_earlier_agent_is_ended() {
        let folder = tempfile::tempdir().unwrap();
        let record = Record::new(folder.path().join("a.pid"));
        let mut child = Command::new("sleep").arg("3600").spawn().unwrap();
        record.write(child.id());
        record.end(Duration::from_secs(5)).await.unwrap();
        assert_eq!(child.wait().unwrap().to_string(), "signal: 15 (SIGTERM)");
    }

    #[tokio::test]
    async fn stranger_with_the_same_number_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let record = Record::new(folder.path().join("a.pid"));
        let mut child = Command::new("sleep").arg("3600").spawn().unwrap();
        for written in [
            "",
            "garbage",
            &format!("{} 1 another-boot\n", child.id()),
            "4294967295 1 x\n",
        ] {
            fs::write(&record.path, written).unwrap();
            record.end(Duration::from_millis(1)).await.unwrap();
            assert!(child.try_wait().unwrap().is_none(), "{written}");
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
