//! Volumes: what they add to a pod's start, how soon a change is seen in all pods, and what they cost.
//!
//! Each pod has a configMap, a secret, an emptyDir and a projected token.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;
use tokio::time::Instant;

use super::memory;
use crate::agent::Node;
use crate::bench::agent::MeasuredAgent;
use crate::bench::samples::Samples;
use crate::bench::{AgentColumn, BenchPlan, BenchReport, pods, process};
use crate::wait_until;

const CONVERGENCE_TIMEOUT: Duration = Duration::from_secs(60);
/// Between two looks at the pods' files: what a change may seem to take longer than it did.
const POLL_INTERVAL: Duration = Duration::from_millis(2);
const CONFIG_MAP: &str = "config.yaml";

/// Measures our agent.
pub(super) async fn measure(plan: &BenchPlan, report: &mut BenchReport) -> Result<()> {
    let builder = Node::builder()
        .object(CONFIG_MAP, &config_map("first"))
        .object("secret.yaml", SECRET)
        .object("token.yaml", TOKEN);
    let mut agent = MeasuredAgent::Oxlet(Box::new(builder.start().await?));
    starts(plan, &agent, report).await?;
    change(plan, &agent, report).await?;
    let (memory, processor) = memory::at_rest(plan, &agent.processes()?).await?;
    report.put(AgentColumn::Oxlet, "volumes-pss", memory);
    report.put(AgentColumn::Oxlet, "volumes-cpu", processor);
    let plugins = process::memory(&agent.storage()?)?;
    report.put(AgentColumn::Oxlet, "volumes-plugins", plugins);
    reconstruction(plan, &mut agent, report).await
}

/// Pods with and without volumes alternately: what one takes longer than the median without is the volumes' share.
async fn starts(plan: &BenchPlan, agent: &MeasuredAgent, report: &mut BenchReport) -> Result<()> {
    let mut watch = agent.watch().await?;
    let (mut plain, mut mounted) = (Samples::default(), Vec::new());
    for nth in 0..plan.many {
        let name = format!("plain-{nth}");
        let before = agent.drop_manifest(&name, &pods::manifest(&name, 1))?;
        plain.add_nanos(watch.started(1, CONVERGENCE_TIMEOUT).await?.at - before);
        agent.remove_manifest(&name)?;
        watch.ended(CONVERGENCE_TIMEOUT, &name).await?;

        let name = name_of(nth);
        let before = agent.drop_manifest(&name, &pods::with_volumes(&name))?;
        mounted.push(watch.started(1, CONVERGENCE_TIMEOUT).await?.at - before);
    }
    let mut share = Samples::default();
    for took in mounted {
        share.add_nanos(took);
    }
    report.put(
        AgentColumn::Oxlet,
        "volumes-share-median",
        share.median() - plain.median(),
    );
    report.put(
        AgentColumn::Oxlet,
        "volumes-share-p99",
        share.p99() - plain.median(),
    );
    Ok(())
}

/// From the manifest's rename to the last pod's file with the new content.
async fn change(plan: &BenchPlan, agent: &MeasuredAgent, report: &mut BenchReport) -> Result<()> {
    let MeasuredAgent::Oxlet(node) = agent else {
        return Ok(());
    };
    let files = files(node, "config", "key")?;
    anyhow::ensure!(files.len() == plan.many, "{} configMaps", files.len());
    let mut took = Samples::default();
    for text in ["second", "third", "fourth"] {
        let before = Instant::now();
        node.drop_object(CONFIG_MAP, &config_map(text))?;
        seen(&files, text).await?;
        took.add(before.elapsed());
    }
    report.put(AgentColumn::Oxlet, "volumes-change", took.most());
    Ok(())
}

async fn seen(files: &[PathBuf], text: &str) -> Result<()> {
    let all = async {
        for file in files {
            while fs::read_to_string(file).ok().as_deref() != Some(text) {
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        }
    };
    let all = tokio::time::timeout(CONVERGENCE_TIMEOUT, all).await;
    all.with_context(|| format!("not every pod has {text:?}"))
}

/// From the start of the agent's process to the moment at which it knows every volume again.
async fn reconstruction(
    plan: &BenchPlan,
    agent: &mut MeasuredAgent,
    report: &mut BenchReport,
) -> Result<()> {
    let files = match agent {
        MeasuredAgent::Oxlet(node) => files(node, "token", "token")?,
        MeasuredAgent::KubeletProcess(_) => return Ok(()),
    };
    let before = versions(&files)?;
    agent.end().await?;
    let began = Instant::now();
    agent.begin().await?;
    let MeasuredAgent::Oxlet(node) = agent else {
        return Ok(());
    };
    let wanted = plan.many * 4;
    wait_until(
        CONVERGENCE_TIMEOUT,
        "every volume is known again",
        async || {
            let view = node.admin("/volumes").await;
            view.is_ok_and(|view| mounted(&view) == wanted)
        },
    )
    .await?;
    let mut took = Samples::default();
    took.add(began.elapsed());
    report.put(AgentColumn::Oxlet, "volumes-reconstruct", took.most());
    let rewritten = before.iter().zip(versions(&files)?);
    let rewritten = rewritten
        .filter(|(before, after)| **before != *after)
        .count();
    report.count(AgentColumn::Oxlet, "volumes-rewritten", rewritten);
    Ok(())
}

fn mounted(view: &Value) -> usize {
    let rows = view["volumes"].as_array().into_iter().flatten();
    rows.filter(|row| row["state"] == "Mounted").count()
}

/// Where each file really lies: a rewritten volume has another folder.
fn versions(files: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let real = |file: &PathBuf| fs::canonicalize(file).context("a file is gone");
    files.iter().map(real).collect()
}

/// This file of this volume of every pod that has it.
fn files(node: &Node, volume: &str, file: &str) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for pod in fs::read_dir(node.root().join("pods"))? {
        let kinds = pod?.path().join("volumes");
        let Ok(kinds) = fs::read_dir(kinds) else {
            continue;
        };
        for kind in kinds {
            let path: PathBuf = kind?.path().join(volume).join(file);
            if Path::new(&path).exists() {
                found.push(path);
            }
        }
    }
    Ok(found)
}

fn name_of(nth: usize) -> String {
    format!("volumes-{nth}")
}

fn config_map(text: &str) -> String {
    format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: config, namespace: default}}\ndata: {{key: {text}}}\n"
    )
}

const SECRET: &str = "apiVersion: v1\nkind: Secret\nmetadata: {name: secret, namespace: default}\nstringData: {key: hidden}\n";

/// Good for longer than any run.
const TOKEN: &str = "apiVersion: authentication.k8s.io/v1\nkind: TokenRequest\n\
    metadata: {name: default, namespace: default}\nspec: {audiences: [bench]}\n\
    status: {token: a.b.c, expirationTimestamp: \"2099-01-01T00:00:00Z\"}\n";
