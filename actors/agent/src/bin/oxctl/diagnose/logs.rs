//! The ends of logs: the agent's own and those of containers.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::process::Command;

use super::files::{Finder, Unwanted, entries, is_folder, name, tail};

/// Of the agent's log.
const AGENT_LOG_BYTES: u64 = 4 << 20;
const JOURNAL_LINES: &str = "20000";
/// The journal may have to be searched.
const JOURNAL_TIMEOUT: Duration = Duration::from_secs(20);
/// Of each log of a container.
const CONTAINER_LOG_BYTES: u64 = 64 << 10;
/// Of a container: the log that is written, and the one of the instance before.
const LOGS_OF_CONTAINER: usize = 2;
/// Pods whose logs are collected: as many as the agent is asked about.
const MAX_PODS: usize = 1024;
/// Containers of one pod whose logs are collected; pods rarely have more than a dozen.
const MAX_CONTAINERS: usize = 64;

/// The file that the agent's process writes its log to; none where that is a pipe, a terminal or the journal.
pub(super) fn file_of(agent: u32) -> Option<PathBuf> {
    let target = fs::read_link(format!("/proc/{agent}/fd/2")).ok()?;
    target.symlink_metadata().ok()?.is_file().then_some(target)
}

/// The end of the agent's log file.
pub(super) fn of_agent(finder: &Finder, file: &Path) -> Result<(), Unwanted> {
    match tail(file, AGENT_LOG_BYTES) {
        Ok(text) => finder.file("logs/agent.log", text),
        Err(error) => finder.missing(file.display().to_string(), &error),
    }
}

/// What systemd's journal has of the agent's unit, or why it has nothing.
pub(super) async fn of_journal(unit: &str) -> Result<String, String> {
    let child = Command::new("journalctl")
        .args(["--no-pager", "--quiet", "--output=short-iso-precise"])
        .args(["--lines", JOURNAL_LINES, "--unit", unit])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn();
    let mut child = child.map_err(|error| format!("journalctl: {error}"))?;
    let read = async {
        let mut bytes = Vec::new();
        if let Some(output) = child.stdout.take() {
            let read = output.take(AGENT_LOG_BYTES).read_to_end(&mut bytes).await;
            read.map_err(|error| format!("journalctl: {error}"))?;
        }
        Ok::<Vec<u8>, String>(bytes)
    };
    let bytes = match tokio::time::timeout(JOURNAL_TIMEOUT, read).await {
        Ok(bytes) => bytes?,
        Err(_) => {
            let seconds = JOURNAL_TIMEOUT.as_secs();
            return Err(format!("journalctl did not answer within {seconds} s"));
        }
    };
    match bytes.is_empty() {
        true => Err(format!("the journal has nothing of {unit}")),
        false => Ok(String::from_utf8_lossy(&bytes).into_owned()),
    }
}

/// The ends of the logs below `podLogsDir`: `NAMESPACE_NAME_UID/CONTAINER/N.log`.
pub(super) fn of_containers(finder: &Finder, folder: &Path) -> Result<(), Unwanted> {
    let pods = match entries(folder, MAX_PODS) {
        Ok(pods) => pods,
        Err(error) => return finder.missing(folder.display().to_string(), &error),
    };
    for pod in pods.iter().filter(|pod| is_folder(pod)) {
        let containers = entries(pod, MAX_CONTAINERS).unwrap_or_default();
        for container in containers.iter().filter(|container| is_folder(container)) {
            for log in newest(container) {
                let text = match tail(&log, CONTAINER_LOG_BYTES) {
                    Ok(text) => text,
                    Err(error) => {
                        finder.missing(log.display().to_string(), &error)?;
                        continue;
                    }
                };
                let place = [name(pod), name(container), name(&log)].join("/");
                finder.file(format!("logs/pods/{place}"), text)?;
            }
        }
    }
    Ok(())
}

/// The logs of the last instances of a container, by their numbers. Rotated ones are older than they.
fn newest(container: &Path) -> Vec<PathBuf> {
    let logs = entries(container, MAX_PODS).unwrap_or_default();
    let numbered = logs.into_iter().filter_map(|log| {
        let number = name(&log).strip_suffix(".log")?.parse::<u64>().ok()?;
        Some((number, log))
    });
    let mut numbered: Vec<(u64, PathBuf)> = numbered.collect();
    numbered.sort();
    let newest = numbered.into_iter().rev().take(LOGS_OF_CONTAINER);
    newest.map(|(_, log)| log).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_logs_of_the_last_two_instances_count() {
        let folder = tempfile::tempdir().unwrap();
        for file in [
            "9.log",
            "10.log",
            "11.log",
            "11.log.20260101-000000",
            "x.log",
        ] {
            fs::write(folder.path().join(file), "").unwrap();
        }
        let names: Vec<String> = newest(folder.path()).iter().map(|log| name(log)).collect();
        assert_eq!(names, ["11.log", "10.log"]);
    }

    #[tokio::test]
    async fn a_journal_that_says_nothing_is_a_sentence() {
        let refused = of_journal("no-such-unit-of-a-test.service")
            .await
            .unwrap_err();
        assert!(refused.contains("journal"), "{refused}");
    }
}
