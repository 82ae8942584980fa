//! kill -9 of the plugin and of monitors: nothing is lost, nothing is made twice.

use proto::cri::{ContainerState, ListContainersRequest};

use crate::rig::Rig;

#[tokio::test]
async fn a_container_runs_on_while_its_plugin_is_killed() {
    let mut rig = Rig::start().await;
    let pod = rig.pod("a");
    let id = rig.run_pod(&pod).await;
    let container = rig
        .run((&id, &pod), rig.container("main", "echo begun; sleep 3600"))
        .await;
    let before = rig.status(&container).await;
    rig.kill_and_restart().await;
    let after = rig.status(&container).await;
    assert_eq!(after.state(), ContainerState::ContainerRunning);
    assert_eq!(after.started_at, before.started_at);
    assert_eq!(
        rig.exec(&container, "echo in").await,
        ("in\n".to_owned(), 0)
    );
    assert_eq!(rig.log("a", "main"), ["begun"]);
    rig.remove_pod(&id).await;
    rig.assert_nothing_left().await;
}

#[tokio::test]
async fn an_end_while_the_plugin_is_away_is_found_with_its_code() {
    let mut rig = Rig::start().await;
    let pod = rig.pod("a");
    let id = rig.run_pod(&pod).await;
    let flag = rig.home.path().join("flag");
    std::fs::create_dir(&flag).unwrap();
    let mut config = rig.container("main", "until [ -e /flag/go ]; do sleep 0.05; done; exit 7");
    config.mounts.push(proto::cri::Mount {
        host_path: flag.display().to_string(),
        container_path: "/flag".to_owned(),
        ..Default::default()
    });
    let container = rig.run((&id, &pod), config).await;
    rig.kill();
    std::fs::write(flag.join("go"), "").unwrap();
    rig.restart().await;
    let status = rig.ended(&container).await;
    assert_eq!((status.exit_code, status.reason.as_str()), (7, "Error"));
    rig.remove_pod(&id).await;
    rig.assert_nothing_left().await;
}

#[tokio::test]
async fn what_a_killed_plugin_was_making_is_whole_or_gone() {
    let mut rig = Rig::start().await;
    for round in 0..8u64 {
        let pod = rig.pod(&format!("p{round}"));
        let (config, mut runtime) = (rig.container("main", "sleep 3600"), rig.runtime());
        let making = tokio::spawn({
            let pod = pod.clone();
            async move {
                let request = proto::cri::RunPodSandboxRequest {
                    config: Some(pod.clone()),
                    runtime_handler: String::new(),
                };
                let id = runtime.run_pod_sandbox(request).await?.into_inner();
                let request = proto::cri::CreateContainerRequest {
                    pod_sandbox_id: id.pod_sandbox_id,
                    config: Some(config),
                    sandbox_config: Some(pod),
                };
                runtime.create_container(request).await
            }
        });
        // Another moment of the making in each round.
        tokio::time::sleep(std::time::Duration::from_millis(7 * round + 1)).await;
        rig.kill();
        making.abort();
        rig.restart().await;
        let listed = rig
            .runtime()
            .list_containers(ListContainersRequest::default())
            .await
            .unwrap()
            .into_inner();
        assert!(listed.containers.len() <= 1, "{listed:?}");
        let pods = rig
            .runtime()
            .list_pod_sandbox(proto::cri::ListPodSandboxRequest::default())
            .await;
        for sandbox in pods.unwrap().into_inner().items {
            rig.remove_pod(&sandbox.id).await;
        }
        rig.assert_nothing_left().await;
    }
}

#[tokio::test]
async fn a_killed_monitor_gets_a_successor_that_sees_the_end() {
    let rig = Rig::start().await;
    let pod = rig.pod("a");
    let id = rig.run_pod(&pod).await;
    let container = rig
        .run((&id, &pod), rig.container("main", "sleep 3600"))
        .await;
    let monitors = crate::rig::processes_with(&rig.root().join("m").display().to_string());
    let [monitor] = monitors[..] else {
        panic!("{monitors:?}")
    };
    std::process::Command::new("kill")
        .args(["-9", &monitor.to_string()])
        .status()
        .unwrap();
    assert_eq!(
        rig.exec(&container, "echo in").await,
        ("in\n".to_owned(), 0)
    );
    assert_eq!(
        rig.status(&container).await.state(),
        ContainerState::ContainerRunning
    );
    let request = proto::cri::StopContainerRequest {
        container_id: container.clone(),
        timeout: 0,
    };
    rig.runtime().stop_container(request).await.unwrap();
    let status = rig.ended(&container).await;
    // Nobody was its parent: a code would be invented.
    assert_eq!((status.exit_code, status.reason.as_str()), (255, "Unknown"));
    rig.remove_pod(&id).await;
    rig.assert_nothing_left().await;
}
