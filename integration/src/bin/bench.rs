//! `bench`: speed and memory as one table. See docs/benchmarks.md.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Result;
use clap::{Parser, ValueEnum};
use integration::bench::{self, BenchPlan, ReportFormat};

/// Measures the agent's speed and memory, beside a kubelet where KUBELET_BIN names one.
#[derive(Debug, Parser)]
struct BenchArguments {
    /// Measures less, in about a minute; its figures are not judged.
    #[arg(long)]
    quick: bool,
    /// Measures only this section: memory, latency, probes, volumes, burst, kernel, placement, containerd,
    /// cluster, cluster-containerd, scrapes, eviction, runtimes or full-node.
    #[arg(long)]
    section: Option<String>,
    /// How the figures are shown.
    #[arg(short, long, value_enum, default_value_t = BenchOutput::Table)]
    output: BenchOutput,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum BenchOutput {
    Table,
    Json,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let arguments = BenchArguments::parse();
    let whole = if arguments.quick {
        BenchPlan::quick()
    } else {
        BenchPlan::whole()
    };
    let plan = BenchPlan {
        // A debug build says nothing about what ships.
        judged: whole.judged && !cfg!(debug_assertions),
        section: arguments.section,
        kubelet: std::env::var_os("KUBELET_BIN")
            .filter(|name| !name.is_empty())
            .map(PathBuf::from),
        ..whole
    };
    let report = bench::run(&plan).await?;
    let format = match arguments.output {
        BenchOutput::Table => ReportFormat::Table,
        BenchOutput::Json => ReportFormat::Json,
    };
    std::io::stdout().write_all(report.show(format).as_bytes())?;
    Ok(())
}
