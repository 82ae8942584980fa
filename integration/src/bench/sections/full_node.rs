//! Very many pods on the native runtime: what a pod's start costs on an empty node, and what on a full one.
//!
//! A node that reads the mount table, or lists its pods, once for each pod that it starts takes longer with every pod that
//! runs. On a machine that does other things as well the time varies; the node's own processor time shows it.

use std::process::Command;
use std::time::Duration;

use anyhow::Result;
use serde_json::json;
use tokio::time::Instant;

use super::memory;
use super::runtimes::processes;
use crate::agent::{Node, Runtime};
use crate::bench::agent::MeasuredAgent;
use crate::bench::{AgentColumn, BenchPlan, BenchReport, pods, process};
use crate::images::{BUSYBOX_IMAGE, Image};
use crate::wait_until;

const CONVERGENCE_TIMEOUT: Duration = Duration::from_secs(300);
/// Below a bridge's bound of ports, with addresses that no other rig's network has.
const SUBNET: &str = "10.63.0.0/21";

pub(super) async fn measure(plan: &BenchPlan, report: &mut BenchReport) -> Result<()> {
    let dir = tempfile::tempdir()?;
    let bridge = Bridge(format!("oxb{}", std::process::id()));
    std::fs::create_dir(dir.path().join("cni"))?;
    std::fs::write(dir.path().join("cni/bench.conflist"), bridge.network(&dir))?;
    let archive = dir.path().join("busybox.tar");
    Image::busybox(BUSYBOX_IMAGE).build()?.save(&archive)?;
    let node = Node::builder()
        .runtime(Runtime::Native(json!({ "import": [archive] })))
        .network_by(
            "network-native",
            &json!({ "confDir": dir.path().join("cni"), "binDirs": ["/usr/lib/cni"] }),
        )
        .config(&json!({ "maxPods": plan.most }))
        .start()
        .await?;
    let agent = MeasuredAgent::Oxlet(Box::new(node));
    let mut put = |key, value| report.put(AgentColumn::Oxlet, key, value);

    let (_, few) = start(&agent, "few", plan.many).await?;
    let per_pod = |used: Duration, pods: usize| millis(used) / count(pods);
    put("full-start-first", per_pod(few, plan.many));
    remove(&agent, "few", plan.many, 0).await?;

    let (took, used) = start(&agent, "all", plan.most).await?;
    put("full-running", millis(took));
    put("full-start-all", per_pod(used, plan.most));
    tokio::time::sleep(plan.settle).await;
    let (pss, processor) = memory::at_rest(plan, &of_node(&agent)?).await?;
    put("full-pss", pss);
    put("full-cpu", processor);

    remove(
        &agent,
        "all",
        plan.many,
        plan.most - plan.many.min(plan.most),
    )
    .await?;
    let (_, last) = start(&agent, "last", plan.many).await?;
    put("full-start-last", per_pod(last, plan.many));
    put(
        "full-start-growth",
        millis(last) / millis(few).max(f64::EPSILON),
    );
    Ok(())
}

/// Starts so many pods at once; how long that took until the last container's start, and the node's processor time.
async fn start(agent: &MeasuredAgent, prefix: &str, pods: usize) -> Result<(Duration, Duration)> {
    // Events, not lists: a list of a thousand containers would cost what is measured.
    let mut watch = agent.watch().await?;
    let name = |nth| format!("{prefix}-{nth}");
    let manifests: Vec<_> = (0..pods)
        .map(|nth| (name(nth), pods::manifest(&name(nth), 1)))
        .collect();
    let used = process::processor_time_of_all(&of_node(agent)?)?;
    let before = Instant::now();
    agent.drop_manifests(&manifests)?;
    watch.started(pods, CONVERGENCE_TIMEOUT).await?;
    let took = before.elapsed();
    Ok((
        took,
        process::processor_time_of_all(&of_node(agent)?)?.saturating_sub(used),
    ))
}

/// Removes pods, and waits until nothing of them is left but `left` others.
async fn remove(agent: &MeasuredAgent, prefix: &str, pods: usize, left: usize) -> Result<()> {
    for nth in 0..pods {
        agent.remove_manifest(&format!("{prefix}-{nth}"))?;
    }
    let cri = agent.cri().await?;
    wait_until(CONVERGENCE_TIMEOUT, "the pods are gone", async || {
        let sandboxes = cri.sandboxes().await;
        sandboxes.is_ok_and(|sandboxes| sandboxes.len() <= left)
    })
    .await
}

/// The agent, its plugins, and the monitors.
fn of_node(agent: &MeasuredAgent) -> Result<Vec<u32>> {
    match agent {
        MeasuredAgent::Oxlet(node) => processes(node, &[node.root()]),
        MeasuredAgent::KubeletProcess(_) => agent.processes(),
    }
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1_000.0
}

fn count(pods: usize) -> f64 {
    f64::from(u32::try_from(pods.max(1)).unwrap_or(u32::MAX))
}

/// The bridge of the pods' network, which is deleted with this.
struct Bridge(String);

impl Bridge {
    fn network(&self, dir: &tempfile::TempDir) -> String {
        json!({
            "cniVersion": "1.0.0",
            "name": self.0,
            "plugins": [{
                "type": "bridge",
                "bridge": self.0,
                "isGateway": true,
                "ipMasq": true,
                "ipMasqBackend": "nftables",
                "ipam": {
                    "type": "host-local",
                    "dataDir": dir.path().join("addresses"),
                    "ranges": [[{ "subnet": SUBNET }]],
                    "routes": [{ "dst": "0.0.0.0/0" }],
                },
            }, { "type": "portmap", "capabilities": { "portMappings": true } }],
        })
        .to_string()
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        // It is not there if no pod was started.
        drop(
            Command::new("ip")
                .args(["link", "delete", &self.0])
                .output(),
        );
    }
}
