//! Pods that eat the node's memory faster than anything looks: whether they are evicted before the kernel kills.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::sysinfo::sysinfo;
use serde_json::{Value, json};

use crate::agent::Node;
use crate::bench::{AgentColumn, BenchPlan, BenchReport};
use crate::cluster::{Cluster, condition};
use crate::containerd::{Containerd, missing};
use crate::images::BUSYBOX_IMAGE;

const CONVERGENCE_TIMEOUT: Duration = Duration::from_secs(90);
/// What is left to pods of the machine's memory, in bytes.
const LEFT: u64 = 512 << 20;
/// Eats 64 MiB sixteen times a second: a `dd` holds what it has read while the reader of its pipe sleeps. It ends at once
/// when it is asked to.
const EAT: &str = "trap 'exit 0' TERM; while true; do dd if=/dev/zero bs=64M count=1 2>/dev/null | sleep 1000 & \
                   sleep 0.0625 & wait $!; done";

pub(super) async fn measure(plan: &BenchPlan, report: &mut BenchReport) -> Result<()> {
    if let Some(why) = missing() {
        report.note(&format!("eviction not measured: {why}"));
        return Ok(());
    }
    let dir = tempfile::tempdir()?;
    let rig = Containerd::start(dir.path()).await?;
    let reserved = sysinfo()?.ram_total().saturating_sub(LEFT);
    let config = json!({
        "cgroupRoot": rig.cgroup(),
        "systemReserved": { "memory": reserved.to_string() },
        // The kubelet's own.
        "evictionHard": { "memory.available": "100Mi" },
        "evictionPressureTransitionPeriod": "1s",
        "kernelMemcgNotification": true,
    });
    let cluster = Cluster::start(Node::builder().runtime(&rig).config(&config)).await?;
    cluster.until_ready(CONVERGENCE_TIMEOUT).await?;
    let mut lost = 0;
    for nth in 0..plan.eaters {
        let before = kernel_kills()?;
        let name = format!("eater-{nth}");
        cluster.apply(&eater(&name))?;
        let has_ended = |pod: &Value| pod["status"]["phase"] == "Failed";
        cluster
            .until_pod(&name, CONVERGENCE_TIMEOUT, has_ended)
            .await?;
        lost += usize::from(kernel_kills()? > before);
        let is_over = |node: &Value| condition(node, "MemoryPressure") == Some("False");
        cluster
            .until("/api/v1/nodes/node", CONVERGENCE_TIMEOUT, is_over)
            .await?;
    }
    report.count(AgentColumn::Oxlet, "eaters-lost", lost);
    Ok(())
}

fn eater(name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name },
        "spec": {
            "nodeName": "node",
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "containers": [{ "name": "app", "image": BUSYBOX_IMAGE, "command": ["sh", "-c", EAT] }],
        },
    })
}

/// Processes that the kernel has killed for memory since the machine's start.
fn kernel_kills() -> Result<u64> {
    let text = fs::read_to_string("/proc/vmstat")?;
    let line = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
    Ok(line
        .context("no oom_kill in /proc/vmstat")?
        .trim()
        .parse()?)
}
