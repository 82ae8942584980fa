//! Containers: their life, their ends, their logs, commands in them.

use proto::cri::*;
use tonic::Code;

use crate::rig::{SECOND, container_config, create, map, pass, rig};

#[tokio::test(start_paused = true)]
async fn a_container_goes_from_created_through_running_to_exited() {
    let mut rig = rig().await;
    let sandbox = rig.sandbox("a").await;
    let id = rig
        .created(&sandbox, "c", "echo hello; sleep 2.5; exit 3")
        .await;
    let created = rig.status(&id).await;
    assert_eq!(
        (created.state(), created.started_at, created.finished_at),
        (ContainerState::ContainerCreated, 0, 0)
    );
    rig.start(&id).await.unwrap();
    assert_eq!(
        rig.start(&id).await.unwrap_err().code(),
        Code::FailedPrecondition
    );
    let running = rig.status(&id).await;
    assert_eq!(
        (running.state(), running.finished_at),
        (ContainerState::ContainerRunning, 0)
    );
    pass(60).await;
    let exited = rig.status(&id).await;
    assert_eq!(
        (exited.state(), exited.exit_code, exited.reason.as_str()),
        (ContainerState::ContainerExited, 3, "Error")
    );
    assert_eq!(exited.finished_at - exited.started_at, 5 * SECOND / 2);
    assert_eq!(
        rig.start(&id).await.unwrap_err().code(),
        Code::FailedPrecondition
    );
    assert!(
        rig.log("a", "c").ends_with("Z stdout F hello\n"),
        "{}",
        rig.log("a", "c")
    );
    for _ in 0..2 {
        rig.runtime
            .remove_container(RemoveContainerRequest {
                container_id: id.clone(),
            })
            .await
            .unwrap();
    }
    assert_eq!(
        rig.try_status(&id).await.unwrap_err().code(),
        Code::NotFound
    );
}

