//! Monitors that are killed at any moment, and their successors.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use monitor::{Exit, Input, MonitorError, Phase, RefusalKind};
use rustix::process::Signal;

use crate::rig::{Rig, sh, wait_until, with_each_runtime, within};

#[tokio::test]
async fn a_containers_life_and_log_go_on_without_its_monitor() {
    with_each_runtime(|rig| async move {
        let go = rig.dir.path().join("rootfs/data/go");
        rig.run(&sh("box", "echo before; while [ ! -e /data/go ]; do sleep 0.02; done; seq 1000; while :; do sleep 0.05; done")).await;
        wait_until(|| rig.log("box").contains("before")).await;
        let pid = within(rig.monitor.status()).await.unwrap().containers[0].pid;
        rig.kill_monitor().await;
        fs::write(go, "").unwrap();
        rig.succeed().await;
        let status = within(rig.monitor.status()).await.unwrap().containers.remove(0);
        assert_eq!((status.phase, status.pid), (Phase::Running, pid));
        wait_until(|| rig.log("box").ends_with("stdout F 1000\n")).await;
        assert_eq!(rig.log("box").lines().count(), 1001);
        assert_eq!(rig.ask("box", "echo still").await, "still\n");
        within(rig.monitor.kill("box", 9)).await.unwrap();
        let end = within(rig.monitor.wait("box")).await.unwrap().end.unwrap();
        assert!(matches!(&end.exit, Exit::Unknown(why) if !why.is_empty()), "{end:?}");
        assert_eq!(end.exit.code(), None);
        rig.end().await;
    })
    .await;
}

#[tokio::test]
async fn an_end_that_nobody_saw_is_unknown_and_one_that_was_told_stays() {
    let rig = Rig::new().await;
    let told = rig.exit(&sh("told", "exit 3")).await.end;
    let pid = rig.run(&sh("unseen", "sleep 1000")).await.pid.unwrap();
    rig.kill_monitor().await;
    crate::rig::kill(pid.try_into().unwrap());
    rig.succeed().await;
    let status = within(rig.monitor.status()).await.unwrap();
    assert_eq!(status.containers[0].end, told);
    let unseen = within(rig.monitor.wait("unseen"))
        .await
        .unwrap()
        .end
        .unwrap();
    assert!(matches!(unseen.exit, Exit::Unknown(_)));
    rig.end().await;
}

