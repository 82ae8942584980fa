//! `make run`: what a newcomer sees first, and what is left of it.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use integration::agent::program;
use integration::containerd::missing;
use integration::wait_until;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::process::Command;

const CONVERGENCE_TIMEOUT: Duration = Duration::from_secs(90);

/// More arguments than the folder: which runtime.
type Choice = &'static [&'static str];
const BEST: Choice = &[];
const NATIVE: Choice = &["--runtime", "native"];

fn command(folder: &Path, choice: Choice) -> Command {
    let mut command = Command::new(program("try-oxlet").unwrap());
    command.arg("--folder").arg(folder).args(choice);
    command.stdin(Stdio::null());
    command
}

/// Processes that name something in this folder.
fn left(folder: &Path) -> Vec<String> {
    let folder = folder.display().to_string();
    let mut left = Vec::new();
    for entry in fs::read_dir("/proc").unwrap() {
        let line = fs::read(entry.unwrap().path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        if line.contains(&folder) {
            left.push(line);
        }
    }
    left
}

fn assert_nothing_left(folder: &Path) {
    assert_eq!(left(folder), Vec::<String>::new());
    assert!(!folder.exists());
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(&folder.display().to_string()), "{mounts}");
}

async fn shown(folder: &Path, choice: Choice) -> String {
    let run = command(folder, choice).args(["--until", "shown"]).output();
    let output = tokio::time::timeout(CONVERGENCE_TIMEOUT, run)
        .await
        .unwrap()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}\n{errors}");
    said
}

async fn shows_the_sample_pod(choice: Choice, runtime: &str) {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("try");
    let log = dir.path().join("log");
    let first = command(&folder, choice)
        .stdout(fs::File::create(&log).unwrap())
        .spawn();
    let mut first = first.unwrap();
    wait_until(CONVERGENCE_TIMEOUT, "everything is shown", async || {
        fs::read_to_string(&log).is_ok_and(|text| text.contains("Ctrl-C"))
    })
    .await
    .unwrap();
    // A second instance is refused the folder; the first is then killed without a chance to tidy up.
    let second = command(&folder, choice).output().await.unwrap();
    let refusal = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(refusal.contains("another one runs"), "{refusal}");
    first.kill().await.unwrap();
    assert!(!left(&folder).is_empty());

    let said = shown(&folder, choice).await;
    for words in [
        runtime,
        "hello-node",
        "1/1",
        "stdout F hello",
        "Look around",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert_nothing_left(&folder);
}

#[tokio::test]
async fn it_shows_the_sample_pod_and_leaves_nothing_even_after_one_that_was_killed() {
    let best = match missing() {
        None => "Runtime: containerd",
        Some(_) => "Runtime: native",
    };
    shows_the_sample_pod(BEST, best).await;
}

#[tokio::test]
async fn it_does_so_without_a_daemon() {
    shows_the_sample_pod(NATIVE, "Runtime: native").await;
}

#[tokio::test]
async fn ctrl_c_takes_everything_away() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("try");
    let log = dir.path().join("log");
    let run = command(&folder, BEST)
        .stdout(fs::File::create(&log).unwrap())
        .spawn();
    let mut run = run.unwrap();
    wait_until(CONVERGENCE_TIMEOUT, "everything is shown", async || {
        fs::read_to_string(&log).is_ok_and(|text| text.contains("Ctrl-C"))
    })
    .await
    .unwrap();
    let pid = Pid::from_raw(i32::try_from(run.id().unwrap()).unwrap());
    kill(pid, Signal::SIGINT).unwrap();
    let status = tokio::time::timeout(CONVERGENCE_TIMEOUT, run.wait())
        .await
        .unwrap()
        .unwrap();
    assert!(status.success(), "{status}");
    assert_nothing_left(&folder);
}
