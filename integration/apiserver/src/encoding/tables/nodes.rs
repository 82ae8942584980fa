//! The table of nodes: upstream's `printNode`.

use serde_json::{Value, json};

use super::{TableColumn, age_of, text_or};

pub(super) const COLUMNS: &[TableColumn] = &[
    TableColumn("Name", "string", 0),
    TableColumn("Status", "string", 0),
    TableColumn("Roles", "string", 0),
    TableColumn("Age", "string", 0),
    TableColumn("Version", "string", 0),
    TableColumn("Internal-IP", "string", 1),
    TableColumn("External-IP", "string", 1),
    TableColumn("OS-Image", "string", 1),
    TableColumn("Kernel-Version", "string", 1),
    TableColumn("Container-Runtime", "string", 1),
];

pub(super) fn cells(node: &Value, now: jiff::Timestamp) -> Vec<Value> {
    let said = |field: &str| {
        json!(text_or(
            node,
            &format!("/status/nodeInfo/{field}"),
            "<unknown>"
        ))
    };
    vec![
        node["metadata"]["name"].clone(),
        json!(status(node)),
        json!(roles(node)),
        age_of(node, now),
        json!(text_or(node, "/status/nodeInfo/kubeletVersion", "")),
        address(node, "InternalIP"),
        address(node, "ExternalIP"),
        said("osImage"),
        said("kernelVersion"),
        said("containerRuntimeVersion"),
    ]
}

fn status(node: &Value) -> String {
    let conditions = node["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten();
    let ready = conditions
        .into_iter()
        .find(|condition| condition["type"] == "Ready");
    let word = match ready {
        Some(condition) if condition["status"] == "True" => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    };
    if node["spec"]["unschedulable"] == true {
        format!("{word},SchedulingDisabled")
    } else {
        word.to_string()
    }
}

fn roles(node: &Value) -> String {
    let labels = node["metadata"]["labels"].as_object().into_iter().flatten();
    let role =
        |(label, value): (&String, &Value)| match label.strip_prefix("node-role.kubernetes.io/") {
            Some(role) if !role.is_empty() => Some(role.to_string()),
            _ if label == "kubernetes.io/role" => value.as_str().map(str::to_string),
            _ => None,
        };
    let roles: Vec<String> = labels.filter_map(role).collect();
    if roles.is_empty() {
        "<none>".to_string()
    } else {
        roles.join(",")
    }
}

fn address(node: &Value, kind: &str) -> Value {
    let mut all = node["status"]["addresses"].as_array().into_iter().flatten();
    all.find(|address| address["type"] == kind)
        .map_or_else(|| json!("<none>"), |address| address["address"].clone())
}
