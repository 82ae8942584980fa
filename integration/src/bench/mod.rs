//! Speed and memory, as `make bench` prints them (docs/benchmarks.md).
//!
//! What is measured stands in [`figures`], how much of it in [`BenchPlan`]. Each section starts nodes of its own from
//! the programs beside this one, so a release build measures what ships. Where a kubelet is named, the
//! sections that can be asked of any node agent run on it too, in the same run, on a runtime-fake of its own.

mod agent;
pub mod figures;
mod kubelet;
mod pods;
mod process;
mod report;
mod samples;
mod sections;
mod targets;
mod watch;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;

pub use self::report::{AgentColumn, BenchReport, ReportFormat};

/// The counts and durations of a run.
#[derive(Clone, Debug)]
pub struct BenchPlan {
    /// Whether the figures are compared with their goals: only with the whole counts of a release build.
    pub judged: bool,
    /// Pods of the usual node.
    pub many: usize,
    /// Pods of the large node.
    pub most: usize,
    /// How often the agent's start is measured.
    pub starts: usize,
    /// Manifests dropped one after the other.
    pub drops: usize,
    /// Pods of ten containers, dropped one after the other.
    pub crowds: usize,
    /// Containers killed, each once.
    pub container_kills: usize,
    /// How often a plugin is killed.
    pub plugin_kills: usize,
    /// Pods on a real containerd.
    pub real_pods: usize,
    /// Images pulled, one after the other.
    pub pulls: usize,
    /// Files of 64 KiB in the layer of each.
    pub layer_files: usize,
    /// Pods made in the API at once.
    pub api_crowd: usize,
    /// Pods that eat the node's memory, one after the other.
    pub eaters: usize,
    /// Log lines that a follower reads.
    pub log_lines: usize,
    /// How long a node settles before it is measured.
    pub settle: Duration,
    /// The time over which processor time is counted: what a node does once a minute is in it once.
    pub idle: Duration,
    /// The time over which the API server hears nothing but leases of an idle node, and one report of it.
    pub report: Duration,
    /// The only section to measure; none for all.
    pub section: Option<String>,
    /// The program of a kubelet that is measured too; none measures the agent only.
    pub kubelet: Option<PathBuf>,
}

impl BenchPlan {
    /// Returns the plan behind the figures in docs/benchmarks.md.
    pub fn whole() -> Self {
        Self {
            judged: true,
            many: 110,
            most: 1_000,
            starts: 20,
            drops: 50,
            crowds: 20,
            container_kills: 220,
            plugin_kills: 100,
            real_pods: 10,
            pulls: 5,
            layer_files: 1_024,
            api_crowd: 50,
            eaters: 10,
            log_lines: 10_000,
            settle: Duration::from_secs(5),
            idle: Duration::from_secs(60),
            report: Duration::from_secs(300),
            section: None,
            kubelet: None,
        }
    }

    /// Returns a plan of about a minute.
    pub fn quick() -> Self {
        Self {
            judged: false,
            many: 20,
            most: 100,
            starts: 5,
            drops: 10,
            crowds: 5,
            container_kills: 20,
            plugin_kills: 10,
            real_pods: 3,
            pulls: 3,
            api_crowd: 10,
            eaters: 3,
            log_lines: 1_000,
            settle: Duration::from_secs(1),
            idle: Duration::from_secs(5),
            report: Duration::from_secs(10),
            ..Self::whole()
        }
    }

    /// Returns the least that walks every path.
    pub fn smoke() -> Self {
        Self {
            many: 3,
            most: 4,
            starts: 2,
            drops: 2,
            crowds: 2,
            container_kills: 3,
            plugin_kills: 2,
            real_pods: 1,
            pulls: 1,
            layer_files: 2,
            api_crowd: 2,
            eaters: 1,
            log_lines: 10,
            settle: Duration::from_millis(100),
            idle: Duration::from_millis(200),
            report: Duration::from_millis(200),
            ..Self::quick()
        }
    }

    fn wants(&self, section: &str) -> bool {
        self.section.as_deref().is_none_or(|only| only == section)
    }
}

/// Measures everything that the plan names.
pub async fn run(plan: &BenchPlan) -> Result<BenchReport> {
    let mut report = BenchReport::new(plan);
    for section in figures::SECTIONS {
        if !plan.wants(section) {
            continue;
        }
        report.say(&format!("measuring: {section}"));
        sections::measure(section, plan, &mut report).await?;
    }
    if let Some(program) = &plan.kubelet {
        report.say(&format!("measuring beside: {}", program.display()));
        sections::beside(plan, program, &mut report).await?;
    }
    Ok(report)
}
