//! The sections of a run: what each starts, does and measures.

mod burst;
mod cluster;
mod containerd;
mod eviction;
mod full_node;
mod kernel;
mod latency;
mod memory;
mod placement;
mod probes;
mod runtimes;
mod scrapes;
mod volumes;

use std::path::Path;

use anyhow::Result;

use super::agent::MeasuredAgent;
use super::kubelet::KubeletProcess;
use super::{BenchPlan, BenchReport, figures};
use crate::agent::Node;

/// Measures one section.
pub(super) async fn measure(
    section: &str,
    plan: &BenchPlan,
    report: &mut BenchReport,
) -> Result<()> {
    match section {
        figures::MEMORY => {
            memory::measure(plan, &mut oxlet().await?, report).await?;
            memory::large(plan, report).await?;
        }
        figures::LATENCY => latency::measure(plan, report).await?,
        figures::PROBES => {
            let plain = probes::without(plan, &oxlet().await?, report).await?;
            probes::with(plan, &oxlet().await?, plain, report).await?;
        }
        figures::VOLUMES => volumes::measure(plan, report).await?,
        figures::BURST => burst::measure(plan, report).await?,
        figures::KERNEL => kernel::measure(report).await?,
        figures::PLACEMENT => placement::measure(plan, report)?,
        figures::CONTAINERD => containerd::measure(plan, report).await?,
        figures::CLUSTER => cluster::measure(plan, report).await?,
        figures::CLUSTER_REAL => cluster::real(plan, report).await?,
        figures::SCRAPES => scrapes::measure(plan, report).await?,
        figures::EVICTION => eviction::measure(plan, report).await?,
        figures::RUNTIMES => runtimes::measure(plan, report).await?,
        figures::FULL_NODE => full_node::measure(plan, report).await?,
        other => anyhow::bail!("no section {other}"),
    }
    Ok(())
}

async fn oxlet() -> Result<MeasuredAgent> {
    Ok(MeasuredAgent::Oxlet(Box::new(
        Node::builder().start().await?,
    )))
}

/// Measures a kubelet by the figures that apply to any node agent.
pub(super) async fn beside(
    plan: &BenchPlan,
    program: &Path,
    report: &mut BenchReport,
) -> Result<()> {
    let mut agent = MeasuredAgent::KubeletProcess(KubeletProcess::prepare(program)?);
    if plan.wants(figures::LATENCY) {
        latency::starts(plan, &mut agent, report).await?;
        agent.begin().await?;
        latency::drops(plan, &agent, report).await?;
        latency::crowds(plan, &agent, report).await?;
        agent.end().await?;
        agent = MeasuredAgent::KubeletProcess(KubeletProcess::prepare(program)?);
        agent.begin().await?;
        latency::container_kills(plan, &agent, report).await?;
        agent.end().await?;
    }
    if plan.wants(figures::MEMORY) {
        let mut agent = MeasuredAgent::KubeletProcess(KubeletProcess::prepare(program)?);
        agent.begin().await?;
        memory::measure(plan, &mut agent, report).await?;
    }
    if plan.wants(figures::PROBES) {
        let mut plain = MeasuredAgent::KubeletProcess(KubeletProcess::prepare(program)?);
        plain.begin().await?;
        let memory = probes::without(plan, &plain, report).await?;
        drop(plain);
        let mut probed = MeasuredAgent::KubeletProcess(KubeletProcess::prepare(program)?);
        probed.begin().await?;
        probes::with(plan, &probed, memory, report).await?;
    }
    if plan.wants(figures::SCRAPES) {
        scrapes::beside(plan, program, report).await?;
    }
    Ok(())
}
