//! `bench`: speed and memory as one table. See docs/benchmarks.md.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Result;
use clap::{Parser, ValueEnum};
use integration::bench::{self, Format, Plan};

/// Measures the agent's speed and memory, beside a kubelet where KUBELET_BIN names one.
#[derive(Debug, Parser)]
struct Arguments {
    /// Measures less, in about a minute; its figures are not judged.
    #[arg(long)]
    quick: bool,
    /// Measures only this section: memory, latency, probes, volumes, burst, kernel, containerd, cluster or cluster-containerd.
    #[arg(long)]
    section: Option<String>,
    /// How the figures are shown.
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Output {
    Table,
    Json,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let whole = if arguments.quick {
        Plan::quick()
    } else {
        Plan::whole()
    };
    let plan = Plan {
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
        Output::Table => Format::Table,
        Output::Json => Format::Json,
    };
    std::io::stdout().write_all(report.show(format).as_bytes())?;
    Ok(())
}
