//! Everything at once: very many pods, and the end of the agent under the usual number.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;
use tokio::time::Instant;

use super::agent::{Agent, wall};
use super::samples::Samples;
use super::{Column, Plan, Report, memory, oxlet, pods};
use crate::agent::Node;
use crate::wait_until;

const WITHIN: Duration = Duration::from_secs(180);

pub(super) async fn measure(plan: &Plan, report: &mut Report) -> Result<()> {
    all_at_once(plan, report).await?;
    agent_killed(plan, report).await
}

async fn all_at_once(plan: &Plan, report: &mut Report) -> Result<()> {
    let agent = oxlet().await?;
    let mut watch = agent.watch().await?;
    let name = |nth| format!("burst-{nth}");
    let manifests: Vec<_> = (0..plan.most)
        .map(|nth| (name(nth), pods::manifest(&name(nth), 1)))
        .collect();
    let before = agent.drop_manifests(&manifests)?;
    let last = watch.started(plan.most, WITHIN).await?;
    let Agent::Oxlet(node) = agent else {
        return Ok(());
    };
    let waited = wait_until(WITHIN, "all pods are Running", async || {
        running(&node)
            .await
            .is_ok_and(|running| running == plan.most)
    });
    let waited = waited.await;
    let after = wall()?;
    let mut took = [Samples::default(), Samples::default()];
    took[0].add_nanos(last.at - before);
    took[1].add_nanos(after - before);
    report.put(Column::Oxlet, "burst-started", took[0].most());
    if waited.is_ok() {
        report.put(Column::Oxlet, "burst-running", took[1].most());
    }
    let missing = plan.most.saturating_sub(running(&node).await?);
    report.count(Column::Oxlet, "burst-missing", missing);
    report.count(
        Column::Oxlet,
        "burst-refused",
        refused(&node.admin("/tree").await?),
    );
    Ok(())
}

async fn agent_killed(plan: &Plan, report: &mut Report) -> Result<()> {
    let agent = oxlet().await?;
    memory::fill(&agent, "adopted", plan.many).await?;
    let Agent::Oxlet(mut node) = agent else {
        return Ok(());
    };
    wait_until(WITHIN, "all pods are Running", async || {
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
    wait_until(WITHIN, "all pods are adopted", async || {
        running(&node)
            .await
            .is_ok_and(|running| running == plan.many)
    })
    .await?;
    let mut took = Samples::default();
    took.add(before.elapsed());
    report.put(Column::Oxlet, "adopt", took.most());
    tokio::time::sleep(plan.settle).await;
    let now = self::ids(&node).await?;
    let restarted = ids
        .iter()
        .filter(|(name, id)| now.get(*name) != Some(id))
        .count();
    report.count(Column::Oxlet, "adopt-restarts", restarted);
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
