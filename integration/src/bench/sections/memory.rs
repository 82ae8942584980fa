//! The node at rest: memory and processor time without pods, with the usual number, with very many.

use std::time::Duration;

use anyhow::Result;
use tokio::time::Instant;

use super::oxlet;
use crate::bench::agent::MeasuredAgent;
use crate::bench::{BenchPlan, BenchReport, pods, process};

const START_TIMEOUT: Duration = Duration::from_secs(120);

/// Measures an agent that runs, without pods and with many.
pub(super) async fn measure(
    plan: &BenchPlan,
    agent: &mut MeasuredAgent,
    report: &mut BenchReport,
) -> Result<()> {
    let column = agent.column();
    let (memory, processor) = at_rest(plan, &agent.processes()?).await?;
    report.put(column, "pss-none", memory);
    report.put(column, "cpu-none", processor);
    fill(agent, "idle", plan.many).await?;
    let (memory, processor) = at_rest(plan, &agent.processes()?).await?;
    report.put(column, "pss-many", memory);
    report.put(column, "cpu-many", processor);
    report.put(column, "fake-many", process::memory(&agent.fake()?)?);
    Ok(())
}

/// Measures our agent with very many pods.
pub(super) async fn large(plan: &BenchPlan, report: &mut BenchReport) -> Result<()> {
    let agent = oxlet().await?;
    fill(&agent, "idle", plan.most).await?;
    let (memory, processor) = at_rest(plan, &agent.processes()?).await?;
    report.put(agent.column(), "pss-most", memory);
    report.put(agent.column(), "cpu-most", processor);
    report.put(
        agent.column(),
        "fake-most",
        process::memory(&agent.fake()?)?,
    );
    Ok(())
}

/// Gives an agent so many pods of one container, and waits until all have started.
pub(super) async fn fill(agent: &MeasuredAgent, prefix: &str, count: usize) -> Result<()> {
    let mut watch = agent.watch().await?;
    let name = |nth| format!("{prefix}-{nth}");
    let manifests: Vec<_> = (0..count)
        .map(|nth| (name(nth), pods::manifest(&name(nth), 1)))
        .collect();
    agent.drop_manifests(&manifests)?;
    watch.started(count, START_TIMEOUT).await.map(drop)
}

/// Leaves an agent's processes alone, then looks at them: MiB, and per cent of a core.
pub(super) async fn at_rest(plan: &BenchPlan, processes: &[u32]) -> Result<(f64, f64)> {
    tokio::time::sleep(plan.settle).await;
    let (began, before) = (Instant::now(), process::processor_time(processes)?);
    tokio::time::sleep(plan.idle).await;
    let used = process::processor_time(processes)?.saturating_sub(before);
    let share = used.as_secs_f64() / began.elapsed().as_secs_f64() * 100.0;
    Ok((process::memory(processes)?, share))
}
