//! The tables of `oxctl top`, with the columns of `kubectl top`.

use agent::endpoints::admin::{NodeUsage, PodUsage, TopView};

use super::PodRows;
use crate::table::TextTable;

/// Three tables: the node, the agent with its plugins, the pods; below them what is missing.
pub(super) fn text(view: &TopView, rows: PodRows) -> String {
    let mut parts: Vec<String> = Vec::new();
    if let Some(usage) = &view.node {
        parts.push(node(usage));
    }
    parts.push(processes(view));
    if !view.pods.is_empty() {
        parts.push(match rows {
            PodRows::Pods => pods(&view.pods),
            PodRows::Containers => containers(&view.pods),
        });
    }
    let missing = view.missing.iter().map(|why| format!("missing: {why}\n"));
    parts.extend(Some(missing.collect::<String>()).filter(|text| !text.is_empty()));
    parts.join("\n")
}

fn node(usage: &NodeUsage) -> String {
    let mut table = TextTable::new(&["NODE", "CPU(cores)", "CPU(%)", "MEMORY(bytes)", "MEMORY(%)"]);
    let cores = usage.cpus.map(|cpus| cpus.saturating_mul(1_000_000_000));
    let memory = usage.working_set_bytes;
    let total = memory
        .zip(usage.available_bytes)
        .map(|(used, available)| used.saturating_add(available));
    table.row([
        usage.name.clone(),
        cpu(usage.nano_cores),
        percent(usage.nano_cores, cores),
        bytes(memory),
        percent(memory, total),
    ]);
    table.take()
}

fn processes(view: &TopView) -> String {
    let mut table = TextTable::new(&["NAME", "KIND", "PID", "THREADS", "CPU(cores)", "RSS(bytes)"]);
    for row in &view.processes {
        table.row([
            row.name.clone(),
            row.kind.clone(),
            row.pid.map(|pid| pid.to_string()).unwrap_or_default(),
            row.threads
                .map(|threads| threads.to_string())
                .unwrap_or_default(),
            cpu(row.nano_cores),
            bytes(row.rss_bytes),
        ]);
    }
    table.take()
}

fn pods(pods: &[PodUsage]) -> String {
    let mut table = TextTable::new(&[
        "NAMESPACE",
        "NAME",
        "CPU(cores)",
        "MEMORY(bytes)",
        "RSS(bytes)",
    ]);
    for pod in pods {
        table.row([
            pod.namespace.clone(),
            pod.name.clone(),
            cpu(pod.nano_cores),
            bytes(pod.working_set_bytes),
            bytes(pod.rss_bytes),
        ]);
    }
    table.take()
}

fn containers(pods: &[PodUsage]) -> String {
    let mut table = TextTable::new(&[
        "NAMESPACE",
        "POD",
        "NAME",
        "CPU(cores)",
        "MEMORY(bytes)",
        "RSS(bytes)",
    ]);
    for pod in pods {
        for container in &pod.containers {
            table.row([
                pod.namespace.clone(),
                pod.name.clone(),
                container.name.clone(),
                cpu(container.nano_cores),
                bytes(container.working_set_bytes),
                bytes(container.rss_bytes),
            ]);
        }
    }
    table.take()
}

/// Thousandths of a CPU, rounded up as kubectl does.
fn cpu(nano_cores: Option<u64>) -> String {
    nano_cores
        .map(|nano_cores| format!("{}m", nano_cores.div_ceil(1_000_000)))
        .unwrap_or_default()
}

/// Whole mebibytes, as kubectl shows them.
fn bytes(bytes: Option<u64>) -> String {
    bytes
        .map(|bytes| format!("{}Mi", bytes >> 20))
        .unwrap_or_default()
}

fn percent(used: Option<u64>, of: Option<u64>) -> String {
    let percent = |(used, of): (u64, u64)| {
        let percent = (u128::from(used) * 100).checked_div(u128::from(of))?;
        Some(format!("{percent}%"))
    };
    used.zip(of).and_then(percent).unwrap_or_default()
}
