//! State that outlives a generation of the node.

use proto::cri::*;
use runtime_fake::{Fake, FakeSettings};

use crate::rig::{SECOND, pass, rig};

#[tokio::test(start_paused = true)]
async fn containers_run_on_while_nobody_looks() {
    let mut rig = rig().await;
    let sandbox = rig.sandbox("a").await;
    let short = rig
        .running(&sandbox, "short", "echo one; sleep 5; echo two; exit 3")
        .await;
    let long = rig.running(&sandbox, "long", "sleep 100").await;
    let server = rig.running(&sandbox, "server", "server").await;
    let waiting = rig.created(&sandbox, "waiting", "true").await;
    let deaf = rig
        .running(&sandbox, "deaf", "trap '' TERM; sleep 1000")
        .await;
    rig.exec(&server, 0, &["touch", "/tmp/x"]).await.unwrap();
    let before = rig.sandbox_status(&sandbox).await.unwrap();
    let started = rig.status(&long).await.started_at;

    let rig = rig.reopened().await;
    pass(20).await;
    let mut rig = rig.reopened().await;

    assert_eq!(rig.sandbox_status(&sandbox).await.unwrap(), before);
    let status = rig.status(&short).await;
    assert_eq!(
        (status.state(), status.exit_code),
        (ContainerState::ContainerExited, 3)
    );
    assert_eq!(status.finished_at - status.started_at, 5 * SECOND);
    assert_eq!(rig.log("a", "short").lines().count(), 2);
    let status = rig.status(&long).await;
    assert_eq!(
        (status.state(), status.started_at),
        (ContainerState::ContainerRunning, started)
    );
    assert_eq!(
        rig.status(&waiting).await.state(),
        ContainerState::ContainerCreated
    );
    assert_eq!(
        rig.exec(&server, 0, &["test", "-f", "/tmp/x"])
            .await
            .unwrap()
            .exit_code,
        0
    );
    rig.stop(&deaf, 2).await;
    assert_eq!(rig.status(&deaf).await.exit_code, 137);

    pass(80).await;
    let status = rig.status(&long).await;
    assert_eq!(
        (status.exit_code, status.finished_at - status.started_at),
        (0, 100 * SECOND)
    );
}

#[tokio::test(start_paused = true)]
async fn ids_and_addresses_are_not_given_again_after_a_restart() {
    let mut rig = rig().await;
    let first = rig.sandbox("a").await;
    let container = rig.created(&first, "c", "true").await;
    rig.runtime
        .remove_pod_sandbox(RemovePodSandboxRequest {
            pod_sandbox_id: first.clone(),
        })
        .await
        .unwrap();
    let kept = rig.sandbox("kept").await;
    let ip = rig.sandbox_status(&kept).await.unwrap().network.unwrap().ip;
    let mut rig = rig.reopened().await;
    let second = rig.sandbox("a").await;
    let again = rig.created(&second, "c", "true").await;
    assert!(![&first, &container, &kept].contains(&&second) && again != container);
    assert_ne!(
        rig.sandbox_status(&second)
            .await
            .unwrap()
            .network
            .unwrap()
            .ip,
        ip
    );
}

#[tokio::test(start_paused = true)]
async fn a_damaged_tail_costs_what_it_held_and_nothing_else() {
    let mut rig = rig().await;
    let folder = rig.folder.clone();
    let kept = rig.sandbox("kept").await;
    rig.sandbox("torn").await;
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(folder.join("state.journal"))
        .unwrap();
    file.set_len(file.metadata().unwrap().len() - 1).unwrap();
    let mut rig = rig.reopened().await;
    // The rig's own look at the folder has already cut it off.
    assert!(folder.join("state.journal.cut").exists());
    rig.sandbox_status(&kept).await.unwrap();
    rig.sandbox("torn").await;
    let list = rig
        .runtime
        .list_pod_sandbox(ListPodSandboxRequest::default())
        .await
        .unwrap()
        .into_inner();
    assert_eq!(list.items.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_folder_in_use_is_refused() {
    let rig = rig().await;
    let refused = Fake::open(rig.folder.clone(), FakeSettings::default())
        .unwrap_err()
        .to_string();
    assert!(
        refused.contains("is in use by another process"),
        "{refused}"
    );
}
