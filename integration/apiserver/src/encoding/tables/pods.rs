//! The table of pods: upstream's `printPod`.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{TableColumn, age, age_of, text_or};
use crate::clock;

pub(super) const COLUMNS: &[TableColumn] = &[
    TableColumn("Name", "string", 0),
    TableColumn("Ready", "string", 0),
    TableColumn("Status", "string", 0),
    TableColumn("Restarts", "string", 0),
    TableColumn("Age", "string", 0),
    TableColumn("IP", "string", 1),
    TableColumn("Node", "string", 1),
    TableColumn("Nominated Node", "string", 1),
    TableColumn("Readiness Gates", "string", 1),
];

pub(super) fn cells(pod: &Value, now: Timestamp) -> Vec<Value> {
    let summary = ContainersSummary::of(pod);
    let address = text_or(
        pod,
        "/status/podIPs/0/ip",
        &text_or(pod, "/status/podIP", "<none>"),
    );
    vec![
        pod["metadata"]["name"].clone(),
        json!(format!("{}/{}", summary.ready, summary.total)),
        json!(summary.reason),
        json!(summary.restarts_text(now)),
        age_of(pod, now),
        json!(address),
        json!(text_or(pod, "/spec/nodeName", "<none>")),
        json!(text_or(pod, "/status/nominatedNodeName", "<none>")),
        json!(gates(pod)),
    ]
}

/// What the containers of a pod add up to.
#[derive(Default)]
struct ContainersSummary {
    ready: usize,
    total: usize,
    reason: String,
    restarts: i64,
    last_restart: Option<Timestamp>,
}

impl ContainersSummary {
    fn of(pod: &Value) -> ContainersSummary {
        let mut summary = ContainersSummary {
            total: items(&pod["spec"]["containers"]).len(),
            reason: text_or(pod, "/status/phase", ""),
            ..ContainersSummary::default()
        };
        summary.reason = text_or(pod, "/status/reason", &summary.reason);
        if items(&pod["status"]["conditions"]).iter().any(|condition| {
            condition["type"] == "PodScheduled" && condition["reason"] == "SchedulingGated"
        }) {
            summary.reason = "SchedulingGated".to_string();
        }
        summary.total += items(&pod["spec"]["initContainers"])
            .iter()
            .filter(|container| is_sidecar(container))
            .count();
        let (initializing, sidecars) = summary.initialization(pod);
        if !initializing || holds(pod, "Initialized") {
            summary.containers(pod, sidecars);
        }
        if !pod["metadata"]["deletionTimestamp"].is_null() {
            if pod["status"]["reason"] == "NodeLost" {
                summary.reason = "Unknown".to_string();
            } else if !matches!(
                pod["status"]["phase"].as_str(),
                Some("Succeeded" | "Failed")
            ) {
                summary.reason = "Terminating".to_string();
            }
        }
        summary
    }

    /// Looks at the init containers; says whether one is still at work, and how often sidecars were restarted.
    fn initialization(&mut self, pod: &Value) -> (bool, i64) {
        let specs = items(&pod["spec"]["initContainers"]);
        let mut sidecars = 0;
        for (at, status) in items(&pod["status"]["initContainerStatuses"])
            .iter()
            .enumerate()
        {
            let sidecar = specs
                .iter()
                .any(|spec| spec["name"] == status["name"] && is_sidecar(spec));
            self.restarted(status);
            if sidecar {
                sidecars += status["restartCount"].as_i64().unwrap_or_default();
            }
            let (terminated, waiting) = (
                &status["state"]["terminated"],
                text_or(status, "/state/waiting/reason", ""),
            );
            if terminated.is_object() && terminated["exitCode"] == 0 {
                continue;
            }
            if sidecar && status["started"] == true {
                self.ready += usize::from(status["ready"] == true);
                continue;
            }
            self.reason = if terminated.is_object() {
                format!("Init:{}", ending(terminated))
            } else if !waiting.is_empty() && waiting != "PodInitializing" {
                format!("Init:{waiting}")
            } else {
                format!("Init:{at}/{}", specs.len())
            };
            return (true, sidecars);
        }
        (false, sidecars)
    }

    fn containers(&mut self, pod: &Value, sidecars: i64) {
        self.restarts = sidecars;
        let mut running = false;
        for status in items(&pod["status"]["containerStatuses"]).iter().rev() {
            self.restarted(status);
            let waiting = text_or(status, "/state/waiting/reason", "");
            let terminated = &status["state"]["terminated"];
            if !waiting.is_empty() {
                self.reason = waiting;
            } else if terminated.is_object() {
                self.reason = ending(terminated);
            } else if status["ready"] == true && status["state"]["running"].is_object() {
                running = true;
                self.ready += 1;
            }
        }
        if self.reason == "Completed" && running {
            self.reason = if holds(pod, "Ready") {
                "Running"
            } else {
                "NotReady"
            }
            .to_string();
        }
    }

    fn restarted(&mut self, status: &Value) {
        self.restarts += status["restartCount"].as_i64().unwrap_or_default();
        let ended = status
            .pointer("/lastState/terminated/finishedAt")
            .and_then(Value::as_str)
            .and_then(clock::parse);
        self.last_restart = self.last_restart.max(ended);
    }

    fn restarts_text(&self, now: Timestamp) -> String {
        match self.last_restart {
            Some(ended) if self.restarts > 0 => format!(
                "{} ({} ago)",
                self.restarts,
                age::span(now.duration_since(ended).as_secs())
            ),
            _ => self.restarts.to_string(),
        }
    }
}

fn ending(terminated: &Value) -> String {
    let reason = text_or(terminated, "/reason", "");
    match (
        reason.is_empty(),
        terminated["signal"].as_i64().unwrap_or_default(),
    ) {
        (false, _) => reason,
        (true, 0) => format!("ExitCode:{}", terminated["exitCode"]),
        (true, signal) => format!("Signal:{signal}"),
    }
}

fn gates(pod: &Value) -> String {
    let gates = items(&pod["spec"]["readinessGates"]);
    if gates.is_empty() {
        return "<none>".to_string();
    }
    let met = gates
        .iter()
        .filter(|gate| holds(pod, gate["conditionType"].as_str().unwrap_or_default()))
        .count();
    format!("{met}/{}", gates.len())
}

fn holds(pod: &Value, kind: &str) -> bool {
    items(&pod["status"]["conditions"])
        .iter()
        .any(|condition| condition["type"] == kind && condition["status"] == "True")
}

fn is_sidecar(container: &Value) -> bool {
    container["restartPolicy"] == "Always"
}

fn items(list: &Value) -> &[Value] {
    list.as_array().map(Vec::as_slice).unwrap_or_default()
}
