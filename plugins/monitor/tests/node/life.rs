//! Containers from their creation to their end.

use std::fs;

use monitor::{Exit, Fact, Phase, RefusalKind};
use serde_json::json;

use crate::rig::{Rig, sh, wait_until, with_each_runtime, within};

fn refused(error: monitor::MonitorError) -> monitor::Refusal {
    match error {
        monitor::MonitorError::Refused(refusal) => refusal,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn an_exit_code_is_told_as_it_was() {
    with_each_runtime(|rig| async move {
        let status = rig.exit(&sh("code", "exit 7")).await;
        let end = status.end.unwrap();
        assert_eq!(
            (end.exit, end.oom_killed, end.recorded),
            (Exit::Code(7), false, true)
        );
        assert!(status.started_at >= status.created_at && end.finished_at >= status.started_at);
        rig.end().await;
    })
    .await;
}

#[tokio::test]
async fn a_signal_reaches_the_init_and_is_told_as_its_end() {
    with_each_runtime(|rig| async move {
        let mut caught = rig
            .create_and_attach(&sh(
                "caught",
                "trap 'exit 5' TERM; echo up; while :; do sleep 0.05; done",
            ))
            .await;
        crate::rig::read_until(&mut caught, "up").await;
        within(rig.monitor.kill("caught", 15)).await.unwrap();
        let end = within(rig.monitor.wait("caught"))
            .await
            .unwrap()
            .end
            .unwrap();
        assert_eq!(end.exit, Exit::Code(5));
        rig.run(&sh("killed", "sleep 1000")).await;
        within(rig.monitor.kill("killed", 9)).await.unwrap();
        let end = within(rig.monitor.wait("killed"))
            .await
            .unwrap()
            .end
            .unwrap();
        assert_eq!((end.exit.code(), end.exit), (Some(137), Exit::Signal(9)));
        rig.end().await;
    })
    .await;
}

#[tokio::test]
async fn facts_come_in_order_and_the_first_state_has_what_was_before() {
    let rig = Rig::new().await;
    rig.create(&sh("before", "exit 0")).await;
    let (state, mut events) = within(rig.monitor.events()).await.unwrap();
    assert_eq!(state.containers[0].phase, Phase::Created);
    rig.exit(&sh("next", "exit 3")).await;
    within(rig.monitor.delete("next")).await.unwrap();
    let mut facts = Vec::new();
    for _ in 0..4 {
        let event = within(events.next()).await.unwrap();
        assert_eq!(event.container, "next");
        facts.push(event.fact);
    }
    assert!(
        matches!(facts[0], Fact::Created { .. }) && matches!(facts[1], Fact::Started { .. }),
        "{facts:?}"
    );
    assert!(
        matches!(&facts[2], Fact::Exited(end) if end.exit == Exit::Code(3)),
        "{facts:?}"
    );
    assert_eq!(facts[3], Fact::Deleted);
    rig.end().await;
}

#[tokio::test]
async fn a_container_that_cannot_be_made_is_refused_in_the_runtimes_words_and_leaves_nothing() {
    with_each_runtime(|rig| async move {
        let mut broken = sh("broken", "true");
        broken.spec = |spec| spec["process"]["args"] = json!(["/bin/nothing"]);
        let created = within(rig.monitor.create(rig.bundle(&broken))).await;
        if let Err(error) = created {
            let refusal = refused(error);
            assert_eq!(refusal.kind, RefusalKind::Runtime, "{refusal:?}");
            assert!(refusal.message.contains("/bin/nothing"), "{refusal:?}");
        } else {
            // Some runtimes find it out at the start: then it is the container's end.
            let started = within(rig.monitor.start("broken")).await;
            let end = within(rig.monitor.wait("broken"))
                .await
                .unwrap()
                .end
                .unwrap();
            assert!(end.exit != Exit::Code(0), "{started:?} {end:?}");
        }
        rig.end().await;
    })
    .await;
}

#[tokio::test]
async fn what_is_not_possible_in_a_phase_is_refused_by_name() {
    let rig = Rig::new().await;
    rig.create(&sh("one", "sleep 1000")).await;
    let again = refused(
        within(rig.monitor.create(rig.bundle(&sh("one", "true"))))
            .await
            .unwrap_err(),
    );
    assert_eq!(again.kind, RefusalKind::AlreadyExists);
    within(rig.monitor.start("one")).await.unwrap();
    let twice = refused(within(rig.monitor.start("one")).await.unwrap_err());
    assert_eq!(twice.kind, RefusalKind::WrongPhase);
    let running = refused(within(rig.monitor.delete("one")).await.unwrap_err());
    assert_eq!(running.kind, RefusalKind::WrongPhase);
    let full = refused(within(rig.monitor.shutdown()).await.unwrap_err());
    assert_eq!(full.kind, RefusalKind::WrongPhase);
    let unknown = refused(within(rig.monitor.start("two")).await.unwrap_err());
    assert_eq!(unknown.kind, RefusalKind::NotFound);
    within(rig.monitor.delete("two")).await.unwrap();
    rig.end().await;
}

#[tokio::test]
async fn a_container_has_no_descriptor_but_its_streams() {
    with_each_runtime(|rig| async move {
        rig.exit(&sh("fds", "ls /proc/self/fd; readlink /proc/self/fd/0"))
            .await;
        // The fourth is ls's own, of the folder that it reads.
        assert_eq!(
            rig.log("fds"),
            "stdout F 0\nstdout F 1\nstdout F 2\nstdout F 3\nstdout F /dev/null\n"
        );
        rig.run(&sh("exec", "sleep 1000")).await;
        assert_eq!(rig.ask("exec", "ls /proc/self/fd").await, "0\n1\n2\n3\n");
        rig.end().await;
    })
    .await;
}

#[tokio::test]
async fn orphans_are_reaped_and_are_not_the_containers_end() {
    with_each_runtime(|rig| async move {
        let mut orphans = sh(
            "orphans",
            "for i in $(seq 50); do (sh -c ':' &); done; (sleep 1000 &); read line; exit 4",
        );
        orphans.spec = |spec| {
            spec["linux"]["namespaces"]
                .as_array_mut()
                .unwrap()
                .retain(|one| one["type"] != "pid")
        };
        orphans.stdin = monitor::Input::Open;
        rig.run(&orphans).await;
        let monitor = within(rig.monitor.status()).await.unwrap().pid;
        let children = || {
            let listed =
                fs::read_to_string(format!("/proc/{monitor}/task/{monitor}/children")).unwrap();
            let mut names: Vec<_> = listed
                .split_whitespace()
                .filter_map(|pid| fs::read_to_string(format!("/proc/{pid}/comm")).ok())
                .collect();
            names.sort();
            names.concat()
        };
        // The init and the sleeper, which comes after all the others. By name: the init and one
        // of the others are two as well.
        wait_until(|| children() == "sh\nsleep\n").await;
        within(rig.monitor.close_stdin("orphans")).await.unwrap();
        let end = within(rig.monitor.wait("orphans"))
            .await
            .unwrap()
            .end
            .unwrap();
        assert_eq!(end.exit, Exit::Code(4));
        assert_eq!(children(), "sleep\n");
        within(rig.monitor.delete("orphans")).await.unwrap();
        wait_until(|| children().is_empty()).await;
        rig.end().await;
    })
    .await;
}

#[tokio::test]
async fn a_container_that_is_over_has_no_groups_with_what_it_made_in_them() {
    with_each_runtime(|rig| async move {
        rig.run(&sh("over", "sleep 1000")).await;
        let groups = rig.cgroups("over");
        assert!(!groups.is_empty());
        for group in &groups {
            fs::create_dir(group.join("below")).unwrap();
        }
        within(rig.monitor.kill("over", 9)).await.unwrap();
        within(rig.monitor.wait("over")).await.unwrap();
        wait_until(|| rig.cgroups("over").is_empty()).await;
        let processes = within(rig.monitor.processes("over")).await.unwrap();
        assert_eq!(processes, [] as [i32; 0]);
        rig.end().await;
    })
    .await;
}

#[tokio::test]
async fn groups_that_a_container_made_go_with_its_end_however_deep_and_many() {
    with_each_runtime(|rig| async move {
        rig.run(&sh("many", "sleep 1000")).await;
        let groups = rig.cgroups("many");
        for group in &groups {
            let deep = (0..40).fold(group.clone(), |path, level| path.join(level.to_string()));
            fs::create_dir_all(deep).unwrap();
            for number in 100..400 {
                fs::create_dir(group.join(number.to_string())).unwrap();
            }
        }
        within(rig.monitor.kill("many", 9)).await.unwrap();
        within(rig.monitor.wait("many")).await.unwrap();
        wait_until(|| rig.cgroups("many").is_empty()).await;
        rig.end().await;
    })
    .await;
}

#[tokio::test]
async fn a_group_that_has_not_the_containers_name_outlives_it_with_those_in_it() {
    with_each_runtime(|rig| async move {
        let mut guest = sh("guest", "exit 0");
        guest.spec = |spec| {
            let own = spec["linux"]["cgroupsPath"].as_str().unwrap();
            spec["linux"]["cgroupsPath"] = json!(own.replace("/guest", "/host"));
        };
        rig.create(&guest).await;
        let groups = rig.cgroups("host");
        assert!(!groups.is_empty());
        let below = |group: &std::path::PathBuf| group.join("another");
        for group in &groups {
            fs::create_dir(below(group)).unwrap();
        }
        within(rig.monitor.start("guest")).await.unwrap();
        within(rig.monitor.wait("guest")).await.unwrap();
        // It is told before its groups would go, and the next answer comes after them.
        within(rig.monitor.status()).await.unwrap();
        assert!(groups.iter().all(|group| below(group).is_dir()));
        rig.end().await;
    })
    .await;
}

#[tokio::test]
async fn a_kill_for_memory_is_marked() {
    with_each_runtime(|rig| async move {
        let mut hungry = sh("hungry", "dd if=/dev/zero of=/dev/null bs=200M count=1");
        hungry.spec = |spec| {
            spec["linux"]["resources"]["memory"] = json!({"limit": 32 << 20, "swap": 32 << 20});
            spec["linux"]["resources"]["devices"] = json!([{"allow": true, "access": "rwm"}]);
        };
        let end = rig.exit(&hungry).await.end.unwrap();
        assert!(end.oom_killed, "{end:?}");
        assert_eq!(end.exit.code(), Some(137), "{end:?}");
        rig.end().await;
    })
    .await;
}

#[tokio::test]
async fn a_fork_bomb_stays_within_its_limit_and_the_monitor_answers() {
    with_each_runtime(|rig| async move {
        let mut bomb = sh(
            "bomb",
            "b() { b | b & }; b; while :; do b; done 2>/dev/null",
        );
        bomb.spec = |spec| spec["linux"]["resources"]["pids"] = json!({"limit": 40});
        rig.run(&bomb).await;
        rig.run(&sh("beside", "sleep 1000")).await;
        assert_eq!(rig.ask("beside", "echo fine").await, "fine\n");
        assert!(within(rig.monitor.processes("bomb")).await.unwrap().len() <= 40);
        rig.end().await;
    })
    .await;
}

#[tokio::test]
async fn limits_change_while_it_runs() {
    with_each_runtime(|rig| async move {
        let mut small = sh("small", "sleep 1000");
        small.spec = |spec| spec["linux"]["resources"]["memory"] = json!({"limit": 64 << 20});
        rig.run(&small).await;
        within(
            rig.monitor
                .update("small", json!({"memory": {"limit": 128 << 20}})),
        )
        .await
        .unwrap();
        let mut files = rig.cgroups("small").into_iter().flat_map(|folder| {
            ["memory.limit_in_bytes", "memory.max"].map(|name| folder.join(name))
        });
        let limit = files
            .find_map(|file| fs::read_to_string(file).ok())
            .unwrap();
        assert_eq!(limit.trim(), (128 << 20).to_string());
        rig.end().await;
    })
    .await;
}
