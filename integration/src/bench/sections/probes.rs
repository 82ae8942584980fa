//! Probes, second after second: what they cost, and whether they come in time.
//!
//! Each pod has three, which go on for ever: a command, an HTTP request, a connection. The last two come to
//! [`ProbeTargets`] of the bench itself.

use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use super::memory;
use crate::bench::agent::MeasuredAgent;
use crate::bench::samples::Samples;
use crate::bench::targets::ProbeTargets;
use crate::bench::{BenchPlan, BenchReport, pods};
use crate::wait_until;

const CONVERGENCE_TIMEOUT: Duration = Duration::from_secs(120);
/// The `periodSeconds` of every probe.
const PERIOD: Duration = Duration::from_secs(1);
/// Probes of every pod.
const PROBES: usize = 3;

/// Measures an agent whose pods have no probes; returns its memory in MiB.
pub(super) async fn without(
    plan: &BenchPlan,
    agent: &MeasuredAgent,
    report: &mut BenchReport,
) -> Result<f64> {
    let manifest = |name: &str, _| pods::manifest(name, pods::PROBED_CONTAINERS);
    fill(agent, plan.many, manifest).await?;
    let (memory, processor) = memory::at_rest(&long(plan), &agent.processes()?).await?;
    report.put(agent.column(), "probes-none-cpu", processor);
    Ok(memory)
}

/// Measures an agent whose like pods have probes, beside the memory that they need without.
pub(super) async fn with(
    plan: &BenchPlan,
    agent: &MeasuredAgent,
    plain: f64,
    report: &mut BenchReport,
) -> Result<()> {
    let column = agent.column();
    let targets = ProbeTargets::listen(plan.many).await?;
    let manifest = |name: &str, nth: usize| pods::probed(name, targets.pods()[nth]);
    fill(agent, plan.many, manifest).await?;
    let visited = wait_until(CONVERGENCE_TIMEOUT, "every probe has come", async || {
        targets.all_visited()
    });
    visited.await?;
    targets.begin();
    let (memory, processor) = memory::at_rest(&long(plan), &agent.processes()?).await?;
    let mut late = Samples::default();
    late.add(targets.longest_gap().saturating_sub(PERIOD));

    report.put(column, "probes-cpu", processor);
    report.put(column, "probes-late", late.most());
    let probes = u32::try_from(plan.many * PROBES)?;
    let each = (memory - plain) * 1024.0 / f64::from(probes);
    report.put(column, "probes-memory", each);
    if let MeasuredAgent::Oxlet(node) = agent {
        let tree = node.admin("/tree").await?;
        let prober = actor(&tree, "prober").context("the tree has no prober")?;
        let turn = prober["snapshot"]["latest_ms"].as_u64();
        let turn = turn.context("the prober does not say how late it was")?;
        report.put(column, "probes-turn", f64::from(u32::try_from(turn)?));
    }
    Ok(())
}

/// Gives an agent so many pods, one after the other: memory that a burst has left would hide what probes need.
async fn fill(
    agent: &MeasuredAgent,
    count: usize,
    manifest: impl Fn(&str, usize) -> String,
) -> Result<()> {
    let mut watch = agent.watch().await?;
    for nth in 0..count {
        let name = format!("probed-{nth}");
        agent.drop_manifest(&name, &manifest(&name, nth))?;
        watch
            .started(pods::PROBED_CONTAINERS, CONVERGENCE_TIMEOUT)
            .await?;
    }
    Ok(())
}

/// The plan, with time enough for a few periods in it.
fn long(plan: &BenchPlan) -> BenchPlan {
    BenchPlan {
        idle: plan.idle.max(PERIOD * 3),
        ..plan.clone()
    }
}

fn actor<'a>(tree: &'a Value, id: &str) -> Option<&'a Value> {
    if tree["id"] == id {
        return Some(tree);
    }
    let mut below = tree["children"].as_array().into_iter().flatten();
    below.find_map(|child| actor(child, id))
}
