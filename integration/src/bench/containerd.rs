//! On a real containerd: what the agent adds to containerd's own time, measured straight in the same run.

use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use proto::cri::PodSandboxConfig;
use tokio::time::Instant;

use super::agent::wall;
use super::pods::{SCRIPT, manifest};
use super::samples::Samples;
use super::{Column, Plan, Report, process};
use crate::agent::{Cri, Node};
use crate::containerd::{Containerd, missing};
use crate::pods;

const WITHIN: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(50);

pub(super) async fn measure(plan: &Plan, report: &mut Report) -> Result<()> {
    if let Some(why) = missing() {
        report.note(&format!("not measured on containerd: {why}"));
        return Ok(());
    }
    let dir = tempfile::tempdir()?;
    let rig = Containerd::start(dir.path()).await?;
    let node = Node::builder()
        .runtime(&rig)
        .config(&serde_json::json!({ "cgroupRoot": rig.cgroup() }))
        .start()
        .await?;
    report.put(Column::Oxlet, "real-pss-none", at_rest(plan, &node).await?);
    let cri = Cri::over(rig.channel());
    // Straight and by the agent in turns: what else the machine is busy with slows both.
    let (mut direct, mut dropped) = (Samples::default(), Samples::default());
    let (mut again, mut restarted) = (Samples::default(), Samples::default());
    let mut sandboxes = Vec::new();
    for nth in 0..plan.real_pods {
        sandboxes.push(straight(&rig, nth, &mut direct).await?);
        dropped.add_nanos(drop_one(&node, &cri, nth).await?);
    }
    report.put(Column::Oxlet, "real-pss-some", at_rest(plan, &node).await?);
    for (nth, (id, sandbox)) in sandboxes.iter().enumerate() {
        let before = Instant::now();
        pods::run_container(
            &rig.runtime(),
            id,
            sandbox,
            pods::container("second", SCRIPT),
        )
        .await?;
        again.add(before.elapsed());
        restarted.add_nanos(kill_one(&cri, nth).await?);
    }

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

/// Makes a pod without the agent: sandbox, one container created and started.
pub(super) async fn straight(
    rig: &Containerd,
    nth: usize,
    took: &mut Samples,
) -> Result<(String, PodSandboxConfig)> {
    let sandbox = pods::sandbox(rig, &format!("straight-{nth}"))?;
    let client = rig.runtime();
    let before = Instant::now();
    let id = pods::run_sandbox(&client, &sandbox).await?;
    pods::run_container(&client, &id, &sandbox, pods::container("first", SCRIPT)).await?;
    took.add(before.elapsed());
    Ok((id, sandbox))
}

/// From the manifest's rename to the container's start by containerd's clock, in nanoseconds.
async fn drop_one(node: &Node, cri: &Cri, nth: usize) -> Result<i64> {
    let name = format!("real-{nth}");
    let before = wall()?;
    node.drop_manifest(&format!("{name}.yaml"), &manifest(&name, 1))?;
    Ok(started(cri, &name, 0).await? - before)
}

/// From SIGKILL of the container's process to its successor's start by containerd's clock, in nanoseconds.
async fn kill_one(cri: &Cri, nth: usize) -> Result<i64> {
    let name = format!("real-{nth}");
    let containers = cri.containers_of(&name).await?;
    let running = containers
        .first()
        .with_context(|| format!("pod {name} has no container"))?;
    let pid = pods::pid_of(&cri.runtime(), &running.id).await?;
    let before = wall()?;
    kill(Pid::from_raw(pid), Signal::SIGKILL)?;
    Ok(started(cri, &name, 1).await? - before)
}

/// Waits until the pod's container of this attempt has started; returns when that was. It looks seldom: looking is work
/// for containerd, and the time is containerd's own.
async fn started(cri: &Cri, pod: &str, attempt: u32) -> Result<i64> {
    let asked = async {
        loop {
            match start_of(cri, pod, attempt).await {
                Ok(at) if at > 0 => return at,
                Ok(_) | Err(_) => tokio::time::sleep(LOOK_EVERY).await,
            }
        }
    };
    let started = tokio::time::timeout(WITHIN, asked).await;
    started.with_context(|| format!("the container of {pod} does not run"))
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
