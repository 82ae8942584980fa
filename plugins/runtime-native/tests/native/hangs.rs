//! Monitors that do not answer.

use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use proto::cri::*;
use tokio::time::Instant;

use crate::rig::{Rig, processes_with, wait_for};

/// Stops the monitor of a sandbox as nothing but SIGSTOP does.
fn stop_monitor(rig: &Rig, sandbox: &str) -> Pid {
    let folder = rig.root().join("m").join(&sandbox[..20]);
    let [monitor] = processes_with(&folder.display().to_string())[..] else {
        panic!("expected one monitor of {sandbox}")
    };
    let monitor = Pid::from_raw(monitor.cast_signed());
    kill(monitor, Signal::SIGSTOP).unwrap();
    monitor
}

#[tokio::test]
async fn a_pod_whose_monitor_hangs_is_stopped_and_removed() {
    let rig = Rig::start().await;
    let pod = rig.pod("a");
    let id = rig.run_pod(&pod).await;
    let container = rig
        .run((&id, &pod), rig.container("main", "sleep 3600"))
        .await;
    let other = rig.pod("b");
    let beside = rig.run_pod(&other).await;
    let healthy = rig
        .run((&beside, &other), rig.container("main", "sleep 3600"))
        .await;
    stop_monitor(&rig, &id);
    let mut runtime = rig.runtime();
    let request = StopContainerRequest {
        container_id: container.clone(),
        timeout: 1,
    };
    let stopping = tokio::spawn(async move { runtime.stop_container(request).await });
    // Nobody else waits for it.
    let asked = Instant::now();
    assert_eq!(rig.exec(&healthy, "echo on").await.0, "on\n");
    assert!(asked.elapsed() < Duration::from_secs(10));
    stopping.await.unwrap().unwrap();
    let status = rig.ended(&container).await;
    assert_eq!((status.exit_code, status.reason.as_str()), (255, "Unknown"));
    rig.remove_pod(&id).await;
    rig.remove_pod(&beside).await;
    rig.assert_nothing_left().await;
}

#[tokio::test]
async fn a_monitor_that_hangs_holds_up_its_own_pod_alone_when_the_plugin_starts() {
    let mut rig = Rig::start().await;
    let (hanging, other) = (rig.pod("a"), rig.pod("b"));
    let id = rig.run_pod(&hanging).await;
    let container = rig
        .run((&id, &hanging), rig.container("main", "sleep 3600"))
        .await;
    let beside = rig.run_pod(&other).await;
    let healthy = rig
        .run((&beside, &other), rig.container("main", "sleep 3600"))
        .await;
    let before = rig.status(&container).await;
    let processes = rig.processes_of(&container);
    rig.kill();
    stop_monitor(&rig, &id);
    let begun = Instant::now();
    rig.restart().await;
    assert_eq!(rig.exec(&healthy, "echo on").await.0, "on\n");
    assert!(
        begun.elapsed() < Duration::from_secs(14),
        "{:?}",
        begun.elapsed()
    );
    // What is on record of it is shown until its monitor's successor has told.
    let after = rig.status(&container).await;
    assert_eq!(after.state(), ContainerState::ContainerRunning);
    assert_eq!(after.started_at, before.started_at);
    let asked = async || {
        let request = ExecSyncRequest {
            container_id: container.clone(),
            cmd: ["sh", "-c", "echo adopted"].map(str::to_owned).into(),
            timeout: 20,
        };
        rig.runtime().exec_sync(request).await.ok()
    };
    let answer = wait_for("the successor's answer", asked).await.into_inner();
    assert_eq!(answer.stdout, b"adopted\n");
    assert_eq!(rig.processes_of(&container), processes);
    rig.remove_pod(&id).await;
    rig.remove_pod(&beside).await;
    rig.assert_nothing_left().await;
}
