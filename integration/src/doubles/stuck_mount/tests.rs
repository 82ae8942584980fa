//! The proof of the rig: a process that accesses a held path is stuck as with a dead mount.

use std::fs;
use std::process::Stdio;
use std::time::Duration;

use tempfile::TempDir;
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::*;
use crate::wait_until;

const LONG: Duration = Duration::from_secs(20);
/// Longer than SIGKILL takes for anything that it can end.
const A_WHILE: Duration = Duration::from_millis(500);

fn mounted() -> (StuckMount, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    (StuckMount::mount(folder.path()).unwrap(), folder)
}

fn stat(path: &Path) -> Child {
    let mut command = Command::new("stat");
    command
        .arg(path)
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.spawn().unwrap()
}

/// The letter of a process's state, and whether SIGKILL is pending.
fn state(child: &Child) -> (char, bool) {
    let path = format!("/proc/{}/status", child.id().unwrap());
    let status = fs::read_to_string(path).unwrap();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap().trim().to_owned()
    };
    let pending = |name| u64::from_str_radix(&field(name), 16).unwrap() & (1 << 8) != 0;
    let letter = field("State:").chars().next().unwrap();
    (letter, pending("SigPnd:") || pending("ShdPnd:"))
}

#[test]
fn it_is_a_file_system_like_any_other_while_it_holds_nobody() {
    let (mount, _folder) = mounted();
    let names: Vec<_> = fs::read_dir(mount.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(names, ["data"]);
    assert!(fs::metadata(mount.folder()).unwrap().is_dir());
    assert_eq!(fs::read_dir(mount.folder()).unwrap().count(), 0);
    let error = fs::metadata(mount.path().join("nothing")).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
}

#[tokio::test]
async fn who_looks_at_a_held_path_is_not_ended_by_sigkill_until_it_is_released() {
    let (mount, _folder) = mounted();
    mount.block();
    let mut child = stat(&mount.folder());
    wait_until(LONG, "the request is held", async || mount.blocked() > 0)
        .await
        .unwrap();
    child.start_kill().unwrap();
    wait_until(LONG, "SIGKILL is pending", async || state(&child).1)
        .await
        .unwrap();
    assert!(
        timeout(A_WHILE, child.wait()).await.is_err(),
        "it was killed"
    );
    assert_eq!(state(&child), ('D', true));

    mount.unblock();
    let exit = timeout(LONG, child.wait()).await.unwrap().unwrap();
    assert_eq!(exit.to_string(), "signal: 9 (SIGKILL)");
    assert!(fs::metadata(mount.folder()).unwrap().is_dir());
}

#[tokio::test]
async fn who_was_held_and_is_released_goes_on_as_if_nothing_had_been() {
    let (mount, _folder) = mounted();
    mount.block();
    let mut child = stat(&mount.folder());
    wait_until(LONG, "the request is held", async || mount.blocked() > 0)
        .await
        .unwrap();
    mount.unblock();
    assert!(
        timeout(LONG, child.wait())
            .await
            .unwrap()
            .unwrap()
            .success()
    );
    assert_eq!(mount.blocked(), 0);
}

#[tokio::test]
async fn dropped_it_frees_whoever_it_holds_and_is_gone() {
    let (mount, folder) = mounted();
    mount.block();
    let mut child = stat(&mount.folder());
    wait_until(LONG, "the request is held", async || mount.blocked() > 0)
        .await
        .unwrap();
    drop(mount);
    let exit = timeout(LONG, child.wait()).await.unwrap().unwrap();
    assert_eq!(exit.code(), Some(1), "stat was told of an error");
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(folder.path().to_str().unwrap()));
}