/// A runtime that stops in the middle of one of its commands until a file is there.
fn stopping_at(rig: &Rig, command: &str, when: &str) -> PathBuf {
    let dir = rig.dir.path().display();
    let stop = format!("touch {dir}/reached; while [ ! -e {dir}/go ]; do sleep 0.01; done");
    let real = rig.handler.program.display();
    let (before, after) = if when == "before" {
        (stop.as_str(), ":")
    } else {
        (":", stop.as_str())
    };
    let path = rig.dir.path().join("stopping");
    let script = format!(
        "#!/bin/sh\nfor arg; do if [ \"$arg\" = {command} ]; then {before}; {real} \"$@\"; code=$?; {after}; exit $code; fi; done\n\
         exec {real} \"$@\"\n"
    );
    fs::write(&path, script).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// Kills the monitor while its runtime is stopped in a command, and starts the successor.
async fn kill_in_the_middle(rig: &Rig, asked: impl Future<Output = bool>) {
    let reached = rig.dir.path().join("reached");
    let kill = async {
        wait_until(|| reached.exists()).await;
        let pid = fs::read_to_string(rig.dir.path().join("monitor-pid"))
            .unwrap()
            .parse()
            .unwrap();
        crate::rig::kill(pid);
    };
    let (answered, ()) = tokio::join!(within(asked), kill);
    assert!(
        !answered,
        "the call was answered though the monitor is dead"
    );
    fs::write(rig.dir.path().join("go"), "").unwrap();
    rig.succeed().await;
}

async fn note_monitor(rig: &Rig) {
    let pid = within(rig.monitor.status()).await.unwrap().pid;
    fs::write(rig.dir.path().join("monitor-pid"), pid.to_string()).unwrap();
}

#[tokio::test]
async fn a_container_half_created_is_removed_and_can_be_created_again() {
    for when in ["before", "after"] {
        let rig = Rig::new().await;
        note_monitor(&rig).await;
        let mut create = rig.bundle(&sh("half", "exit 2"));
        create.handler.program = stopping_at(&rig, "create", when);
        kill_in_the_middle(&rig, async { rig.monitor.create(create).await.is_ok() }).await;
        let folder = rig.folder().join("containers/half");
        wait_until(|| !folder.exists()).await;
        assert!(
            !rig.handler.root.join("half").exists(),
            "{when}: the runtime's state is left"
        );
        assert_eq!(
            rig.exit(&sh("half", "exit 2")).await.end.unwrap().exit,
            Exit::Code(2)
        );
        rig.end().await;
    }
}

#[tokio::test]
async fn a_start_whose_outcome_nobody_recorded_is_looked_up_and_never_done_twice() {
    for (when, expected) in [("before", Phase::Created), ("after", Phase::Running)] {
        let rig = Rig::new().await;
        note_monitor(&rig).await;
        let mut create = rig.bundle(&sh("half", "echo started >> /data/starts; sleep 1000"));
        create.handler.program = stopping_at(&rig, "start", when);
        within(rig.monitor.create(create)).await.unwrap();
        kill_in_the_middle(&rig, async { rig.monitor.start("half").await.is_ok() }).await;
        let mut phase = Phase::Starting;
        while phase == Phase::Starting {
            phase = within(rig.monitor.status()).await.unwrap().containers[0].phase;
        }
        assert_eq!(phase, expected, "{when}");
        if phase == Phase::Created {
            within(rig.monitor.start("half")).await.unwrap();
        }
        let starts = rig.dir.path().join("rootfs/data/starts");
        wait_until(|| starts.exists()).await;
        assert_eq!(rig.ask("half", "cat /data/starts").await, "started\n");
        rig.end().await;
    }
}

#[tokio::test]
async fn a_start_whose_runtime_is_killed_counts_if_it_was_carried_out_and_can_be_asked_for_again_if_not()
 {
    for (when, expected) in [("before", Phase::Created), ("after", Phase::Running)] {
        let rig = Rig::new().await;
        let mut create = rig.bundle(&sh("half", "echo started >> /data/starts; sleep 1000"));
        create.handler.program = stopping_at(&rig, "start", when);
        within(rig.monitor.create(create)).await.unwrap();
        let reached = rig.dir.path().join("reached");
        let monitor = within(rig.monitor.status()).await.unwrap().pid;
        let kill = async {
            wait_until(|| reached.exists()).await;
            let calls = format!("/proc/{monitor}/task/{monitor}/children");
            let calls = fs::read_to_string(calls).unwrap();
            let is_start = |pid: &&str| {
                let line = fs::read_to_string(format!("/proc/{pid}/cmdline"));
                line.is_ok_and(|line| line.ends_with("start\0half\0"))
            };
            let call = calls.split_whitespace().find(is_start);
            crate::rig::kill(call.expect("the call runs").parse().unwrap());
        };
        let (started, ()) = tokio::join!(within(rig.monitor.start("half")), kill);
        fs::write(rig.dir.path().join("go"), "").unwrap();
        match (started, expected) {
            (Ok(status), Phase::Running) => assert_eq!(status.phase, Phase::Running),
            (Err(MonitorError::Refused(refusal)), Phase::Created) => {
                assert_eq!(refusal.kind, RefusalKind::System, "{refusal:?}");
                within(rig.monitor.start("half")).await.unwrap();
            }
            other => panic!("{when}: {other:?}"),
        }
        let starts = rig.dir.path().join("rootfs/data/starts");
        wait_until(|| starts.exists()).await;
        assert_eq!(rig.ask("half", "cat /data/starts").await, "started\n");
        rig.end().await;
    }
}

#[tokio::test]
async fn a_process_that_was_run_for_a_dead_monitor_ends_and_exec_goes_on() {
    let rig = Rig::new().await;
    note_monitor(&rig).await;
    let mut create = rig.bundle(&sh("box", "sleep 1000"));
    create.handler.program = stopping_at(&rig, "exec", "after");
    within(rig.monitor.create(create)).await.unwrap();
    within(rig.monitor.start("box")).await.unwrap();
    let exec = rig.exec("box", "exec sleep 997");
    kill_in_the_middle(&rig, async {
        rig.monitor.exec_sync(exec, 10).await.is_ok()
    })
    .await;
    let left = async || {
        rig.ask("box", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
            .await
            .contains("sleep 997")
    };
    within(async { while left().await {} }).await;
    rig.end().await;
}

/// Kills at 40 moments from the creation to the end of a container that counts its starts.
#[tokio::test]
async fn nothing_is_lost_or_done_twice_whenever_the_monitor_is_killed() {
    let rig = Rig::new().await;
    let starts = rig.dir.path().join("rootfs/data/starts");
    for moment in 0..40_u64 {
        note_monitor(&rig).await;
        let pid = fs::read_to_string(rig.dir.path().join("monitor-pid"))
            .unwrap()
            .parse()
            .unwrap();
        let mut once = sh("once", "echo x >> /data/starts; exit 3");
        once.stdin = Input::Closed;
        let create = rig.bundle(&once);
        let life = async {
            rig.monitor.create(create).await?;
            rig.monitor.start("once").await?;
            rig.monitor.wait("once").await
        };
        let killer = async {
            tokio::time::sleep(Duration::from_millis(moment * 4)).await;
            crate::rig::kill(pid);
        };
        let (seen, ()) = tokio::join!(within(life), killer);
        rig.succeed().await;
        let settled = settle(&rig).await;
        match (seen, settled) {
            (Ok(told), Some(kept)) => assert_eq!(told.end, kept.end, "at {moment}"),
            (Ok(told), None) => panic!("at {moment}: {told:?} was told and is lost"),
            (Err(_), Some(kept)) => {
                let exit = &kept.end.as_ref().unwrap().exit;
                assert!(
                    matches!(exit, Exit::Code(3) | Exit::Unknown(_)),
                    "at {moment}: {kept:?}"
                );
            }
            (Err(_), None) => {}
        }
        let count = fs::read_to_string(&starts).unwrap_or_default().len() / 2;
        assert!(count <= 1, "at {moment}: started {count} times");
        within(rig.monitor.delete("once")).await.unwrap();
        assert!(
            !rig.handler.root.join("once").exists(),
            "at {moment}: the runtime's state is left"
        );
        if starts.exists() {
            fs::remove_file(&starts).unwrap();
        }
    }
    rig.end().await;
}

/// Waits until nothing is on its way, starts what waits for it, and returns the ended container if it is there.
async fn settle(rig: &Rig) -> Option<monitor::ContainerStatus> {
    loop {
        let container = within(rig.monitor.status())
            .await
            .unwrap()
            .containers
            .pop()?;
        match container.phase {
            Phase::Created => drop(within(rig.monitor.start("once")).await.unwrap()),
            Phase::Exited => return Some(container),
            _ => {}
        }
    }
}

type Damage = fn(&str) -> String;

/// What may become of a file.
const DAMAGES: [(&str, Damage); 4] = [
    ("emptied", |_| String::new()),
    ("cut in half", |text| text[..text.len() / 2].to_owned()),
    ("given a tail", |text| format!("{text}{text}")),
    ("of a newer format", |text| {
        text.replacen("\"format\":1", "\"format\":99", 1)
    }),
];
/// An id as runtime plugins make them: long enough to be no other container's.
const LONG: &str = "0123456789abcdef0123456789abcdef0123456789abcdef";

#[tokio::test]
async fn a_damaged_file_costs_nothing_where_another_says_the_same() {
    let rig = Rig::new().await;
    let pid = rig.run(&sh("box", "sleep 1000")).await.pid;
    let folder = rig.folder().join("containers").join("box");
    let files = [
        folder.join("record.json"),
        folder.join("record.copy.json"),
        rig.folder().join("monitor.lock"),
    ];
    for (file, (how, damage)) in files.iter().flat_map(|file| DAMAGES.map(|how| (file, how))) {
        let case = format!("{} {how}", file.display());
        rig.kill_monitor().await;
        let text = fs::read_to_string(file).unwrap();
        fs::write(file, damage(&text)).unwrap();
        rig.succeed().await;
        let status = within(rig.monitor.status())
            .await
            .unwrap()
            .containers
            .remove(0);
        assert_eq!(
            (status.phase, status.pid),
            (Phase::Running, pid),
            "{case}: {status:?}"
        );
        let is_record = file.ends_with("record.json");
        assert_eq!(
            status.problems.len(),
            usize::from(is_record),
            "{case}: {status:?}"
        );
        assert_eq!(rig.ask("box", "echo still").await, "still\n", "{case}");
    }
    rig.end().await;
}

#[tokio::test]
async fn a_container_without_any_record_is_ended_and_the_others_live() {
    for (how, damage) in DAMAGES {
        let rig = Rig::new().await;
        let beside = rig.run(&sh("beside", "sleep 1000")).await;
        let lost = rig
            .run(&sh(LONG, "sleep 1000 & while :; do sleep 1; done"))
            .await;
        let groups = rig.cgroups(LONG);
        for group in &groups {
            fs::create_dir_all(group.join("below/that")).unwrap();
        }
        rig.kill_monitor().await;
        for name in ["record.json", "record.copy.json"] {
            let file = rig.folder().join("containers").join(LONG).join(name);
            let text = fs::read_to_string(&file).unwrap();
            fs::write(&file, damage(&text)).unwrap();
        }
        rig.succeed().await;
        let status = within(rig.monitor.wait(LONG)).await.unwrap();
        assert_eq!(status.phase, Phase::Exited, "{how}");
        assert!(matches!(&status.end.unwrap().exit, Exit::Unknown(why) if why.contains("record")));
        assert!(
            status.problems[0].contains("record cannot be read"),
            "{how}"
        );
        let procs = || {
            let files = groups.iter().map(|group| group.join("cgroup.procs"));
            files
                .map(|file| fs::read_to_string(file).unwrap_or_default())
                .collect::<String>()
        };
        wait_until(|| procs().is_empty()).await;
        let pid = lost.pid.unwrap();
        assert!(
            !PathBuf::from(format!("/proc/{pid}/fd/0")).exists(),
            "{how}"
        );
        let error = within(rig.monitor.start(LONG)).await.unwrap_err();
        assert!(error.to_string().contains("damaged"), "{how}: {error}");

        let others = within(rig.monitor.status()).await.unwrap().containers;
        let other = others.iter().find(|one| one.container == "beside").unwrap();
        assert_eq!(
            (other.phase, other.pid),
            (Phase::Running, beside.pid),
            "{how}"
        );
        within(rig.monitor.delete(LONG)).await.unwrap();
        wait_until(|| rig.cgroups(LONG).is_empty()).await;
        // Its record named the runtime: what the runtime keeps of it is the caller's to find.
        fs::remove_dir_all(rig.handler.root.join(LONG)).unwrap();
        rig.end().await;
    }
}

#[tokio::test]
async fn a_monitor_that_hangs_is_killed_and_its_successor_adopts_the_containers() {
    let rig = Rig::new().await;
    let pid = rig.run(&sh("box", "sleep 1000")).await.pid;
    let hung = within(rig.monitor.status()).await.unwrap().pid;
    crate::rig::signal(hung, Signal::STOP);
    let monitor = within(rig.launch().replace()).await.unwrap();
    let status = within(monitor.status()).await.unwrap();
    assert_ne!(status.pid, hung);
    assert_eq!(status.containers[0].phase, Phase::Running);
    assert_eq!(status.containers[0].pid, pid);
    assert_eq!(rig.ask("box", "echo still").await, "still\n");

    // Whoever looks for it the ordinary way comes to the same.
    crate::rig::signal(status.pid, Signal::STOP);
    let next = within(rig.launch().start()).await.unwrap();
    assert_ne!(within(next.status()).await.unwrap().pid, status.pid);
    rig.end().await;
}

#[tokio::test]
async fn a_second_monitor_of_a_folder_refuses_to_start() {
    let rig = Rig::new().await;
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_oxlet-monitor"))
        .arg("--folder")
        .arg(rig.folder())
        .output()
        .unwrap();
    assert!(!output.status.success());
    assert!(
        String::from_utf8_lossy(&output.stdout).contains("another monitor"),
        "{output:?}"
    );
    rig.end().await;
}
