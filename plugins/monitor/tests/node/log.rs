//! What containers write, in CRI's form.

use std::fs;
use std::process::Command;

use monitor::{Exit, Fact, Input};
use serde_json::json;

use crate::rig::{Rig, read_until, sh, with_each_runtime, within};

#[tokio::test]
async fn a_log_is_whole_when_the_exit_is_told() {
    with_each_runtime(|rig| async move {
        rig.exit(&sh("both", "echo one; echo two >&2; printf three"))
            .await;
        let mut lines: Vec<_> = rig.log("both").lines().map(str::to_owned).collect();
        lines.sort();
        assert_eq!(lines, ["stderr F two", "stdout F one", "stdout P three"]);
        rig.exit(&sh("many", "seq 20000")).await;
        let log = rig.log("many");
        assert_eq!(log.lines().count(), 20_000);
        assert!(log.ends_with("stdout F 20000\n"));
        rig.end().await;
    })
    .await;
}

/// By its log an instance is counted where nothing else is left of it.
#[tokio::test]
async fn a_container_that_never_starts_leaves_no_log_unless_its_runtime_refuses_it() {
    with_each_runtime(|rig| async move {
        rig.create(&sh("unstarted", "true")).await;
        rig.kill_monitor().await;
        rig.succeed().await;
        assert!(!rig.log_path("unstarted").exists());
        within(rig.monitor.start("unstarted")).await.unwrap();
        assert!(rig.log_path("unstarted").exists());
        let mut broken = sh("broken", "true");
        broken.spec = |spec| spec["process"]["args"] = json!(["/bin/nothing"]);
        if within(rig.monitor.create(rig.bundle(&broken)))
            .await
            .is_ok()
        {
            // Some runtimes find it out at the start.
            drop(within(rig.monitor.start("broken")).await);
        }
        assert_eq!(rig.log("broken"), "");
        rig.end().await;
    })
    .await;
}

#[tokio::test]
async fn a_long_line_is_split_at_16_kib() {
    let rig = Rig::new().await;
    rig.exit(&sh(
        "long",
        "head -c 40000 /proc/self/exe | tr -c x x; echo; echo end",
    ))
    .await;
    let log = rig.log("long");
    let lines: Vec<_> = log
        .lines()
        .map(|line| (&line[..9], line.len() - 9))
        .collect();
    assert_eq!(
        lines,
        [
            ("stdout P ", 16_384),
            ("stdout P ", 16_384),
            ("stdout F ", 7_232),
            ("stdout F ", 3)
        ]
    );
    rig.end().await;
}

#[tokio::test]
async fn a_rotated_log_goes_on_in_the_new_file_once_it_is_reopened() {
    let rig = Rig::new().await;
    let mut echo = sh("echo", "while read line; do echo $line; done");
    echo.stdin = Input::Open;
    rig.run(&echo).await;
    let mut session = rig.attach("echo", true).await;
    session.writer().input(b"old\n").await.unwrap();
    read_until(&mut session, "old").await;
    let rotated = rig.log_path("rotated");
    fs::rename(rig.log_path("echo"), &rotated).unwrap();
    within(rig.monitor.reopen_log("echo")).await.unwrap();
    session.writer().input(b"new\n").await.unwrap();
    read_until(&mut session, "new").await;
    assert_eq!(rig.log("rotated"), "stdout F old\n");
    assert_eq!(rig.log("echo"), "stdout F new\n");
    rig.end().await;
}

/// A file system that is small, unmounted at the end.
struct Small(tempfile::TempDir);

impl Small {
    fn new() -> Small {
        let dir = tempfile::tempdir().unwrap();
        let mount = ["-t", "tmpfs", "-o", "size=64k", "small"];
        assert!(
            Command::new("mount")
                .args(mount)
                .arg(dir.path())
                .status()
                .unwrap()
                .success()
        );
        Small(dir)
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        Command::new("umount").arg(self.0.path()).status().unwrap();
    }
}

#[tokio::test]
async fn a_full_disk_under_one_log_is_told_and_nobody_stops() {
    let rig = Rig::new().await;
    let small = Small::new();
    let (_, mut events) = within(rig.monitor.events()).await.unwrap();
    let mut create = rig.bundle(&sh("full", "seq 100000; exit 6"));
    create.log = Some(small.0.path().join("log"));
    create.log_folder = None;
    within(rig.monitor.create(create)).await.unwrap();
    within(rig.monitor.start("full")).await.unwrap();
    let status = within(rig.monitor.wait("full")).await.unwrap();
    assert_eq!(status.end.unwrap().exit, Exit::Code(6));
    assert!(
        status.problems[0].contains("log cannot be written"),
        "{:?}",
        status.problems
    );
    let mut told = Vec::new();
    while !matches!(told.last(), Some(Fact::Exited(_))) {
        told.push(within(events.next()).await.unwrap().fact);
    }
    assert!(
        told.iter()
            .any(|fact| matches!(fact, Fact::Problem(what) if what.contains("No space"))),
        "{told:?}"
    );
    rig.exit(&sh("beside", "echo fine")).await;
    assert_eq!(rig.log("beside"), "stdout F fine\n");
    rig.end().await;
}
