//! `docs/metrics.md`, made from the registry.

use std::collections::BTreeMap;
use std::fmt::Write;

use kernel::testing::assert_generated;

use crate::registry::known;

const HEAD: &str = "\
# Metrics

Made from the registry by a test (`actors/metrics/src/reference.rs`); with `OXLET_GENERATE=1` it writes this file anew. Names, labels and
units are upstream's (Kubernetes 1.36), so that dashboards and alerts for the kubelet go on working; those that begin with `oxlet_` are ours.

| path | what |
|---|---|
| `/metrics` | the agent, below; on 10250, and on the read-only port where that is on |
| `/metrics/probes` | results of probes by container |
| `/metrics/slis` | results of the agent's own health checks |
| `/metrics/resource` | CPU and memory of node, pods and containers, for metrics-server |
| `/metrics/cadvisor` | what cAdvisor tells of containers and machine, with its names and labels |

The last two show what the machine and its pods have, family by family as upstream's. `nodes/metrics` is the resource that a reader needs to
be allowed; `kubectl get --raw /api/v1/nodes/NODE/proxy/metrics` is the shortest way to look.

## To watch

| what | when it is not well |
|---|---|
| `kubelet_node_name` | is not there: the agent does not run, or is not reached |
| `kubelet_pleg_last_seen_seconds` | is older than three minutes: the runtime does not answer, and the node turns not ready |
| `kubelet_runtime_operations_errors_total` | grows: the runtime refuses; `oxctl why POD` says what |
| `kubelet_pod_start_sli_duration_seconds` | pods are slow to start, pulls of images not counted |
| `kubelet_evictions` | grows: the node runs out of memory, disk or process ids |
| `kubelet_certificate_manager_client_ttl_seconds` | is less than a tenth of the certificate's life: it is not renewed |
| `storage_operation_duration_seconds` | volumes are slow; `oxctl volumes` names what hangs |
";

/// A metric as the reference shows it.
#[derive(Debug)]
struct Row {
    kind: String,
    labels: Vec<String>,
    help: String,
}

/// What a text of metrics says of each family that has a sample.
fn rows(text: &str) -> BTreeMap<String, Row> {
    let mut rows: BTreeMap<String, Row> = BTreeMap::new();
    let mut help = String::new();
    let mut last = String::new();
    for line in text.lines() {
        if let Some(head) = line.strip_prefix("# HELP ") {
            head.split_once(' ').unwrap().1.clone_into(&mut help);
        } else if let Some(head) = line.strip_prefix("# TYPE ") {
            let (name, kind) = head.split_once(' ').unwrap();
            name.clone_into(&mut last);
            let row = Row {
                kind: kind.to_owned(),
                labels: Vec::new(),
                help: help.clone(),
            };
            rows.insert(name.to_owned(), row);
        } else if let Some((_, labels)) = line.split_once('{') {
            let (labels, _) = labels.rsplit_once('}').unwrap();
            let labels = labels
                .split("\",")
                .filter_map(|label| label.split_once('='));
            let row = rows.get_mut(&last).unwrap();
            row.labels = labels.map(|(label, _)| label.to_owned()).collect();
        }
    }
    rows
}

/// Every metric of the registries, and of those that are made at a scrape.
fn all() -> BTreeMap<String, Row> {
    crate::component::features([("NodeSwap", "", true)]);
    crate::slis::reset();
    let made = crate::component::text() + &crate::process::text();
    drop((crate::text(), crate::probes(), crate::slis::text()));
    let mut rows = rows(&made);
    let (heads, labels) = (known::HEADS.lock().unwrap(), known::LABELS.lock().unwrap());
    for (name, (kind, help)) in heads.iter() {
        let row = Row {
            kind: (*kind).to_owned(),
            labels: labels[name].clone(),
            help: help.clone(),
        };
        rows.insert(name.clone(), row);
    }
    rows
}

/// The stability that a help begins with, empty for what is not upstream's, and the help without it.
fn stability(help: &str) -> (&str, &str) {
    let word = help
        .strip_prefix('[')
        .and_then(|rest| rest.split_once("] "));
    word.unwrap_or(("", help))
}

fn page(rows: &BTreeMap<String, Row>) -> String {
    let mut page = String::from(HEAD);
    page.push_str("\n## All of them\n\n| metric | type | labels | stability | what |\n|---|---|---|---|---|\n");
    for (name, row) in rows {
        let (stability, help) = stability(&row.help);
        let labels = row.labels.iter().map(|label| format!("`{label}`"));
        let labels = labels.collect::<Vec<_>>().join(", ");
        let help = help.replace('|', "\\|");
        writeln!(
            page,
            "| `{name}` | {} | {labels} | {} | {help} |",
            row.kind,
            stability.to_lowercase()
        )
        .unwrap();
    }
    page
}

#[test]
fn the_reference_has_each_metric_with_its_labels() {
    let rows = all();
    let page = page(&rows);
    for line in [
        "| `kubelet_evictions` | counter | `eviction_signal` | alpha |",
        "| `prober_probe_total` | counter | `probe_type`, `result`, `container`, `pod`, `namespace`, `pod_uid` | beta |",
        "| `kubernetes_healthcheck` | gauge | `name`, `type` | stable |",
        "| `kubernetes_feature_enabled` | gauge | `name`, `stage` | beta |",
        "| `process_open_fds` | gauge |  |  |",
    ] {
        assert!(page.contains(line), "{line}");
    }
    let named = HEAD
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    for (name, _) in named.filter(|(name, _)| !name.starts_with('/')) {
        assert!(rows.contains_key(name), "{name}");
    }
    assert_generated("docs/metrics.md", &page);
}
