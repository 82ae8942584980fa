//! The tables of kinds with few columns.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::{Cells, TableColumn, TableLayout, age_of, text_or};

const NAME: TableColumn = text("Name");
const AGE: TableColumn = text("Age");

const fn text(name: &'static str) -> TableColumn {
    TableColumn(name, "string", 0)
}

pub(super) fn layout(storage_key: &str) -> TableLayout {
    let (columns, cells): (&'static [TableColumn], Cells) = match storage_key {
        "namespaces" => (const { &[NAME, text("Status"), AGE] }, namespace),
        "configmaps" => (const { &[NAME, text("Data"), AGE] }, config_map),
        "secrets" => (const { &[NAME, text("Type"), text("Data"), AGE] }, secret),
        "leases" => (const { &[NAME, text("Holder"), AGE] }, lease),
        "csinodes" => (
            const { &[NAME, TableColumn("Drivers", "integer", 0), AGE] },
            csi_node,
        ),
        "persistentvolumeclaims" => (
            const { &[NAME, text("Status"), text("Volume"), AGE] },
            claim,
        ),
        "certificatesigningrequests" => (
            const {
                &[
                    NAME,
                    AGE,
                    text("SignerName"),
                    text("Requestor"),
                    text("Condition"),
                ]
            },
            signing_request,
        ),
        _ => (const { &[NAME, AGE] }, other),
    };
    TableLayout { columns, cells }
}

fn namespace(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![
        name(object),
        text_at(object, "/status/phase"),
        age_of(object, now),
    ]
}

fn config_map(object: &Value, now: Timestamp) -> Vec<Value> {
    let entries = count(&object["data"]) + count(&object["binaryData"]);
    vec![name(object), json!(entries), age_of(object, now)]
}

fn secret(object: &Value, now: Timestamp) -> Vec<Value> {
    let entries = json!(count(&object["data"]));
    vec![
        name(object),
        text_at(object, "/type"),
        entries,
        age_of(object, now),
    ]
}

fn lease(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![
        name(object),
        text_at(object, "/spec/holderIdentity"),
        age_of(object, now),
    ]
}

fn csi_node(object: &Value, now: Timestamp) -> Vec<Value> {
    let drivers = object["spec"]["drivers"].as_array().map_or(0, Vec::len);
    vec![name(object), json!(drivers), age_of(object, now)]
}

fn claim(object: &Value, now: Timestamp) -> Vec<Value> {
    let (phase, volume) = (
        text_at(object, "/status/phase"),
        text_at(object, "/spec/volumeName"),
    );
    vec![name(object), phase, volume, age_of(object, now)]
}

fn signing_request(object: &Value, now: Timestamp) -> Vec<Value> {
    let signer = json!(text_or(object, "/spec/signerName", "<none>"));
    let requestor = text_at(object, "/spec/username");
    vec![
        name(object),
        age_of(object, now),
        signer,
        requestor,
        json!(condition(object)),
    ]
}

fn other(object: &Value, _now: Timestamp) -> Vec<Value> {
    vec![
        name(object),
        object["metadata"]["creationTimestamp"].clone(),
    ]
}

fn name(object: &Value) -> Value {
    object["metadata"]["name"].clone()
}

fn text_at(object: &Value, pointer: &str) -> Value {
    json!(text_or(object, pointer, ""))
}

fn count(data: &Value) -> usize {
    data.as_object().map_or(0, Map::len)
}

fn condition(request: &Value) -> String {
    let conditions = request["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten();
    let mut words: Vec<&str> = conditions
        .filter_map(|condition| condition["type"].as_str())
        .collect();
    if words.is_empty() {
        words.push("Pending");
    }
    if request["status"].get("certificate").is_some() {
        words.push("Issued");
    }
    words.join(",")
}
