//! Containers whose processes containerd has lost sight of: an interrupted start leaves such, and they block its removal.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use integration::containerd::Containerd;
use integration::{pods, wait_until};
use proto::cri;
use tokio::process::Command;

use crate::suite::node_rig::*;

async fn ctr(rig: &Containerd, arguments: &[&str]) -> Result<String> {
    let output = Command::new("ctr")
        .arg("-a")
        .arg(rig.socket())
        .args(["-n", "k8s.io"])
        .args(arguments)
        .output()
        .await?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "ctr {arguments:?}: {errors}");
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Makes a container of a pod that nobody desires, and starts its process so that CRI does not know of it; returns the
/// container's id and the process.
async fn left_behind(rig: &Containerd) -> Result<(String, u32)> {
    let label = |key: &str, value: &str| (format!("io.kubernetes.{key}"), value.to_owned());
    let mut sandbox = pods::sandbox(rig, "left")?;
    let owner = [
        label("pod.namespace", "default"),
        label("pod.uid", "uid-of-left"),
    ];
    sandbox.labels.extend(owner.clone());
    let sandbox_id = pods::run_sandbox(&rig.runtime(), &sandbox).await?;
    let mut container = pods::container("app", SERVE);
    container.labels.extend(owner);
    let name = [label("pod.name", "left"), label("container.name", "app")];
    container.labels.extend(name);
    let question = cri::CreateContainerRequest {
        pod_sandbox_id: sandbox_id,
        config: Some(container),
        sandbox_config: Some(sandbox),
    };
    let made = rig.runtime().create_container(question).await?;
    let id = made.into_inner().container_id;
    ctr(rig, &["tasks", "start", "--null-io", "--detach", &id]).await?;
    let tasks = ctr(rig, &["tasks", "list"]).await?;
    let mut lines = tasks.lines().map(str::split_whitespace);
    let mut task = lines
        .find_map(|mut words| (words.next()? == id).then_some(words))
        .context("no task")?;
    let pid = task.next().context("no process")?.parse()?;
    Ok((id, pid))
}

#[tokio::test]
async fn a_container_whose_process_the_runtime_has_lost_sight_of_is_removed_with_that_process() {
    let Some(mut rig) = TestRuntime::Containerd.start().await else {
        return;
    };
    rig.node.terminate().await.unwrap();
    let containerd = rig.containerd.as_ref().unwrap();
    let (id, pid) = left_behind(containerd).await.unwrap();
    let process = format!("/proc/{pid}");
    assert!(Path::new(&process).exists());
    // CRI alone has no way out.
    let question = cri::RemoveContainerRequest {
        container_id: id.clone(),
    };
    let refusal = containerd.runtime().remove_container(question).await;
    let refusal = refusal.unwrap_err();
    let words = refusal.message();
    assert!(words.contains("cannot delete running task"), "{words}");

    rig.node.begin().await.unwrap();
    let cri = rig.cri().await;
    let gone = wait_until(
        CONVERGENCE_TIMEOUT,
        "nothing of the pod is left",
        async || {
            let (containers, sandboxes) = (cri.containers().await, cri.sandboxes().await);
            containers.is_ok_and(|all| all.is_empty()) && sandboxes.is_ok_and(|all| all.is_empty())
        },
    );
    gone.await.unwrap();
    assert!(!Path::new(&process).exists());
}
