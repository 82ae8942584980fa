//! metrics.k8s.io, for `kubectl top`: what the kubelets' /metrics/resource says, looked at twice for the CPU.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::join_all;
use http::{Request, header};
use http_body_util::{BodyExt as _, Limited};
use serde_json::{Value, json};

use super::{kubelet, location};
use crate::clock;
use crate::endpoints::answer::StatusError;
use crate::endpoints::request_info::RequestInfo;
use crate::kinds::core;
use crate::server::state::State;

/// Between the two looks.
const WINDOW: Duration = Duration::from_secs(1);
const LARGEST: usize = 8 * 1024 * 1024;

/// Whose figure it is: nothing for the node; else namespace, pod and container.
type ContainerKey = (String, String, String);

/// CPU seconds used so far, and bytes of memory.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct CumulativeUsage {
    cpu: f64,
    memory: f64,
}

type UsageByContainer = BTreeMap<ContainerKey, CumulativeUsage>;

pub(super) async fn answer(state: &State, call: &RequestInfo) -> Result<(u16, Value), StatusError> {
    let nodes = state.store().list(core("nodes"), "");
    let names: Vec<String> = nodes
        .iter()
        .filter_map(|node| node["metadata"]["name"].as_str())
        .map(str::to_string)
        .collect();
    let looks = join_all(names.iter().map(|node| sample_twice(state, node))).await;
    let measured: Vec<(&String, (UsageByContainer, UsageByContainer))> = names
        .iter()
        .zip(looks)
        .filter_map(|(node, look)| Some((node, look?)))
        .collect();
    let items: Vec<Value> = if call.resource.plural == "nodes" {
        measured
            .iter()
            .filter_map(|(node, looks)| node_metrics(node, looks))
            .collect()
    } else {
        measured
            .iter()
            .flat_map(|(_, looks)| pod_metrics(looks))
            .filter(|item| {
                call.namespace().is_empty() || item["metadata"]["namespace"] == call.namespace()
            })
            .collect()
    };
    let Some(name) = &call.name else {
        let list = json!({"kind": call.resource.list_kind(), "apiVersion": call.resource.api_version(), "metadata": {}, "items": items});
        return Ok((200, list));
    };
    let one = items
        .into_iter()
        .find(|item| item["metadata"]["name"] == name.as_str());
    one.map(|one| (200, one))
        .ok_or_else(|| StatusError::not_found(call.resource, name))
}

async fn sample_twice(state: &State, node: &str) -> Option<(UsageByContainer, UsageByContainer)> {
    let first = sample(state, node).await?;
    tokio::time::sleep(WINDOW).await;
    Some((first, sample(state, node).await?))
}

async fn sample(state: &State, node: &str) -> Option<UsageByContainer> {
    let place = location::kubelet(state, node, "/metrics/resource".to_string()).ok()?;
    let request = Request::builder()
        .uri(&place.path)
        .header(header::HOST, place.host())
        .body(crate::endpoints::answer::full(""))
        .ok()?;
    let answer = kubelet::ask(state, &place, request)
        .await
        .ok()
        .filter(|answer| answer.status().is_success())?;
    let body = Limited::new(answer.into_body(), LARGEST)
        .collect()
        .await
        .ok()?
        .to_bytes();
    Some(parse(&String::from_utf8_lossy(&body)))
}

fn parse(text: &str) -> UsageByContainer {
    let mut uses = UsageByContainer::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (name, rest) = line.split_at(line.find(['{', ' ']).unwrap_or(line.len()));
        let (labels, values) = rest
            .strip_prefix('{')
            .and_then(|rest| rest.split_once('}'))
            .unwrap_or(("", rest));
        let Some(value) = values
            .split_whitespace()
            .next()
            .and_then(|value| value.parse::<f64>().ok())
        else {
            continue;
        };
        let label = |name: &str| {
            let found = labels
                .split(',')
                .filter_map(|label| label.split_once('='))
                .find(|(key, _)| *key == name);
            found
                .map(|(_, value)| value.trim_matches('"').to_string())
                .unwrap_or_default()
        };
        let owner = (label("namespace"), label("pod"), label("container"));
        match name {
            "node_cpu_usage_seconds_total" | "container_cpu_usage_seconds_total" => {
                uses.entry(owner).or_default().cpu = value
            }
            "node_memory_working_set_bytes" | "container_memory_working_set_bytes" => {
                uses.entry(owner).or_default().memory = value
            }
            _ => {}
        }
    }
    uses
}

fn usage(
    (first, second): &(UsageByContainer, UsageByContainer),
    owner: &ContainerKey,
) -> Option<Value> {
    let now = second.get(owner)?;
    let before = first.get(owner).unwrap_or(now);
    let cores = (now.cpu - before.cpu).max(0.0) / WINDOW.as_secs_f64();
    Some(
        json!({"cpu": format!("{:.0}n", cores * 1e9), "memory": format!("{:.0}Ki", now.memory / 1024.0)}),
    )
}

fn node_metrics(node: &str, looks: &(UsageByContainer, UsageByContainer)) -> Option<Value> {
    let usage = usage(looks, &ContainerKey::default())?;
    Some(
        json!({"kind": "NodeMetrics", "apiVersion": "metrics.k8s.io/v1beta1", "metadata": {"name": node, "creationTimestamp": clock::now_text()},
        "timestamp": clock::now_text(), "window": "1s", "usage": usage}),
    )
}

fn pod_metrics(looks: &(UsageByContainer, UsageByContainer)) -> Vec<Value> {
    let mut pods: BTreeMap<(&String, &String), Vec<Value>> = BTreeMap::new();
    for owner @ (namespace, pod, container) in looks.1.keys().filter(|(_, pod, _)| !pod.is_empty())
    {
        if let Some(usage) = usage(looks, owner) {
            pods.entry((namespace, pod))
                .or_default()
                .push(json!({"name": container, "usage": usage}));
        }
    }
    let one = |((namespace, pod), containers): ((&String, &String), Vec<Value>)| {
        json!({"kind": "PodMetrics", "apiVersion": "metrics.k8s.io/v1beta1",
            "metadata": {"name": pod, "namespace": namespace, "creationTimestamp": clock::now_text()},
            "timestamp": clock::now_text(), "window": "1s", "containers": containers})
    };
    pods.into_iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_read_from_the_kubelets_text() {
        let text = "# HELP x\nnode_cpu_usage_seconds_total 12.5 1700000000000\nnode_memory_working_set_bytes 2048\n\
            container_cpu_usage_seconds_total{container=\"c\",namespace=\"d\",pod=\"p\"} 1 1700000000000\n\
            container_memory_working_set_bytes{container=\"c\",namespace=\"d\",pod=\"p\"} 4096 1\nother 7\n";
        let first = parse(text);
        let second = parse(&text.replace("12.5", "12.75").replace("} 1 1", "} 1.5 1"));
        let looks = (first, second);
        assert_eq!(
            node_metrics("n", &looks).unwrap()["usage"],
            json!({"cpu": "250000000n", "memory": "2Ki"})
        );
        let pods = pod_metrics(&looks);
        assert_eq!(pods.len(), 1);
        assert_eq!(
            pods[0]["containers"][0],
            json!({"name": "c", "usage": {"cpu": "500000000n", "memory": "4Ki"}})
        );
    }
}
