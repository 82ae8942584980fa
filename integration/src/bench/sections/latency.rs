//! One thing happens: how long until the agent has done its part.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use proto::cri::{ContainerEventType, ExecSyncRequest, VersionRequest};
use tokio::net::UnixDatagram;
use tokio::time::{Instant, timeout};

use super::{memory, oxlet};
use crate::agent::{Cri, Node};
use crate::bench::agent::MeasuredAgent;
use crate::bench::samples::Samples;
use crate::bench::{AgentColumn, BenchPlan, BenchReport, pods};

const CONVERGENCE_TIMEOUT: Duration = Duration::from_secs(20);
/// Containers a pod whose containers are killed.
const CONTAINERS: usize = 2;
/// How long the runtime takes to start each container of a pod, in milliseconds. The slowest comes neither first nor
/// last.
const CROWD: [u32; 10] = [20, 180, 60, 140, 100, 200, 40, 160, 80, 120];
/// Pods that are there while plugins are killed.
const BYSTANDERS: usize = 10;
/// Between two attempts of one call.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Measures our agent.
pub(super) async fn measure(plan: &BenchPlan, report: &mut BenchReport) -> Result<()> {
    let mut agent = oxlet().await?;
    agent.end().await?;
    starts(plan, &mut agent, report).await?;
    readiness(plan, report).await?;
    drops(plan, &oxlet().await?, report).await?;
    crowds(plan, &oxlet().await?, report).await?;
    container_kills(plan, &oxlet().await?, report).await?;
    plugin_kills(plan, report).await
}

/// From the process's start to the first healthy answer; the agent does not run yet.
pub(super) async fn starts(
    plan: &BenchPlan,
    agent: &mut MeasuredAgent,
    report: &mut BenchReport,
) -> Result<()> {
    let mut took = Samples::default();
    for _ in 0..plan.starts {
        took.add(agent.begin().await?);
        agent.end().await?;
    }
    report.put(agent.column(), "start-median", took.median());
    report.put(agent.column(), "start-most", took.most());
    Ok(())
}

/// From the process's start to what it tells a service manager: READY=1.
async fn readiness(plan: &BenchPlan, report: &mut BenchReport) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let socket = folder.path().join("notify");
    let manager = UnixDatagram::bind(&socket)?;
    let mut node = Node::builder()
        .environment("NOTIFY_SOCKET", &socket.to_string_lossy())
        .prepare()?;
    let mut took = Samples::default();
    for _ in 0..plan.starts {
        let began = Instant::now();
        let ready = async {
            timeout(CONVERGENCE_TIMEOUT, told(&manager, "READY=1"))
                .await
                .context("READY=1 is not told in time")??;
            Ok(began.elapsed())
        };
        let (ready, _healthy) = tokio::try_join!(ready, node.begin())?;
        took.add(ready);
        node.terminate().await?;
    }
    report.put(AgentColumn::Oxlet, "ready-median", took.median());
    report.put(AgentColumn::Oxlet, "ready-most", took.most());
    Ok(())
}

/// Waits for a line that a service manager is told.
async fn told(manager: &UnixDatagram, line: &str) -> Result<()> {
    let mut text = [0; 1024];
    loop {
        let length = manager.recv(&mut text).await?;
        if String::from_utf8_lossy(&text[..length])
            .lines()
            .any(|told| told == line)
        {
            return Ok(());
        }
    }
}

/// From the manifest's rename to the container's start by the runtime's clock.
pub(super) async fn drops(
    plan: &BenchPlan,
    agent: &MeasuredAgent,
    report: &mut BenchReport,
) -> Result<()> {
    let mut watch = agent.watch().await?;
    let mut took = Samples::default();
    for nth in 0..plan.drops {
        let name = format!("drop-{nth}");
        let before = agent.drop_manifest(&name, &pods::manifest(&name, 1))?;
        let started = watch.started(1, CONVERGENCE_TIMEOUT).await?;
        took.add_nanos(started.at - before);
    }
    report.put(agent.column(), "drop-median", took.median());
    report.put(agent.column(), "drop-p99", took.p99());
    Ok(())
}