#[tokio::test(start_paused = true)]
async fn a_stop_takes_as_long_as_the_container_and_never_longer_than_its_grace() {
    let mut rig = rig().await;
    let sandbox = rig.sandbox("a").await;
    let cases = [
        ("plain", "sleep 100", 30, 143, 0),
        ("server", "nginx", 30, 143, 0),
        ("deaf", "trap '' TERM; sleep 100", 30, 137, 30),
        ("slow", "trap 'sleep 5; exit 9' TERM; sleep 100", 30, 9, 5),
        ("at-once", "trap '' TERM; sleep 100", 0, 137, 0),
        ("over", "exit 4", 30, 4, 0),
    ];
    for (name, script, grace, code, seconds) in cases {
        let id = rig.running(&sandbox, name, script).await;
        let before = tokio::time::Instant::now();
        rig.stop(&id, grace).await;
        assert_eq!(before.elapsed().as_secs(), seconds, "{name}");
        rig.stop(&id, grace).await;
        let status = rig.status(&id).await;
        assert_eq!(
            (status.state(), status.exit_code),
            (ContainerState::ContainerExited, code),
            "{name}"
        );
    }
    rig.stop("never-was", 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_container_that_is_stopped_twice_ends_for_both() {
    let mut rig = rig().await;
    let sandbox = rig.sandbox("a").await;
    let id = rig.running(&sandbox, "c", "trap '' TERM; sleep 1000").await;
    let stop = |timeout| {
        let mut runtime = rig.runtime.clone();
        let request = StopContainerRequest {
            container_id: id.clone(),
            timeout,
        };
        async move { runtime.stop_container(request).await.map(drop) }
    };
    let before = tokio::time::Instant::now();
    let (long, short) = tokio::join!(stop(100), stop(3));
    long.and(short).unwrap();
    assert_eq!(before.elapsed().as_secs(), 3);
}

#[tokio::test(start_paused = true)]
async fn annotations_rule_how_a_container_ends() {
    let mut rig = rig().await;
    let sandbox = rig
        .sandbox_with(
            "a",
            &[
                ("oom.fake.oxlet.dev/run-for", "1s"),
                ("oom.fake.oxlet.dev/exit-code", "137"),
                ("oom.fake.oxlet.dev/exit-reason", "OOMKilled"),
                ("bad.fake.oxlet.dev/start-error", "no such file"),
                ("slow.fake.oxlet.dev/start-delay", "3s"),
                ("slow.fake.oxlet.dev/log-lines", "3"),
                ("slow.fake.oxlet.dev/log-interval", "1s"),
                ("none.fake.oxlet.dev/create-error", "no room"),
            ],
        )
        .await;
    let oom = rig.running(&sandbox, "oom", "server").await;
    pass(1).await;
    let status = rig.status(&oom).await;
    assert_eq!(
        (status.exit_code, status.reason.as_str()),
        (137, "OOMKilled")
    );

    let bad = rig.created(&sandbox, "bad", "server").await;
    assert_eq!(rig.start(&bad).await.unwrap_err().message(), "no such file");
    let status = rig.status(&bad).await;
    assert_eq!(
        (
            status.exit_code,
            status.reason.as_str(),
            status.message.as_str()
        ),
        (128, "StartError", "no such file")
    );

    let before = tokio::time::Instant::now();
    rig.running(&sandbox, "slow", "server").await;
    assert_eq!(before.elapsed().as_secs(), 3);
    pass(10).await;
    let lines: Vec<_> = rig
        .log("a", "slow")
        .lines()
        .map(|line| line.split(" F ").nth(1).unwrap().to_owned())
        .collect();
    assert_eq!(lines, ["line 1", "line 2", "line 3"]);

    let none = create(&mut rig.runtime, &sandbox, container_config("none", "true"))
        .await
        .unwrap_err();
    assert_eq!((none.code(), none.message()), (Code::Unknown, "no room"));
}

#[tokio::test(start_paused = true)]
async fn a_container_needs_a_ready_sandbox_an_image_and_a_name_of_its_own() {
    let mut rig = rig().await;
    let sandbox = rig.sandbox("a").await;
    rig.created(&sandbox, "c", "true").await;
    let twice = create(&mut rig.runtime, &sandbox, container_config("c", "true"))
        .await
        .unwrap_err();
    assert_eq!(twice.code(), Code::AlreadyExists);
    let mut strange = container_config("d", "true");
    strange.image.as_mut().unwrap().image = "localhost/strange:1".into();
    let strange = create(&mut rig.runtime, &sandbox, strange)
        .await
        .unwrap_err();
    assert_eq!(
        (strange.code(), strange.message()),
        (
            Code::NotFound,
            "image \"localhost/strange:1\" is not present"
        )
    );
    let nowhere = create(&mut rig.runtime, "nowhere", container_config("d", "true"))
        .await
        .unwrap_err();
    assert_eq!(nowhere.code(), Code::NotFound);
    let late = rig.created(&sandbox, "late", "true").await;
    rig.runtime
        .stop_pod_sandbox(StopPodSandboxRequest {
            pod_sandbox_id: sandbox.clone(),
        })
        .await
        .unwrap();
    assert_eq!(
        rig.start(&late).await.unwrap_err().code(),
        Code::FailedPrecondition
    );
    let stopped = create(&mut rig.runtime, &sandbox, container_config("d", "true"))
        .await
        .unwrap_err();
    assert_eq!(stopped.code(), Code::FailedPrecondition);
}

#[tokio::test(start_paused = true)]
async fn a_command_in_a_container_answers_in_its_time() {
    let mut rig = rig().await;
    let sandbox = rig.sandbox("a").await;
    let id = rig.running(&sandbox, "c", "server").await;
    let said = rig
        .exec(
            &id,
            0,
            &["sh", "-c", "echo out; echo err >&2; sleep 2; exit 4"],
        )
        .await
        .unwrap();
    assert_eq!(
        (&*said.stdout, &*said.stderr, said.exit_code),
        (b"out\n".as_slice(), b"err\n".as_slice(), 4)
    );
    let before = tokio::time::Instant::now();
    assert_eq!(
        rig.exec(&id, 3, &["sleep", "60"]).await.unwrap_err().code(),
        Code::DeadlineExceeded
    );
    assert_eq!(before.elapsed().as_secs(), 3);

    assert_eq!(
        rig.exec(&id, 0, &["cat", "/tmp/healthy"])
            .await
            .unwrap()
            .exit_code,
        1
    );
    rig.exec(&id, 0, &["touch", "/tmp/healthy"]).await.unwrap();
    assert_eq!(
        rig.exec(&id, 0, &["cat", "/tmp/healthy"])
            .await
            .unwrap()
            .exit_code,
        0
    );

    assert_eq!(
        rig.exec(&id, 0, &["kill", "-9", "1"])
            .await
            .unwrap()
            .exit_code,
        0
    );
    assert_eq!(rig.status(&id).await.exit_code, 137);
    assert_eq!(
        rig.exec(&id, 0, &["true"]).await.unwrap_err().code(),
        Code::FailedPrecondition
    );
}

#[tokio::test(start_paused = true)]
async fn a_command_dies_with_its_container() {
    let mut rig = rig().await;
    let sandbox = rig.sandbox("a").await;
    let id = rig.running(&sandbox, "c", "sleep 5").await;
    let before = tokio::time::Instant::now();
    assert_eq!(
        rig.exec(&id, 60, &["sleep", "30"]).await.unwrap().exit_code,
        137
    );
    assert_eq!(before.elapsed().as_secs(), 5);
    assert!(!rig.fake.kill(&id));
}

#[tokio::test(start_paused = true)]
async fn a_log_follows_its_path_only_when_it_is_reopened() {
    let mut rig = rig().await;
    let sandbox = rig.sandbox("a").await;
    let id = rig
        .running(&sandbox, "c", "while true; do echo tick; sleep 10; done")
        .await;
    let path = rig.folder.join("logs/a/c/0.log");
    std::fs::rename(&path, path.with_extension("old")).unwrap();
    pass(15).await;
    assert_eq!(
        std::fs::read_to_string(path.with_extension("old"))
            .unwrap()
            .lines()
            .count(),
        2
    );
    assert!(!path.exists());
    rig.runtime
        .reopen_container_log(ReopenContainerLogRequest {
            container_id: id.clone(),
        })
        .await
        .unwrap();
    pass(10).await;
    assert_eq!(rig.log("a", "c").lines().count(), 1);
    rig.stop(&id, 1).await;
    let reopened = rig
        .runtime
        .reopen_container_log(ReopenContainerLogRequest { container_id: id })
        .await
        .unwrap_err();
    assert_eq!(reopened.code(), Code::FailedPrecondition);
}

#[tokio::test(start_paused = true)]
async fn a_status_says_what_was_configured() {
    let mut rig = rig().await;
    let sandbox = rig.sandbox("a").await;
    let mut config = container_config("c", "server");
    config.annotations = map(&[("k", "v")]);
    config.stop_signal = Signal::Sigquit.into();
    let memory = LinuxContainerResources {
        memory_limit_in_bytes: 1 << 20,
        cpu_shares: 2,
        ..Default::default()
    };
    let user = LinuxContainerSecurityContext {
        run_as_user: Some(Int64Value { value: 1000 }),
        supplemental_groups: vec![5],
        ..Default::default()
    };
    config.linux = Some(LinuxContainerConfig {
        resources: Some(memory),
        security_context: Some(user),
    });
    let id = create(&mut rig.runtime, &sandbox, config).await.unwrap();
    rig.start(&id).await.unwrap();

    let linux = Some(LinuxContainerResources {
        cpu_shares: 9,
        ..Default::default()
    });
    let update = UpdateContainerResourcesRequest {
        container_id: id.clone(),
        linux,
        ..Default::default()
    };
    rig.runtime
        .update_container_resources(update)
        .await
        .unwrap();
    let status = rig.status(&id).await;
    assert_eq!(status.annotations, map(&[("k", "v")]));
    assert_eq!(status.image.unwrap().image, "localhost/busybox:latest");
    assert!(status.image_ref.starts_with("localhost/busybox@sha256:"));
    assert!(status.image_id.starts_with("sha256:"));
    let resources = status.resources.unwrap().linux.unwrap();
    assert_eq!(
        (resources.memory_limit_in_bytes, resources.cpu_shares),
        (1 << 20, 9)
    );
    let user = status.user.unwrap().linux.unwrap();
    assert_eq!(
        (user.uid, user.gid, user.supplemental_groups),
        (1000, 0, vec![0, 5])
    );

    let request = ContainerStatsRequest {
        container_id: id.clone(),
    };
    let stats = rig
        .runtime
        .container_stats(request)
        .await
        .unwrap()
        .into_inner()
        .stats
        .unwrap();
    assert!(stats.memory.unwrap().working_set_bytes.unwrap().value <= 1 << 20);
    rig.stop(&id, 10).await;
    assert_eq!(rig.status(&id).await.exit_code, 128 + 3);
}

#[tokio::test(start_paused = true)]
async fn a_list_of_containers_holds_what_its_filter_names() {
    let mut rig = rig().await;
    let (a, b) = (rig.sandbox("a").await, rig.sandbox("b").await);
    let c = rig.running(&a, "c", "server").await;
    let d = rig.created(&b, "d", "true").await;
    let all = ContainerFilter::default;
    let running = ContainerStateValue {
        state: ContainerState::ContainerRunning.into(),
    };
    let filters = [
        (all(), vec![&c, &d]),
        (
            ContainerFilter {
                pod_sandbox_id: a.clone(),
                ..all()
            },
            vec![&c],
        ),
        (
            ContainerFilter {
                id: c.clone(),
                pod_sandbox_id: b.clone(),
                ..all()
            },
            vec![],
        ),
        (
            ContainerFilter {
                id: c.clone(),
                ..all()
            },
            vec![&c],
        ),
        (
            ContainerFilter {
                id: "nobody".into(),
                ..all()
            },
            vec![],
        ),
        (
            ContainerFilter {
                state: Some(running),
                ..all()
            },
            vec![&c],
        ),
        (
            ContainerFilter {
                label_selector: map(&[("container", "d")]),
                ..all()
            },
            vec![&d],
        ),
    ];
    for (filter, expected) in filters {
        let found = rig.containers(filter.clone()).await;
        let ids: Vec<_> = found.iter().map(|container| &container.id).collect();
        assert_eq!(ids, expected, "{filter:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_running_containers_checkpoint_is_a_new_file() {
    let mut rig = rig().await;
    let sandbox = rig.sandbox("a").await;
    let id = rig.running(&sandbox, "c", "sleep 1000").await;
    let location = rig.folder.join("checkpoint.tar");
    let request = CheckpointContainerRequest {
        container_id: id.clone(),
        location: location.display().to_string(),
        timeout: 0,
    };
    let calls = [
        (request.clone(), None),
        (request.clone(), Some(Code::Internal)),
        (CheckpointContainerRequest::default(), Some(Code::NotFound)),
    ];
    for (request, expected) in calls {
        let answer = rig.runtime.checkpoint_container(request).await;
        assert_eq!(answer.err().map(|refused| refused.code()), expected);
    }
    assert!(std::fs::read_to_string(&location).unwrap().contains(&id));
    rig.stop(&id, 1).await;
    let refused = rig.runtime.checkpoint_container(request).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
}

#[tokio::test(start_paused = true)]
async fn what_is_not_simulated_says_so() {
    let mut rig = rig().await;
    let refused = rig
        .runtime
        .checkpoint_pod(CheckpointPodRequest::default())
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::Unimplemented);
}
