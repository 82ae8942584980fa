//! What scrapes of a node on a real containerd take and cost.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::json;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::memory;
use crate::agent::{Cri, Node};
use crate::bench::agent::MeasuredAgent;
use crate::bench::kubelet::KubeletProcess;
use crate::bench::samples::Samples;
use crate::bench::{BenchPlan, BenchReport, pods};
use crate::containerd::{Containerd, missing};
use crate::http;
use crate::wait_until;

const START_TIMEOUT: Duration = Duration::from_secs(600);
/// Longer than any answer is remembered.
const FORGOTTEN_AFTER: Duration = Duration::from_millis(1_500);
/// Between two rounds of a monitoring system.
const SCRAPE_INTERVAL: Duration = Duration::from_secs(15);
const SUMMARY: &str = "/stats/summary";
const RESOURCE: &str = "/metrics/resource";
const CADVISOR: &str = "/metrics/cadvisor";
const METRICS: &str = "/metrics";
/// What is asked for in each round.
const SCRAPED: [&str; 3] = [RESOURCE, CADVISOR, SUMMARY];

pub(super) async fn measure(plan: &BenchPlan, report: &mut BenchReport) -> Result<()> {
    if let Some(why) = missing() {
        report.note(&format!("scrapes not measured: {why}"));
        return Ok(());
    }
    let dir = tempfile::tempdir()?;
    let rig = Containerd::start(dir.path()).await?;
    let root = json!({ "cgroupRoot": rig.cgroup() });
    let node = Node::builder().runtime(&rig).config(&root).start().await?;
    let agent = MeasuredAgent::Oxlet(Box::new(node));
    of(plan, &agent, &rig, report).await
}

/// Measures a kubelet likewise.
pub(super) async fn beside(
    plan: &BenchPlan,
    program: &Path,
    report: &mut BenchReport,
) -> Result<()> {
    if missing().is_some() {
        return Ok(());
    }
    let dir = tempfile::tempdir()?;
    let rig = Containerd::start(dir.path()).await?;
    let kubelet = KubeletProcess::prepare_on(program, &rig).await?;
    let mut agent = MeasuredAgent::KubeletProcess(kubelet);
    agent.begin().await?;
    of(plan, &agent, &rig, report).await
}

/// Measures an agent that runs on this containerd, without pods.
async fn of(
    plan: &BenchPlan,
    agent: &MeasuredAgent,
    rig: &Containerd,
    report: &mut BenchReport,
) -> Result<()> {
    let column = agent.column();
    fill(agent, rig, plan.many).await?;
    let (_, processor) = memory::at_rest(plan, &agent.processes()?).await?;
    report.put(column, "scrapes-none-cpu", processor);

    let port = agent.read_only_port();
    let (mut looked, mut remembered) = (BTreeMap::new(), Samples::default());
    for _ in 0..plan.starts {
        for path in [SUMMARY, RESOURCE, CADVISOR, METRICS] {
            tokio::time::sleep(FORGOTTEN_AFTER).await;
            let took = ask(port, path).await?;
            looked
                .entry(path)
                .or_insert_with(Samples::default)
                .add(took);
            if path == SUMMARY {
                remembered.add(ask(port, path).await?);
            }
        }
    }
    let median = |path| looked.get(path).map(Samples::median).unwrap_or_default();
    report.put(column, "scrape-summary", median(SUMMARY));
    report.put(column, "scrape-summary-again", remembered.median());
    report.put(column, "scrape-resource", median(RESOURCE));
    report.put(column, "scrape-cadvisor", median(CADVISOR));
    let more = median(CADVISOR) - median(SUMMARY);
    report.put(column, "scrape-cadvisor-more", more);
    report.put(column, "scrape-metrics", median(METRICS));

    let scraper = Scraper::start(port);
    let (memory, processor) = memory::at_rest(&whole_rounds(plan), &agent.processes()?).await?;
    scraper.end().await?;
    report.put(column, "scrapes-cpu", processor);
    report.put(column, "scrapes-pss", memory);
    Ok(())
}

/// Gives an agent so many pods of one container, and waits until containerd runs all.
async fn fill(agent: &MeasuredAgent, rig: &Containerd, count: usize) -> Result<()> {
    let name = |nth| format!("scraped-{nth}");
    let manifests: Vec<_> = (0..count)
        .map(|nth| (name(nth), pods::manifest(&name(nth), 1)))
        .collect();
    agent.drop_manifests(&manifests)?;
    let cri = Cri::over(rig.channel());
    let run = wait_until(START_TIMEOUT, "all containers run", async || {
        cri.running().await.is_ok_and(|found| found.len() >= count)
    });
    run.await
}

/// Whole rounds of scrapes where the figures are judged.
fn whole_rounds(plan: &BenchPlan) -> BenchPlan {
    let idle = match plan.judged {
        true => SCRAPE_INTERVAL * 4,
        false => plan.idle,
    };
    BenchPlan {
        idle,
        ..plan.clone()
    }
}

/// From the request to the whole answer.
async fn ask(port: u16, path: &str) -> Result<Duration> {
    let before = Instant::now();
    let answer = http::get(port, path).await?;
    let took = before.elapsed();
    ensure!(answer.status == 200, "{path}: {}", answer.text());
    Ok(took)
}

/// A monitoring system: all that it wants, in rounds.
struct Scraper(JoinHandle<Result<()>>);

impl Scraper {
    fn start(port: u16) -> Scraper {
        Scraper(tokio::spawn(async move {
            let mut rounds = tokio::time::interval(SCRAPE_INTERVAL);
            loop {
                rounds.tick().await;
                for path in SCRAPED {
                    ask(port, path).await?;
                }
            }
        }))
    }

    /// Ends it.
    ///
    /// # Errors
    /// That of a scrape, which has ended it before.
    async fn end(self) -> Result<()> {
        self.0.abort();
        match self.0.await {
            Ok(ended) => ended,
            // Aborted, as it was told to be.
            Err(_) => Ok(()),
        }
    }
}
