//! kill -9 of the plugin and of monitors: nothing is lost, nothing is made twice.

use std::fs;
use std::path::Path;

use nix::unistd::{Pid, getsid};
use proto::cri::{ContainerState, ListContainersRequest};

use crate::rig::{Rig, kill, processes_with, wait_until};

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
    let monitors = processes_with(&rig.root().join("m").display().to_string());
    let [monitor] = monitors[..] else {
        panic!("{monitors:?}")
    };
    kill(monitor);
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

/// The agent tells its own processes by their session (`actors/host/src/cgroups/placement.rs`).
#[tokio::test]
async fn monitors_and_containers_are_not_in_the_session_of_the_plugin() {
    let rig = Rig::start().await;
    let pod = rig.pod("a");
    let id = rig.run_pod(&pod).await;
    let container = rig
        .run((&id, &pod), rig.container("main", "sleep 3600"))
        .await;
    let monitors = processes_with(&rig.root().join("m").display().to_string());
    let processes = [monitors, rig.processes_of(&container)].concat();
    assert!(processes.len() >= 2, "{processes:?}");
    // The plugin is in this test's session.
    let own = getsid(None).unwrap();
    for pid in processes {
        assert_ne!(getsid(Some(Pid::from_raw(pid.cast_signed()))).unwrap(), own);
    }
    rig.remove_pod(&id).await;
    rig.assert_nothing_left().await;
}

/// Makes every record look as if it was written before a reboot.
fn pretend_reboot(rig: &Rig) {
    for kind in ["containers", "sandboxes"] {
        for entry in fs::read_dir(rig.root().join(kind)).unwrap() {
            let path = entry.unwrap().path().join("record.json");
            let mut record: serde_json::Value =
                serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
            record["boot"] = "another".into();
            fs::write(&path, record.to_string()).unwrap();
        }
    }
}

/// An ended process is in its group for a moment yet.
async fn remove_groups(group: &Path) {
    for entry in fs::read_dir(group).unwrap().flatten() {
        if entry.file_type().unwrap().is_dir() {
            Box::pin(remove_groups(&entry.path())).await;
        }
    }
    wait_until("the removal of a group", || fs::remove_dir(group).is_ok()).await;
}

#[tokio::test]
async fn a_container_from_before_a_reboot_is_removed_without_leftovers() {
    let mut rig = Rig::start().await;
    let pod = rig.pod("a");
    let id = rig.run_pod(&pod).await;
    let container = rig
        .run((&id, &pod), rig.container("main", "sleep 3600"))
        .await;
    rig.kill();
    pretend_reboot(&rig);
    // After a reboot there are no processes and no cgroups either.
    let monitors = processes_with(&rig.root().join("m").display().to_string());
    let processes = [monitors, rig.processes_of(&container)].concat();
    processes.iter().copied().for_each(kill);
    let are_gone = || {
        let mut paths = processes.iter().map(|pid| format!("/proc/{pid}/exe"));
        paths.all(|path| fs::read_link(path).is_err())
    };
    wait_until("the end of the processes", are_gone).await;
    for group in rig.cgroups() {
        remove_groups(&group).await;
    }
    rig.restart().await;
    rig.remove_pod(&id).await;
    rig.assert_nothing_left().await;
}

#[tokio::test]
async fn a_container_whose_monitor_cannot_restart_is_removed_without_leftovers() {
    let rig = Rig::start().await;
    let pod = rig.pod("a");
    let id = rig.run_pod(&pod).await;
    rig.run((&id, &pod), rig.container("main", "sleep 3600"))
        .await;
    let monitors = rig.root().join("m");
    let folder = fs::read_dir(&monitors).unwrap().next().unwrap().unwrap();
    for monitor in processes_with(&monitors.display().to_string()) {
        kill(monitor);
    }
    fs::remove_dir_all(folder.path()).unwrap();
    fs::write(folder.path(), "not a folder").unwrap();
    rig.remove_pod(&id).await;
    fs::remove_file(folder.path()).ok();
    // The agent owns the pod's cgroup and removes it together with the monitor's.
    for group in rig.cgroups() {
        remove_groups(&group).await;
    }
    rig.assert_nothing_left().await;
}
