//! CNI plugins that outlived a process of this plugin: ended before its successor answers a call.
//!
//! A network plugin that is killed leaves the CNI plugins that it runs alone; one of them might still add an address
//! while the successor takes it away. They are known by the mark in their environment, as are their children.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use blocking_pool::Cancel;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::chain::MARK;

/// Rounds: a process may have started another one while it was looked for.
const ROUNDS: usize = 8;
/// How long one killed process may take to end; the agent waits ten seconds for the whole start.
const END_TIMEOUT: Duration = Duration::from_secs(3);

/// Kills every process with the mark, and waits for its end. Returns how many there were.
pub(crate) fn end(mark: &str) -> io::Result<usize> {
    let sought = format!("{MARK}={mark}");
    let mut ended = 0;
    for _ in 0..ROUNDS {
        let found = find(&sought)?;
        if found.is_empty() || Cancel::current().is_set() {
            return Ok(ended);
        }
        ended += found.len();
        for process in &found {
            // It may have ended by itself meanwhile.
            let _ended = pidfd_send_signal(process, Signal::KILL);
        }
        found.iter().try_for_each(wait)?;
    }
    Ok(ended)
}

fn find(sought: &str) -> io::Result<Vec<OwnedFd>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let number = name.to_str().and_then(|name| name.parse().ok());
        let Some(pid) = number.and_then(Pid::from_raw) else {
            continue;
        };
        if !has(pid, sought) {
            continue;
        }
        // Looked at again through the descriptor's process: the number may have become another's in between.
        if let Ok(process) = pidfd_open(pid, PidfdFlags::empty())
            && has(pid, sought)
        {
            found.push(process);
        }
    }
    Ok(found)
}

fn has(pid: Pid, sought: &str) -> bool {
    let environment = fs::read(format!("/proc/{}/environ", pid.as_raw_nonzero()));
    let environment = environment.unwrap_or_default();
    let mut variables = environment.split(|byte| *byte == 0);
    variables.any(|variable| variable == sought.as_bytes())
}

fn wait(process: &OwnedFd) -> io::Result<()> {
    let timeout = Timespec::try_from(END_TIMEOUT).expect("three seconds fit");
    let mut ended = [PollFd::new(process, PollFlags::IN)];
    match poll(&mut ended, Some(&timeout))? {
        0 => Err(io::Error::other(
            "a CNI plugin of an earlier process was killed and does not end",
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn marked_processes_are_ended_with_their_children_and_no_others() {
        let mark = format!("/leftovers/{}", std::process::id());
        let mut marked = Command::new("sh")
            .args(["-c", "sleep 600 & wait"])
            .env(MARK, &mark)
            .spawn()
            .unwrap();
        let mut other = Command::new("sleep")
            .arg("600")
            .env(MARK, "/other")
            .spawn()
            .unwrap();
        assert!(end(&mark).unwrap() >= 1);
        assert!(!marked.wait().unwrap().success());
        assert_eq!(end(&mark).unwrap(), 0);
        assert!(other.try_wait().unwrap().is_none());
        other.kill().unwrap();
        other.wait().unwrap();
    }
}
