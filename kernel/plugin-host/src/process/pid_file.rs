//! The processes that an agent which was killed left behind.
//!
//! A plugin ends by itself some time after its agent, but its successor must not wait for that, nor
//! run beside it. So each process started is written down, and the next agent proves it dead first.
//! A number is no identity: the record holds the boot and the start time, too.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::{fs, io};

use rustix::process::Pid;

use crate::process::{PluginProcess, open_pidfd};

/// Where the processes of one plugin are written down, a line each.
#[derive(Clone, Debug)]
pub(crate) struct PidFile {
    path: PathBuf,
}

impl PidFile {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// Adds a process that lives, or is not yet reaped, to the file. Without it the next agent waits for no earlier
    /// process, so a failure is logged but does not fail the plugin.
    pub(crate) fn write(&self, pid: u32) {
        let kept = self.lines().filter(|(pid, line)| is_still(*pid, line));
        let kept: String = kept.map(|(_, line)| line).collect();
        let written =
            identity(pid).and_then(|identity| fs::write(&self.path, format!("{kept}{identity}")));
        if let Err(error) = written {
            tracing::warn!(pid, path = %self.path.display(), %error, "cannot write a plugin's process down");
        }
    }

    /// Returns the processes that were written down and are still those processes.
    pub(crate) fn living(&self) -> io::Result<Vec<PluginProcess>> {
        self.living_by(open_pidfd)
    }

    /// A living process whose pidfd cannot be opened is an error: a successor would run beside it.
    fn living_by(
        &self,
        open: impl Fn(Pid) -> io::Result<OwnedFd>,
    ) -> io::Result<Vec<PluginProcess>> {
        let living = self.lines().filter_map(|(pid, line)| {
            let opened = open(Pid::from_raw(i32::try_from(pid).ok()?)?);
            // Compared after the descriptor was opened: it is the process that was looked at.
            let is_still = is_still(pid, &line);
            is_still.then(|| PluginProcess::adopt(pid, opened?))
        });
        living.collect()
    }

    fn lines(&self) -> impl Iterator<Item = (u32, String)> {
        // Lossy: a damaged line must not hide the others.
        let written = fs::read(&self.path).unwrap_or_default();
        let written = String::from_utf8_lossy(&written);
        let lines: Vec<_> = written
            .split_inclusive('\n')
            .filter_map(|line| {
                let pid = line.split_whitespace().next()?.parse().ok()?;
                Some((pid, line.to_owned()))
            })
            .collect();
        lines.into_iter()
    }
}

fn is_still(pid: u32, line: &str) -> bool {
    identity(pid).is_ok_and(|identity| identity == line)
}

/// Whether the first thread of a process has ended and another one has not: the process was killed, and
/// that thread is stuck.
pub(crate) fn is_stuck(pid: u32) -> bool {
    stat(pid).is_ok_and(|stat| stat.is_zombie && stat.threads > 1)
}

/// What tells this process from any other that had or will have its number.
fn identity(pid: u32) -> io::Result<String> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    let stat = stat(pid)?;
    if stat.is_zombie && stat.threads <= 1 {
        return Err(io::ErrorKind::NotFound.into());
    }
    Ok(format!("{pid} {} {}\n", stat.start, boot.trim()))
}

/// Fields of `/proc/PID/stat`: whether the process lives, and when it started.
struct Stat {
    is_zombie: bool,
    threads: u32,
    /// In the kernel's ticks since the boot.
    start: u64,
}

fn stat(pid: u32) -> io::Result<Stat> {
    let stat = fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat"))?;
    // The program's name stands in brackets and may hold anything, brackets too.
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    // The 22nd field of the file is the 20th after the name, the number of threads the 18th.
    let [Some(&state), Some(&threads), Some(&start)] = [0, 17, 19].map(|at| fields.get(at)) else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    let number = |_| io::Error::from(io::ErrorKind::InvalidData);
    Ok(Stat {
        is_zombie: matches!(state, "Z" | "X"),
        threads: threads.parse().map_err(number)?,
        start: start.parse().map_err(number)?,
    })
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::Duration;

    use super::*;

    const LONG: Duration = Duration::from_secs(5);

    #[tokio::test]
    async fn processes_of_an_earlier_agent_are_found_and_ended() {
        let folder = tempfile::tempdir().unwrap();
        let record = PidFile::new(folder.path().join("a.pid"));
        let sleep = || Command::new("sleep").arg("3600").spawn().unwrap();
        let mut children = [sleep(), sleep()];
        for child in &children {
            record.write(child.id());
        }
        let living = record.living().unwrap();
        assert_eq!(living.len(), 2);
        // They are this process's children: their end is seen although they are not yet reaped.
        for process in living {
            assert_eq!(process.terminate(LONG).await.as_deref(), Some("unknown"));
        }
        assert!(record.living().unwrap().is_empty(), "what ended was found");
        for child in &mut children {
            assert_eq!(child.wait().unwrap().to_string(), "signal: 15 (SIGTERM)");
        }
    }

    #[tokio::test]
    async fn a_process_whose_descriptor_is_not_to_be_had_is_not_taken_for_gone() {
        let folder = tempfile::tempdir().unwrap();
        let record = PidFile::new(folder.path().join("a.pid"));
        let mut child = Command::new("sleep").arg("3600").spawn().unwrap();
        record.write(child.id());
        let none_left = |_| Err(rustix::io::Errno::MFILE.into());
        assert!(record.living_by(none_left).is_err());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(record.living_by(none_left).unwrap().is_empty());
    }

    #[tokio::test]
    async fn process_that_has_ended_is_not_written_down_again() {
        let folder = tempfile::tempdir().unwrap();
        let record = PidFile::new(folder.path().join("a.pid"));
        let mut first = Command::new("sleep").arg("3600").spawn().unwrap();
        record.write(first.id());
        first.kill().unwrap();
        first.wait().unwrap();
        record.write(std::process::id());
        let written = fs::read_to_string(&record.path).unwrap();
        assert_eq!(written, identity(std::process::id()).unwrap());
    }

    #[tokio::test]
    async fn stranger_with_the_same_number_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let record = PidFile::new(folder.path().join("a.pid"));
        let mut child = Command::new("sleep").arg("3600").spawn().unwrap();
        for written in [
            "",
            "garbage",
            &format!("{} 1 another-boot\n", child.id()),
            "4294967295 1 x\n",
        ] {
            fs::write(&record.path, written).unwrap();
            assert!(record.living().unwrap().is_empty(), "{written}");
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
