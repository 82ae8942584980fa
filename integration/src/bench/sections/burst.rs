//! Bursts: very many pods at once, and a kill of the agent under the usual number of pods.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;
use tokio::time::Instant;

use super::{memory, oxlet};
use crate::agent::Node;
use crate::bench::agent::{MeasuredAgent, wall};
use crate::bench::samples::Samples;
use crate::bench::{AgentColumn, BenchPlan, BenchReport, pods};
use crate::wait_until;

const CONVERGENCE_TIMEOUT: Duration = Duration::from_secs(180);

pub(super) async fn measure(plan: &BenchPlan, report: &mut BenchReport) -> Result<()> {
    all_at_once(plan, report).await?;
    agent_killed(plan, report).await
}

async fn all_at_once(plan: &BenchPlan, report: &mut BenchReport) -> Result<()> {
    let agent = oxlet().await?;
    let mut watch = agent.watch().await?;
    let name = |nth| format!("burst-{nth}");
    let manifests: Vec<_> = (0..plan.most)
        .map(|nth| (name(nth), pods::manifest(&name(nth), 1)))
        .collect();
    let before = agent.drop_manifests(&manifests)?;
    let last = watch.started(plan.most, CONVERGENCE_TIMEOUT).await?;
    let MeasuredAgent::Oxlet(node) = agent else {
        return Ok(());
    };
    let waited = wait_until(CONVERGENCE_TIMEOUT, "all pods are Running", async || {
        running(&node)
            .await
            .is_ok_and(|running| running == plan.most)
    });
    let waited = waited.await;
    let after = wall()?;
    let mut took = [Samples::default(), Samples::default()];
    took[0].add_nanos(last.at - before);
    took[1].add_nanos(after - before);
    report.put(AgentColumn::Oxlet, "burst-started", took[0].most());
    if waited.is_ok() {
        report.put(AgentColumn::Oxlet, "burst-running", took[1].most());
    }
    let missing = plan.most.saturating_sub(running(&node).await?);
    report.count(AgentColumn::Oxlet, "burst-missing", missing);
    report.count(
        AgentColumn::Oxlet,
        "burst-refused",
        refused(&node.admin("/tree").await?),
    );
    Ok(())
}

async fn agent_killed(plan: &BenchPlan, report: &mut BenchReport) -> Result<()> {
    let agent = oxlet().await?;
    memory::fill(&agent, "adopted", plan.many).await?;
    let MeasuredAgent::Oxlet(mut node) = agent else {
        return Ok(());
    };
    wait_until(CONVERGENCE_TIMEOUT, "all pods are Running", async || {
        running(&node)
            .await
            .is_ok_and(|running| running == plan.many)
    })
    .await?;
    // What was written last is on disk.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let ids = ids(&node).await?;

    let before = Instant::now();
    node.kill9()?;
    node.begin().await?;
    wait_until(CONVERGENCE_TIMEOUT, "all pods are adopted", async || {
        running(&node)
            .await
            .is_ok_and(|running| running == plan.many)
    })
    .await?;
    let mut took = Samples::default();
    took.add(before.elapsed());
    report.put(AgentColumn::Oxlet, "adopt", took.most());
    tokio::time::sleep(plan.settle).await;
    let now = self::ids(&node).await?;
    let restarted = ids
        .iter()
        .filter(|(name, id)| now.get(*name) != Some(id))
        .count();
    report.count(AgentColumn::Oxlet, "adopt-restarts", restarted);
    Ok(())
}

async fn ids(node: &Node) -> Result<BTreeMap<(String, String), String>> {
    node.cri()
        .await?
        .running()
        .await
        .context("the runtime lists nothing")
}

/// How many pods the node itself calls Running, all their containers ready.
async fn running(node: &Node) -> Result<usize> {
    let is_running = |pod: &Pod| {
        let status = pod.status.as_ref();
        let phase = status.and_then(|status| status.phase.as_deref());
        let mut containers = status
            .into_iter()
            .flat_map(|status| status.container_statuses.iter().flatten());
        phase == Some("Running") && containers.all(|container| container.ready)
    };
    Ok(node
        .pods()
        .await?
        .iter()
        .filter(|pod| is_running(pod))
        .count())
}

/// Messages that full mailboxes have handed back, in the whole tree.
fn refused(tree: &Value) -> usize {
    let own = tree["mailbox"]["overloaded"].as_u64().unwrap_or_default();
    let below = tree["children"]
        .as_array()
        .map(|all| all.iter().map(refused).sum());
    usize::try_from(own).unwrap_or(usize::MAX) + below.unwrap_or(0)
}