/// From the manifest's rename to the start of the last of many containers, each of which takes its own time.
pub(super) async fn crowds(
    plan: &BenchPlan,
    agent: &MeasuredAgent,
    report: &mut BenchReport,
) -> Result<()> {
    let mut watch = agent.watch().await?;
    let mut took = Samples::default();
    for nth in 0..plan.crowds {
        let name = format!("crowd-{nth}");
        let before = agent.drop_manifest(&name, &pods::slow(&name, &CROWD))?;
        let mut last = before;
        for _ in CROWD {
            last = watch.started(1, CONVERGENCE_TIMEOUT).await?.at.max(last);
        }
        took.add_nanos(last - before);
    }
    report.put(agent.column(), "crowd-median", took.median());
    report.put(agent.column(), "crowd-most", took.most());
    Ok(())
}

/// From a container's end to the creation of its successor, both by the runtime's clock. Each is killed once: the
/// first restart is immediate, later ones wait for their back-off.
pub(super) async fn container_kills(
    plan: &BenchPlan,
    agent: &MeasuredAgent,
    report: &mut BenchReport,
) -> Result<()> {
    let mut watch = agent.watch().await?;
    let pods = plan.container_kills.div_ceil(CONTAINERS);
    let name = |nth| format!("kill-{nth}");
    let manifests: Vec<_> = (0..pods)
        .map(|nth| (name(nth), pods::manifest(&name(nth), CONTAINERS)))
        .collect();
    agent.drop_manifests(&manifests)?;
    watch
        .started(pods * CONTAINERS, CONVERGENCE_TIMEOUT * 3)
        .await?;
    tokio::time::sleep(plan.settle).await;

    let cri = agent.cri().await?;
    let mut took = Samples::default();
    for ((pod, container), id) in cri.running().await?.into_iter().take(plan.container_kills) {
        kill(&cri, id);
        let is = |happened: &crate::bench::watch::ObservedEvent| {
            happened.pod == pod && happened.container == container
        };
        let what = format!("container {container} of {pod} ends and comes back");
        let ended = watch.until(CONVERGENCE_TIMEOUT, &what, |happened| {
            is(happened) && happened.kind == ContainerEventType::ContainerStoppedEvent
        });
        let ended = ended.await?;
        let created = watch.until(CONVERGENCE_TIMEOUT, &what, |happened| {
            is(happened)
                && happened.kind == ContainerEventType::ContainerCreatedEvent
                && happened.attempt > 0
        });
        took.add_nanos(created.await?.at - ended.at);
    }
    report.put(agent.column(), "restart-median", took.median());
    report.put(agent.column(), "restart-p99", took.p99());
    Ok(())
}

/// Has the container killed from within, without waiting for an answer that its end may swallow.
fn kill(cri: &Cri, container_id: String) {
    let mut runtime = cri.runtime();
    let question = ExecSyncRequest {
        container_id,
        cmd: ["kill", "-9", "1"].map(str::to_owned).to_vec(),
        timeout: 5,
    };
    tokio::spawn(async move { drop(runtime.exec_sync(question).await) });
}

/// From SIGKILL of the plugin's process to the answer of a call made right after, through the socket that the
/// agent keeps. An orderly restart before each lets the plugin's restart history begin anew.
async fn plugin_kills(plan: &BenchPlan, report: &mut BenchReport) -> Result<()> {
    let agent = oxlet().await?;
    memory::fill(&agent, "bystander", BYSTANDERS).await?;
    let MeasuredAgent::Oxlet(node) = agent else {
        return Ok(());
    };
    let mut took = Samples::default();
    for _ in 0..plan.plugin_kills {
        node.order("/plugins/runtime/restart").await?;
        let socket = socket(&node).await?;
        let before = Instant::now();
        anyhow::ensure!(node.kill_plugin(), "no plugin to kill");
        answered(&socket).await?;
        took.add(before.elapsed());
    }
    report.put(AgentColumn::Oxlet, "plugin-median", took.median());
    report.put(AgentColumn::Oxlet, "plugin-p99", took.p99());
    Ok(())
}

async fn socket(node: &Node) -> Result<PathBuf> {
    let plugin = node.plugin().await?;
    Ok(plugin["socket"]
        .as_str()
        .context("the plugin has no socket")?
        .into())
}

async fn answered(socket: &std::path::Path) -> Result<()> {
    let asked = async {
        loop {
            // A connection of its own each time: the last one may have been the dead process's.
            let question = VersionRequest::default();
            if Cri::connect(socket)
                .runtime()
                .version(question)
                .await
                .is_ok()
            {
                return;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    };
    tokio::time::timeout(CONVERGENCE_TIMEOUT, asked)
        .await
        .context("the plugin does not answer again")
}
