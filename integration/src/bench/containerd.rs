//! On a real containerd: what the agent adds to containerd's own time, measured straight in the same run.

use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::time::Instant;

use super::agent::wall;
use super::pods::{SCRIPT, manifest};
use super::samples::Samples;
use super::{Column, Plan, Report, process};
use crate::agent::{Cri, Node};
use crate::containerd::{Containerd, missing};
use crate::{pods, wait_until};

const WITHIN: Duration = Duration::from_secs(60);

pub(super) async fn measure(plan: &Plan, report: &mut Report) -> Result<()> {
    if let Some(why) = missing() {
        report.note(&format!("not measured on containerd: {why}"));
        return Ok(());
    }
    let dir = tempfile::tempdir()?;
    let rig = Containerd::start(dir.path()).await?;
    let (direct, again) = straight(plan, &rig).await?;
    let node = Node::builder().runtime(&rig).start().await?;
    report.put(Column::Oxlet, "real-pss-none", at_rest(plan, &node).await?);
    let cri = Cri::over(rig.channel());
    let dropped = drops(plan, &node, &cri).await?;
    report.put(Column::Oxlet, "real-pss-some", at_rest(plan, &node).await?);
    let restarted = kills(plan, &cri).await?;

    report.put(Column::Oxlet, "real-direct", direct.median());
    report.put(Column::Oxlet, "real-again", again.median());
    report.put(Column::Oxlet, "real-drop", dropped.median());
    report.put(
        Column::Oxlet,
        "real-drop-own",
        dropped.median() - direct.median(),
    );
    report.put(Column::Oxlet, "real-restart", restarted.median());
    report.put(
        Column::Oxlet,
        "real-restart-own",
        restarted.median() - again.median(),
    );
    Ok(())
}

/// Drives containerd without an agent: a pod from nothing; and one more container in it, as a restart makes it.
async fn straight(plan: &Plan, rig: &Containerd) -> Result<(Samples, Samples)> {
    let client = rig.runtime();
    let (mut direct, mut again) = (Samples::default(), Samples::default());
    for nth in 0..plan.real_pods {
        let sandbox = pods::sandbox(rig, &format!("straight-{nth}"))?;
        let before = Instant::now();
        let id = pods::run_sandbox(&client, &sandbox).await?;
        pods::run_container(&client, &id, &sandbox, pods::container("first", SCRIPT)).await?;
        direct.add(before.elapsed());
        let before = Instant::now();
        pods::run_container(&client, &id, &sandbox, pods::container("second", SCRIPT)).await?;
        again.add(before.elapsed());
    }
    Ok((direct, again))
}

/// From the manifest's rename to the container's start by containerd's clock.
async fn drops(plan: &Plan, node: &Node, cri: &Cri) -> Result<Samples> {
    let mut took = Samples::default();
    for nth in 0..plan.real_pods {
        let name = format!("real-{nth}");
        let before = wall()?;
        node.drop_manifest(&format!("{name}.yaml"), &manifest(&name, 1))?;
        let started = started(cri, &name, 0).await?;
        took.add_nanos(started - before);
    }
    Ok(took)
}

/// From SIGKILL of the container's process to its successor's start by containerd's clock.
async fn kills(plan: &Plan, cri: &Cri) -> Result<Samples> {
    let mut took = Samples::default();
    for nth in 0..plan.real_pods {
        let name = format!("real-{nth}");
        let containers = cri.containers_of(&name).await?;
        let running = containers
            .first()
            .with_context(|| format!("pod {name} has no container"))?;
        let pid = pods::pid_of(&cri.runtime(), &running.id).await?;
        let before = wall()?;
        kill(Pid::from_raw(pid), Signal::SIGKILL)?;
        let started = started(cri, &name, 1).await?;
        took.add_nanos(started - before);
    }
    Ok(took)
}

/// Waits until the pod's container of this attempt has started; returns when that was.
async fn started(cri: &Cri, pod: &str, attempt: u32) -> Result<i64> {
    let mut at = 0;
    wait_until(
        WITHIN,
        &format!("the container of {pod} runs"),
        async || {
            at = start_of(cri, pod, attempt).await.unwrap_or_default();
            at > 0
        },
    )
    .await?;
    Ok(at)
}

async fn start_of(cri: &Cri, pod: &str, attempt: u32) -> Result<i64> {
    let containers = cri.containers_of(pod).await?.into_iter();
    let mut of_attempt = containers.filter(|container| {
        container
            .metadata
            .as_ref()
            .is_some_and(|metadata| metadata.attempt == attempt)
    });
    let container = of_attempt.next().context("no such container")?;
    Ok(cri.status(&container.id).await?.started_at)
}

async fn at_rest(plan: &Plan, node: &Node) -> Result<f64> {
    tokio::time::sleep(plan.settle).await;
    let agent = node.pid().context("the agent does not run")?;
    let plugins = process::children(agent)?.into_iter().map(|(pid, _)| pid);
    process::memory(&std::iter::once(agent).chain(plugins).collect::<Vec<_>>())
}
