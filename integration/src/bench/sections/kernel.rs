//! The kernel alone, by its own bench: `cargo build --release --package kernel --example bench`.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::agent::program;
use crate::bench::{AgentColumn, BenchReport};

/// Its names for what is measured, and ours.
const NAMES: [(&str, &str); 5] = [
    ("tells_per_second", "tells"),
    ("ask_p50_ns", "ask-median"),
    ("ask_p99_ns", "ask-p99"),
    ("bytes_per_idle_actor", "actor-bytes"),
    ("cpu_percent_1000_idle_actors", "actor-cpu"),
];

pub(super) async fn measure(report: &mut BenchReport) -> Result<()> {
    let Ok(bench) = program("examples/bench") else {
        report.note("the kernel's own bench is not built: cargo build --release --package kernel --example bench");
        return Ok(());
    };
    let output = tokio::process::Command::new(&bench).output().await;
    let output = output.with_context(|| format!("cannot run {}", bench.display()))?;
    ensure!(
        output.status.success(),
        "the kernel's bench: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let found: Value =
        serde_json::from_slice(&output.stdout).context("the kernel's bench prints no JSON")?;
    for (theirs, ours) in NAMES {
        let value = found[theirs]
            .as_f64()
            .with_context(|| format!("the kernel's bench does not tell {theirs}"))?;
        report.put(AgentColumn::Oxlet, ours, value);
    }
    Ok(())
}
