//! `GET /top`: what the agent, its plugins and the pods use.
//!
//! Processes are read at each request, one small file of the kernel's each. Pods have the figures of `/stats/summary`,
//! from the same cache.

use std::path::Path;
use std::time::Duration;

use host::process;
use jiff::Timestamp;
use kernel::error_chain;
use logic_resources::summary::{
    ContainerStats, CpuStats, MemoryStats, NodeStats, PodStats, SummaryScope,
};
use serde::{Deserialize, Serialize};

use super::AdminPeers;
use crate::endpoints::node_api::NodeApi;

/// The kernel's files don't wait for a disk; a machine without memory may still hold them up.
const READ_TIMEOUT: Duration = Duration::from_secs(2);

/// What is used on this node. Bytes; nanocores, of which a whole CPU has 10⁹.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopView {
    /// When the processes were read.
    pub at: Timestamp,
    /// None where nothing could be measured.
    pub node: Option<NodeUsage>,
    /// The agent first, then its plugins.
    pub processes: Vec<ProcessRow>,
    pub pods: Vec<PodUsage>,
    /// Why figures are missing.
    pub missing: Vec<String>,
}

/// The whole machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeUsage {
    pub name: String,
    /// Its CPUs.
    pub cpus: Option<u64>,
    pub nano_cores: Option<u64>,
    pub working_set_bytes: Option<u64>,
    pub available_bytes: Option<u64>,
}

/// The agent or a plugin.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessRow {
    pub name: String,
    /// `agent`, or the plugin's kind.
    pub kind: String,
    /// None for a plugin that the agent does not start, and one that has no process now.
    pub pid: Option<u32>,
    /// In clock ticks after the machine's boot: with the pid it names the process.
    pub began: Option<u64>,
    pub threads: Option<u64>,
    pub cpu_nanoseconds: Option<u64>,
    /// None from the agent; computed from two views by who has them.
    #[serde(default)]
    pub nano_cores: Option<u64>,
    pub rss_bytes: Option<u64>,
}

/// A pod, as `/stats/summary` has it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodUsage {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    /// None before there are two measurements.
    pub nano_cores: Option<u64>,
    pub working_set_bytes: Option<u64>,
    pub rss_bytes: Option<u64>,
    pub containers: Vec<ContainerUsage>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerUsage {
    pub name: String,
    pub nano_cores: Option<u64>,
    pub working_set_bytes: Option<u64>,
    pub rss_bytes: Option<u64>,
}

/// Never fails: what cannot be had is named in [`TopView::missing`].
pub(super) async fn view((peers, api): (&AdminPeers, &NodeApi), age: Duration) -> TopView {
    let mut view = TopView {
        processes: processes(peers).await,
        ..TopView::default()
    };
    let summaries = &api.0.summaries;
    let scope = SummaryScope::CpuAndMemory;
    let mut cpus = None;
    match summaries.summary_within(scope, age).await {
        Ok(summary) => {
            view.node = Some(node(&summary.node));
            view.pods = summary.pods.iter().map(pod).collect();
        }
        Err(error) => view.missing.push(format!("pods: {}", error_chain(&error))),
    }
    let rows = std::mem::take(&mut view.processes);
    // The time of their figures: what comes before may have taken long.
    let read = kernel::spawn_blocking(move || {
        let proc = Path::new("/proc");
        let rows: Vec<ProcessRow> = rows.into_iter().map(|row| measured(proc, row)).collect();
        (rows, process::cpus(proc), kernel::timestamp())
    });
    match tokio::time::timeout(READ_TIMEOUT, read).await {
        Ok(Ok(read)) => (view.processes, cpus, view.at) = read,
        Ok(Err(error)) => view.missing.push(format!("processes: {error}")),
        Err(_) => {
            let seconds = READ_TIMEOUT.as_secs();
            view.missing.push(format!(
                "processes: /proc did not answer within {seconds} s"
            ));
        }
    }
    if let Some(node) = &mut view.node {
        node.cpus = cpus;
    }
    view
}

/// The agent and the plugins, by their hosts; nothing is measured yet.
async fn processes(peers: &AdminPeers) -> Vec<ProcessRow> {
    let agent = ProcessRow {
        name: "oxlet".to_owned(),
        kind: "agent".to_owned(),
        pid: Some(std::process::id()),
        ..ProcessRow::default()
    };
    let hosts = peers.plugins.group.tree().await.children;
    let plugins = hosts.into_iter().map(|host| {
        let text = |key: &str| host.snapshot[key].as_str().unwrap_or_default().to_owned();
        let pid = host.snapshot["pid"].as_u64();
        ProcessRow {
            // A host without a snapshot is at least named.
            name: host.id.clone(),
            kind: text("kind"),
            pid: pid.and_then(|pid| u32::try_from(pid).ok()),
            ..ProcessRow::default()
        }
    });
    std::iter::once(agent).chain(plugins).collect()
}

/// Adds what the process uses now. Blocks.
fn measured(proc: &Path, mut row: ProcessRow) -> ProcessRow {
    if let Some(usage) = row.pid.and_then(|pid| process::usage(proc, pid)) {
        row.began = Some(usage.began);
        row.threads = Some(usage.threads);
        row.cpu_nanoseconds = Some(usage.cpu_nanoseconds);
        row.rss_bytes = Some(usage.resident_bytes);
    }
    row
}

fn node(stats: &NodeStats) -> NodeUsage {
    let memory = stats.memory.as_ref();
    NodeUsage {
        name: stats.node_name.clone(),
        cpus: None,
        nano_cores: nano_cores(stats.cpu.as_ref()),
        working_set_bytes: working_set(memory),
        available_bytes: memory.and_then(|memory| memory.available_bytes),
    }
}

fn pod(stats: &PodStats) -> PodUsage {
    PodUsage {
        namespace: stats.pod_ref.namespace.clone(),
        name: stats.pod_ref.name.clone(),
        uid: stats.pod_ref.uid.clone(),
        nano_cores: nano_cores(stats.cpu.as_ref()),
        working_set_bytes: working_set(stats.memory.as_ref()),
        rss_bytes: rss(stats.memory.as_ref()),
        containers: stats.containers.iter().map(container).collect(),
    }
}

fn container(stats: &ContainerStats) -> ContainerUsage {
    ContainerUsage {
        name: stats.name.clone(),
        nano_cores: nano_cores(stats.cpu.as_ref()),
        working_set_bytes: working_set(stats.memory.as_ref()),
        rss_bytes: rss(stats.memory.as_ref()),
    }
}

fn nano_cores(cpu: Option<&CpuStats>) -> Option<u64> {
    cpu?.usage_nano_cores
}

fn working_set(memory: Option<&MemoryStats>) -> Option<u64> {
    memory?.working_set_bytes
}

fn rss(memory: Option<&MemoryStats>) -> Option<u64> {
    memory?.rss_bytes
}
